//! The header of our own filters: all parameters and counts of a filter, without its items.
//!
//! ```text
//!  0   "OXB", version (2)
//!  4   kind (0: blocks of bits, 2: a counting table, 3: tables that forget), three zero bytes
//!  8   expansion (u32; 0: does not grow)
//!  12  records (u32): 2 if the filter has a further table, otherwise 1
//!  16  seed (u64)
//!  24  error rate (f64)
//!  32  the records: see `native`, `counting` and `windowed`
//!  end XXH3-64 of all before it
//! ```
//!
//! All numbers are little-endian. In every version, a header starts with the three letters and the version, and ends
//! with the checksum. This distinguishes it from a classic header, which starts with the number of items.

use std::cmp::Ordering;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::xxh3_64;

use super::fields::Fields;
use crate::error::{DecodeError, Error};
use crate::memory::try_vec;
use crate::spec::{ErrorRate, Growth, OwnSpec};

/// The version of the encoding that is written, and the only one that is read: no earlier version was ever released.
/// From the first release on, each version reads all released versions before it, and rejects later ones.
pub const VERSION: u8 = 2;

const MAGIC: &[u8] = b"OXB";
const FIXED_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;

/// The kinds of our own filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodedKind {
    /// Blocks of bits, and a table if the filter has grown.
    Native,
    /// A table that counts.
    Counting,
    /// Tables that forget.
    Windowed,
}

/// The fields with which all of our headers start.
pub struct Preamble<'a> {
    /// The kind of the filter.
    pub kind: EncodedKind,
    /// The parameters of the filter.
    pub spec: OwnSpec,
    /// The number of records.
    pub records: u32,
    /// The records.
    pub fields: Fields<'a>,
}

/// Returns the bytes between the letters and the checksum of a header of any version, or `None` if the bytes are not
/// one of our headers.
pub fn body(bytes: &[u8]) -> Option<&[u8]> {
    let (header, checksum) = bytes.split_last_chunk()?;
    let body = header.strip_prefix(MAGIC)?;
    (u64::from_le_bytes(*checksum) == xxh3_64(header)).then_some(body)
}

impl Preamble<'_> {
    /// Decodes the fields that all headers have, given the [`body`].
    pub fn decode(body: &[u8]) -> Result<Preamble<'_>, DecodeError> {
        let mut fields = Fields(body);
        match fields.u8()?.cmp(&VERSION) {
            Ordering::Less => return Err(DecodeError::Corrupt),
            Ordering::Equal => {}
            Ordering::Greater => return Err(DecodeError::NewerVersion),
        }
        let kind = match fields.u8()? {
            0 => EncodedKind::Native,
            2 => EncodedKind::Counting,
            3 => EncodedKind::Windowed,
            _ => return Err(DecodeError::Corrupt),
        };
        fields.zeros(3)?;
        let growth = NonZeroU32::new(fields.u32()?).map_or(Growth::Fixed, Growth::By);
        let records = fields.u32()?;
        let seed = fields.u64()?;
        let error_rate = ErrorRate::new(fields.f64()?).ok_or(DecodeError::Corrupt)?;
        Ok(Preamble { kind, spec: OwnSpec { seed, error_rate, growth }, records, fields })
    }
}

/// Encodes a header with `records` records, which `append` appends and which have `record_bytes` bytes in total.
pub fn encode(
    kind: EncodedKind,
    spec: &OwnSpec,
    records: usize,
    record_bytes: usize,
    append: impl FnOnce(&mut Vec<u8>),
) -> Result<Vec<u8>, Error> {
    let code = match kind {
        EncodedKind::Native => 0,
        EncodedKind::Counting => 2,
        EncodedKind::Windowed => 3,
    };
    let mut header = try_vec(FIXED_BYTES + record_bytes + CHECKSUM_BYTES)?;
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[VERSION, code, 0, 0, 0]);
    header.extend_from_slice(&spec.expansion().unwrap_or(0).to_le_bytes());
    header.extend_from_slice(&(records as u32).to_le_bytes());
    header.extend_from_slice(&spec.seed.to_le_bytes());
    header.extend_from_slice(&spec.error_rate.get().to_le_bytes());
    append(&mut header);
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    Ok(header)
}
