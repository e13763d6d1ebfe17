//! Decodes a file.

use std::ops::Range;

use oxbloom_filter::internals::Kind;
use oxbloom_filter::internals::codec::{self, Encoding, Header, Origin, Sink, Source, chunk};
use oxbloom_filter::{DecodeError, Filter};
use testkit::forgery::sealed::first_string;

use crate::decoding::copies::{MEMORY_LIMIT, built, saved, through_a_dump};
use crate::decoding::figures::check_same;
use crate::decoding::parts::{bits, load_part, sealed, set_bits, table, tag};
use crate::decoding::uses::use_in_every_way;
use crate::input::{Reader, Writer};
use crate::part::{self, END};

/// The kind of the first file of a cuckoo filter.
pub(crate) const CUCKOO_FILES: u8 = 0xF0;

/// The kinds of the file of a valkey filter, and of its payload for BF.LOAD.
pub(crate) const VALKEY_FILE: u8 = 0xEF;

const VALKEY_PAYLOAD: u8 = 0xEE;

/// Decodes a file. The first byte is its kind: up to 6, a classic filter of this version; 7, one of our own filters;
/// from 8 on, one of our own filters whose checksums and numbers of set bits or filled slots are corrected first;
/// from [`CUCKOO_FILES`] on, the same for cuckoo filters; before, the files of valkey filters, which have no checksums.
pub fn file(bytes: &[u8]) {
    let Some((&kind, file)) = bytes.split_first() else { return };
    let (classic, own) = match kind {
        ..CUCKOO_FILES => (Encoding::Classic, Encoding::Own),
        _ => (Encoding::Cuckoo, Encoding::OwnCuckoo),
    };
    let loaded = match kind % CUCKOO_FILES {
        VALKEY_FILE => load(Encoding::Valkey, Encoding::Valkey.version().into(), file),
        VALKEY_PAYLOAD => codec::valkey::decode_payload(file, &mut |bytes| bytes <= MEMORY_LIMIT),
        version @ 0..=6 => load(classic, version.into(), file),
        7 => load(own, own.version().into(), file),
        _ => sealed_file(file).and_then(|file| load(own, own.version().into(), &file)),
    };
    let Ok(mut filter) = loaded else { return };
    // The decoder does not check the number of items: in a classic filter, the sum over the layers.
    let items = if kind < CUCKOO_FILES { 0..8 } else { 16..24 };
    if kind % CUCKOO_FILES == 4 {
        let saved = saved(&filter);
        assert!(saved[..items.start] == file[..items.start] && saved[items.end..] == file[items.end..saved.len()]);
    }
    use_in_every_way(&mut filter);
    check_same(&filter, &through_a_dump(&filter));
}

pub(crate) fn load(encoding: Encoding, version: u64, file: &[u8]) -> Result<Filter, DecodeError> {
    encoding.read(version, &mut Reader(file), &mut |bytes| bytes <= MEMORY_LIMIT)
}

/// Returns a file of one of our own filters with the right checksums, and the right numbers of set bits and filled
/// slots. Checksums and numbers that are 0 stay 0.
fn sealed_file(file: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut file = Reader(file);
    let mut header = sealed(file.string()?);
    let filter = built(&Header::decode(&header, Origin::Client)?).ok_or(DecodeError::Corrupt)?;
    let mut whole = Writer::default();
    if filter.kind() == Kind::Native {
        seal_bits(&filter, &mut header, &mut file, &mut whole)?;
    }
    if table(&filter).is_some() {
        seal_parts(filter, &mut header, &mut file, &mut whole)?;
    }
    let mut first = Writer::default();
    first.string(&first_string(&header[..header.len() - 8]));
    Ok([first.0, whole.0].concat())
}

/// Writes the chunks of bits of a [`sealed_file`], and their number of set bits into the header.
fn seal_bits(
    filter: &Filter,
    header: &mut [u8],
    file: &mut Reader<'_>,
    chunks: &mut Writer,
) -> Result<(), DecodeError> {
    const SET_BITS: Range<usize> = 56..64;
    let [tag, _] = codec::tags(filter).expect("tags");
    let expected = if header[SET_BITS] == [0; 8] { 0 } else { bits(filter).len() };
    let (mut loaded, mut total) = (0, 0);
    while loaded < expected {
        let (bits, checksum) = (file.string()?, file.unsigned()?);
        loaded += bits.len();
        chunks.string(bits);
        chunks.unsigned(if checksum == 0 { 0 } else { chunk::checksum(bits, loaded as u64, tag) });
        total += set_bits(bits);
    }
    header[SET_BITS].copy_from_slice(&total.to_le_bytes());
    Ok(())
}

/// Writes the chunks of a table of a [`sealed_file`]. Loads them into a filter, and writes its numbers into the header.
fn seal_parts(
    mut filter: Filter,
    header: &mut [u8],
    file: &mut Reader<'_>,
    chunks: &mut Writer,
) -> Result<(), DecodeError> {
    let slots_and_segments = part::record_start(&filter) + 16..part::record_start(&filter) + 32;
    let (tag, mut position) = (tag(&filter), 0);
    while header[slots_and_segments.clone()][..8] != [0; 8] && position < END {
        let (part, checksum) = (file.string()?, file.unsigned()?);
        let end = part::end_of(part).filter(|&end| end > position).ok_or(DecodeError::Corrupt)?;
        chunks.string(part);
        chunks.unsigned(if checksum == 0 { 0 } else { chunk::checksum(part, end, tag) });
        // The reader rejects the parts that the filter rejects here.
        let _ = load_part(&mut filter, part, tag, Origin::Client);
        position = end;
    }
    header[slots_and_segments.clone()].copy_from_slice(&codec::encode_header(&filter)?[slots_and_segments]);
    Ok(())
}
