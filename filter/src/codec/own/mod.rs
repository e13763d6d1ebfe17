//! The encoding of our own filters: a [header] and the [chunks](chunk) of the [sections](section). Each kind has a file
//! with what it adds.
//!
//! An RDB value is a string, and then a string with the content and a number with the checksum of each chunk. The first
//! string is
//!
//! ```text
//!  the header without its checksum, packed (see `packing`)
//!  if the chunks are short, also packed: for each, its length (u64), its content, and zeros up to a whole word
//!  end XXH3-64 of all before it
//! ```
//!
//! So a filter with a few items takes some 60 bytes: the seed, the error rate, the checksum, and two bytes for each
//! other number.

mod blocks;
pub mod chunk;
mod counting;
pub mod header;
mod native;
pub mod packing;
pub(crate) mod section;
mod table;
mod windowed;

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64;

use super::encoding::{Encoded, Format};
use super::fields::{Fields, checked};
use super::loader::Loader;
use super::{DumpChunk, HEADER_CURSOR, Header, LoadedChunk, Origin, Sink, Source};
use crate::array::WORD;
use crate::error::{DecodeError, Error, ensure};
use crate::filter::Filter;
use crate::kind::NativeCuckooFilter;
use crate::kind::counting::CountingFilter;
use crate::kind::native::NativeFilter;
use crate::kind::windowed::WindowedFilter;
use crate::line::LINE;
use crate::memory::{Admit, request, try_append};
use crate::sizing::FOLDABLE_BLOCKS;
use chunk::{BITS_CHUNK_BYTES, FIRST_CHUNK_CURSOR, SealedChunk, TABLE_CHUNK_BYTES};
use header::{CHECKSUM_BYTES, OwnKind, Preamble};
use section::{MAX_SECTIONS, OwnFilter, Part, Placed, parts, section_at, sections};

/// The size of all chunks of a filter, in bytes, up to which they are stored with the header.
const SHORT: u64 = 4 << 10;

// Below this size, each section has one chunk at most.
const _: () = assert!(SHORT as usize <= BITS_CHUNK_BYTES);
const _: () = assert!(SHORT as usize <= TABLE_CHUNK_BYTES);
// Only tags tell blocks from before filters could be folded, and what is stored with the header has no tags.
const _: () = assert!(SHORT < FOLDABLE_BLOCKS * LINE as u64);

/// The maximum size of an unpacked first string: a header, and for each section a chunk, its length and its padding.
const MAX_FIRST: usize = header::MAX_BYTES + SHORT as usize + MAX_SECTIONS * 2 * WORD;

pub(super) struct OwnFormat;

