//! Loads filters: builds the filter that a header describes, fills it with the chunks, and checks that it is complete.

use super::encoding::Encoded;
use super::{Header, Origin, load_chunk};
use crate::codec::own::chunk;
use crate::error::{DecodeError, ensure};
use crate::filter::Filter;
use crate::kind::for_each_kind;
use crate::memory::{Admit, try_append};

/// A filter that is being loaded.
pub struct Loader {
    filter: Filter,
    /// The header with which the complete filter is encoded again.
    header: Vec<u8>,
    /// The bytes of the chunks that were loaded.
    loaded: u64,
    /// The memory that the filter may take in addition, in bytes.
    left: u64,
}

impl Loader {
    /// Builds the filter of a dump stream's header. `encoded` are the header's bytes. The filter may take `max_memory`
    /// bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError::OutOfMemory`] if it would take more, or its memory cannot be allocated.
    pub fn new(header: &Header, encoded: &[u8], max_memory: u64) -> Result<Loader, DecodeError> {
        if header.memory() > max_memory {
            return Err(DecodeError::OutOfMemory);
        }
        let loader = Loader::of(header.build()?, encoded)?;
        let left = max_memory.saturating_sub(loader.filter.memory_usage() as u64);
        Ok(Loader { left, ..loader })
    }

    /// Loads into a filter that was built from a header. `encoded` are the header's bytes, possibly without its end.
    pub(super) fn of(filter: Filter, encoded: &[u8]) -> Result<Loader, DecodeError> {
        let mut header = Vec::new();
        try_append(&mut header, &[encoded])?;
        Ok(Loader { filter, header, loaded: 0, left: u64::MAX })
    }

    /// Loads a chunk of a dump stream.
    ///
    /// # Errors
    ///
    /// As for [`load_chunk`]. The filter cannot be completed then.
    pub fn load(&mut self, cursor: u64, data: &[u8]) -> Result<(), DecodeError> {
        let length = data.len() as u64;
        if !for_each_kind!(self.filter.by_kind(), filter => filter.is_next(cursor, length, self.loaded)) {
            return Err(DecodeError::Incomplete);
        }
        let mut admit = |bytes| self.left.checked_sub(bytes).map(|less| self.left = less).is_some();
        load_chunk(&mut self.filter, cursor, data, Origin::Replication, &mut admit)?;
        self.loaded = self.loaded.saturating_add(length);
        Ok(())
    }

    /// Fills a filter of our own with its chunks. `next` returns the content of each, in order, and its checksum,
    /// unless another checksum covers it. Calls `admit` with the bytes that tables take beyond what the header said.
    pub(super) fn fill<B: AsRef<[u8]>>(
        &mut self,
        header: &Header,
        mut next: impl FnMut() -> Result<(B, Option<u64>), DecodeError>,
        admit: Admit<'_>,
    ) -> Result<(), DecodeError> {
        let mut said = header.memory.saturating_sub(self.filter.memory_usage() as u64);
        let mut admit = |bytes: u64| {
            let more = bytes.saturating_sub(said);
            said = said.saturating_sub(bytes);
            more == 0 || admit(more)
        };
        let filter =
            for_each_kind!(self.filter.by_kind_mut(), filter => filter.own_mut()).ok_or(DecodeError::Corrupt)?;
        let tags = filter.tags();
        let sections = filter.sections_mut().into_iter().flatten().zip(tags).zip(header.has_chunks);
        for ((section, tag), has_chunks) in sections {
            let mut position = 0;
            while has_chunks && position < section.end() {
                let (content, checksum) = next()?;
                let content = content.as_ref();
                let end = section.end_of(content, position).ok_or(DecodeError::Corrupt)?;
                ensure(checksum.is_none_or(|checksum| checksum == chunk::checksum(content, end, tag)))?;
                section.load(content, end, &mut admit)?;
                position = end;
            }
        }
        Ok(())
    }

    /// Returns the filter, if it is complete.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Incomplete`] if chunks are missing, or are not those of the header.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        let Loader { filter, header, loaded, .. } = self;
        let is_complete = for_each_kind!(filter.by_kind(), filter => filter.is_complete(&header, loaded))?;
        if is_complete { Ok(filter) } else { Err(DecodeError::Incomplete) }
    }
}
