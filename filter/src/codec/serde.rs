//! Filters in the formats of serde: the bytes of [`Filter::to_bytes`].

use std::fmt;

use serde_core::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_core::ser::{self, Serialize, Serializer};

use crate::filter::Filter;
use crate::memory::try_append;

/// Serializes a filter as the bytes of [`to_bytes`](Filter::to_bytes). Needs the feature `serde`.
///
/// A format without bytes, such as JSON, has a list of numbers instead. In JSON, it takes three to four times as much
/// space.
///
/// # Errors
///
/// The text of [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the bytes cannot be allocated; any error of the
/// format.
///
/// ```
/// # use oxbloom_filter::Filter;
/// let mut filter = Filter::new(0.01, 1000)?;
/// filter.insert("apple")?;
/// let copy: Filter = bincode::deserialize(&bincode::serialize(&filter)?)?;
/// assert!(copy.contains("apple"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes().map_err(ser::Error::custom)?)
    }
}

/// Deserializes bytes or a list of numbers as [`from_bytes`](Filter::from_bytes) does. Needs the feature `serde`.
///
/// As there, a few bytes can describe a filter of any size. For data from an untrusted party, deserialize the bytes
/// alone, and use [`from_bytes_within`](Filter::from_bytes_within).
///
/// # Errors
///
/// The text of a [`DecodeError`](crate::DecodeError); any error of the format.
///
/// ```
/// # use oxbloom_filter::Filter;
/// let damaged = serde_json::from_str::<Filter>("[1, 2, 3]").unwrap_err();
/// assert!(damaged.to_string().starts_with("damaged data"));
/// ```
impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Filter, D::Error> {
        // Asked for borrowed bytes, some formats have only those that fit into a small buffer.
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

/// Decodes a filter from its bytes, whether the format has them as bytes or as a list of numbers.
struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Filter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a filter")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Filter, E> {
        Filter::from_bytes(bytes).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Filter, A::Error> {
        // No room is made for the length that the list claims to have.
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element()? {
            try_append(&mut bytes, &[&[byte]]).map_err(de::Error::custom)?;
        }
        self.visit_bytes(&bytes)
    }
}
