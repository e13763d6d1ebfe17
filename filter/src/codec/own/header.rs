//! The header of our own filters: all parameters and counts of a filter, without its items.
//!
//! ```text
//!  0   "OXB", version (3)
//!  4   number of the kind, three zero bytes
//!  8   expansion (u32; 0: does not grow)
//!  12  sections (u32): 2 if the filter has a further table, otherwise 1
//!  16  seed (u64)
//!  24  error rate (f64)
//!  32  the record of the kind (see `counting` and `windowed`), and those of the sections (see `blocks` and `table`)
//!  end XXH3-64 of all before it
//! ```
//!
//! All numbers are little-endian. In every version, a header starts with the three letters and the version, and ends
//! with the checksum. This distinguishes it from a classic header, which starts with the number of items.

use std::cmp::Ordering;

use xxhash_rust::xxh3::xxh3_64;

use super::section::{OwnFilter, sections};
use crate::codec::Header;
use crate::codec::fields::{Fields, checked};
use crate::error::{DecodeError, Error};
use crate::memory::try_vec;
use crate::spec::{ErrorRate, Growth, OwnSpec};

/// The version of the encoding that is written, and the only one that is read: no earlier version was ever released.
/// From the first release on, each version reads all released versions before it, and rejects later ones.
pub const VERSION: u8 = 3;

/// The maximum size of a header in bytes.
pub const MAX_BYTES: usize = PREAMBLE_BYTES + MAX_RECORD_BYTES + CHECKSUM_BYTES;

/// The maximum size of all records of a header in bytes. Those of each kind are asserted to fit.
pub const MAX_RECORD_BYTES: usize = 4 << 10;

/// The size of the fields before the records.
const PREAMBLE_BYTES: usize = 32;

const MAGIC: &[u8] = b"OXB";

/// The size of the checksum at the end of a header.
pub const CHECKSUM_BYTES: usize = 8;

/// The fields that all of our headers have after the number of the kind.
pub struct Preamble<'a> {
    /// The parameters of the filter.
    pub spec: OwnSpec,
    /// The number of sections.
    pub sections: u32,
    /// The records.
    pub fields: Fields<'a>,
}

/// A kind of filters of our own, as headers tell it.
pub(super) trait OwnKind: OwnFilter {
    /// The number of the kind in a header.
    const NUMBER: u8;
    /// The maximum size of the records in a header, those of all sections included, in bytes.
    const MAX_RECORD_BYTES: usize;

    fn decode_records(preamble: &mut Preamble<'_>) -> Result<Header, DecodeError>;
}

/// Returns the header without its checksum, or `None` if the bytes are not one of our headers of any version.
pub fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    checked(bytes).ok().filter(|header| header.starts_with(MAGIC))
}

/// Returns the number of the kind, and the fields after it, of a header without its checksum.
pub fn kind_of(unsealed: &[u8]) -> Result<(u8, Fields<'_>), DecodeError> {
    let mut fields = Fields(unsealed.strip_prefix(MAGIC).ok_or(DecodeError::Corrupt)?);
    match fields.u8()?.cmp(&VERSION) {
        Ordering::Less => Err(DecodeError::Corrupt),
        Ordering::Equal => Ok((fields.u8()?, fields)),
        Ordering::Greater => Err(DecodeError::NewerVersion),
    }
}

impl Preamble<'_> {
    /// Decodes the fields after the number of the kind.
    pub fn decode(mut fields: Fields<'_>) -> Result<Preamble<'_>, DecodeError> {
        fields.zeros(3)?;
        let growth = Growth::of(fields.u32()?);
        let sections = fields.u32()?;
        let seed = fields.u64()?;
        let error_rate = ErrorRate::new(fields.f64()?).ok_or(DecodeError::Corrupt)?;
        Ok(Preamble { spec: OwnSpec { seed, error_rate, growth }, sections, fields })
    }
}

pub(super) fn encode<F: OwnKind>(filter: &F) -> Result<Vec<u8>, Error> {
    let mut header = try_vec(MAX_BYTES)?;
    let spec = filter.spec();
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[VERSION, F::NUMBER, 0, 0, 0]);
    let numbers = [spec.growth.expansion().unwrap_or(0), sections(filter).count() as u32];
    header.extend_from_slice(numbers.map(u32::to_le_bytes).as_flattened());
    header.extend_from_slice([spec.seed, spec.error_rate.get().to_bits()].map(u64::to_le_bytes).as_flattened());
    debug_assert_eq!(header.len(), PREAMBLE_BYTES);
    filter.encode_record(&mut header);
    sections(filter).for_each(|placed| placed.section.encode_record(&mut header));
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    debug_assert!(header.len() <= MAX_BYTES);
    Ok(header)
}
