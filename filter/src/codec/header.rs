//! Decodes a header of one of our own filters, by its kind.

use crate::array::try_box;
use crate::error::DecodeError;
use crate::kind::Described;
use crate::kind::counting::stored::CountingHeader;
use crate::kind::native::stored::NativeHeader;
use crate::kind::windowed::stored::WindowedHeader;
use crate::spec::FilterKind;
use crate::stored::header::Preamble;

/// Decodes a header without its checksum. Returns the bytes after it, too.
pub(super) fn decode(unsealed: &[u8]) -> Result<(Box<dyn Described>, &[u8]), DecodeError> {
    let (kind, mut preamble) = Preamble::decode(unsealed)?;
    let header: Box<dyn Described> = match kind {
        FilterKind::Native => try_box(NativeHeader::decode(&mut preamble)?)?,
        FilterKind::Counting => try_box(CountingHeader::decode(&mut preamble)?)?,
        FilterKind::Windowed => try_box(WindowedHeader::decode(&mut preamble)?)?,
        FilterKind::Classic => return Err(DecodeError::Corrupt),
    };
    Ok((header, preamble.fields.0))
}