/// Decodes the records of a header.
type DecodeRecords = fn(&mut Preamble<'_>) -> Result<Header, DecodeError>;

/// The kinds with this encoding: their numbers in a header, and how the rest of it is decoded.
const KINDS: [(u8, DecodeRecords); 4] =
    [kind::<NativeFilter>(), kind::<CountingFilter>(), kind::<NativeCuckooFilter>(), kind::<WindowedFilter>()];

const fn kind<F: OwnKind>() -> (u8, DecodeRecords) {
    const { assert!(F::MAX_RECORD_BYTES <= header::MAX_RECORD_BYTES, "a header without room for its records") }
    (F::NUMBER, F::decode_records)
}

impl Format for OwnFormat {
    const VERSION: u32 = header::VERSION as u32;

    fn read_rdb(_version: u32, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError> {
        let first = packing::unpack(checked(source.string()?.as_ref())?, MAX_FIRST)?;
        let (header, short) = decode_unsealed(&first)?;
        request(header.memory, admit)?;
        let encoded = first.strip_suffix(short).ok_or(DecodeError::Corrupt)?;
        let mut loader = Loader::of(header.build()?, encoded)?;
        if short.is_empty() {
            loader.fill(&header, || Ok((source.string()?, Some(source.unsigned()?))), admit)?;
        } else {
            let mut fields = Fields(short);
            loader.fill(&header, || Ok((take_short(&mut fields)?, None)), admit)?;
            ensure(fields.0.is_empty())?;
        }
        loader.finish()
    }

    fn decode_header(bytes: &[u8], _origin: Origin) -> Option<Result<Header, DecodeError>> {
        let header = decode_unsealed(header::unsealed(bytes)?);
        Some(header.and_then(|(header, rest)| ensure(rest.is_empty()).map(|()| header)))
    }

    fn check_chunk(cursor: u64, data: &[u8]) -> Option<Result<(), DecodeError>> {
        let is_own = cursor >= FIRST_CHUNK_CURSOR;
        is_own.then(|| SealedChunk::decode(cursor, data)?.check())
    }
}

/// Decodes a header of a filter of our own, without its checksum. Returns the bytes after it, too.
fn decode_unsealed(unsealed: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let (number, fields) = header::kind_of(unsealed)?;
    let (_, decode) = KINDS.iter().find(|kind| kind.0 == number).ok_or(DecodeError::NewerVersion)?;
    let mut preamble = Preamble::decode(fields)?;
    let header = decode(&mut preamble)?;
    Ok((header, preamble.fields.0))
}

/// Takes the content of a chunk that is stored with the header.
fn take_short<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], DecodeError> {
    let length = fields.u64()?;
    let content = fields.take(length)?;
    fields.zeros(padding(content.len()))?;
    Ok(content)
}

/// Returns the number of zeros that follow content of this length.
fn padding(length: usize) -> usize {
    length.wrapping_neg() % WORD
}

impl<F: OwnKind> Encoded for F {
    fn write_rdb(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut first = header::encode(self)?;
        first.truncate(first.len().saturating_sub(CHECKSUM_BYTES));
        let is_short = sections(self).map(|placed| placed.section.content_bytes()).sum::<u64>() <= SHORT;
        if is_short {
            for part in parts(self) {
                let (Part { content, .. }, _tag) = part?;
                let padding = &[0; WORD][..padding(content.len())];
                try_append(&mut first, &[&(content.len() as u64).to_le_bytes(), &content, padding])?;
            }
        }
        let mut packed = packing::pack(&first)?;
        let checksum = xxh3_64(&packed).to_le_bytes();
        try_append(&mut packed, &[&checksum])?;
        sink.string(&packed);
        if !is_short {
            for part in parts(self) {
                let (Part { content, end }, tag) = part?;
                sink.string(&content);
                sink.unsigned(chunk::checksum(&content, end, tag));
            }
        }
        Ok(())
    }

    fn encode_header(&self) -> Result<Vec<u8>, Error> {
        header::encode(self)
    }

    fn next_chunk(&self, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
        let position = match cursor {
            HEADER_CURSOR => 0,
            FIRST_CHUNK_CURSOR.. => cursor.saturating_sub(FIRST_CHUNK_CURSOR),
            _ => return Ok(None),
        };
        for Placed { section, start, tag } in sections(self) {
            if let Some(part) = section.part_at(position.saturating_sub(start))? {
                let end = start.saturating_add(part.end);
                let data = Cow::Owned(chunk::seal(&part.content, end, tag)?);
                return Ok(Some(DumpChunk { cursor: FIRST_CHUNK_CURSOR.saturating_add(end), data }));
            }
        }
        Ok(None)
    }

    fn load_chunk<'a>(
        &'a mut self,
        cursor: u64,
        data: &'a [u8],
        _origin: Origin,
        admit: Admit<'_>,
    ) -> Result<LoadedChunk<'a>, DecodeError> {
        let sealed = SealedChunk::decode(cursor, data)?;
        let (number, tag, end) = section_at(self, sealed.end)?;
        sealed.check_tag(tag)?;
        let changed = self.merge_part(number, sealed.content, end, admit)?;
        Ok(LoadedChunk { bytes: data, changed })
    }

    fn digest_content(&self, add: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        parts(self).try_for_each(|part| part.map(|(part, _tag)| add(&part.content)))
    }

    /// A complete filter has the header from which it was built.
    fn is_complete(&self, header: &[u8], _loaded: u64) -> Result<bool, Error> {
        Ok(header::encode(self)?.starts_with(header))
    }

    fn tags(&self) -> Option<[u64; MAX_SECTIONS]> {
        Some(OwnFilter::tags(self))
    }

    fn own_mut(&mut self) -> Option<&mut dyn OwnFilter> {
        Some(self)
    }
}
