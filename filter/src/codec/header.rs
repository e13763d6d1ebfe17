//! Decodes a header of one of our own filters, by its kind.

use crate::array::try_box;
use crate::error::DecodeError;
use crate::kind::Described;
use crate::kind::counting::stored::CountingHeader;
use crate::kind::native::stored::NativeHeader;
use crate::kind::windowed::stored::WindowedHeader;
use crate::stored::header::{KindCode, Preamble};

/// Decodes the records after the preamble.
type Decode = fn(&mut Preamble<'_>) -> Result<Box<dyn Described>, DecodeError>;

const KINDS: [(KindCode, Decode); 3] = [
    (KindCode::Native, |preamble| Ok(try_box(NativeHeader::decode(preamble)?)?)),
    (KindCode::Counting, |preamble| Ok(try_box(CountingHeader::decode(preamble)?)?)),
    (KindCode::Windowed, |preamble| Ok(try_box(WindowedHeader::decode(preamble)?)?)),
];

/// Decodes a header without its checksum. Returns the bytes after it, too.
pub(super) fn decode(unsealed: &[u8]) -> Result<(Box<dyn Described>, &[u8]), DecodeError> {
    let (code, mut preamble) = Preamble::decode(unsealed)?;
    let kind = KINDS.into_iter().find(|(kind, _)| *kind as u8 == code);
    let (_, decode) = kind.ok_or(DecodeError::Corrupt)?;
    Ok((decode(&mut preamble)?, preamble.fields.0))
}
