//! Filters of our own as they are stored, and their sections: blocks of bits and tables. Each section is divided into
//! [chunks](super::chunk).

use std::borrow::Cow;

use crate::error::{DecodeError, Error};
use crate::memory::Admit;
use crate::spec::OwnSpec;

/// The maximum number of sections of a filter.
pub(crate) const MAX_SECTIONS: usize = 2;

/// A filter of our own, as it is stored.
pub(crate) trait OwnFilter {
    fn spec(&self) -> &OwnSpec;
    /// Appends the record of its kind to the header.
    fn encode_record(&self, header: &mut Vec<u8>);
    /// Returns its sections, in order.
    fn sections(&self) -> [Option<&dyn Section>; MAX_SECTIONS];
    /// Returns its sections, to change them.
    fn sections_mut(&mut self) -> [Option<&mut dyn Section>; MAX_SECTIONS];
    /// Returns the tags that bind chunks to the filter, for each section.
    fn tags(&self) -> [u64; MAX_SECTIONS];
    /// Adds the content of a chunk that ends at `end` to the section with this number. Returns true if it changed.
    fn merge_part(&mut self, number: usize, content: &[u8], end: u64, admit: Admit<'_>) -> Result<bool, DecodeError> {
        let section = self.sections_mut().into_iter().flatten().nth(number).ok_or(DecodeError::NoSuchOffset)?;
        section.merge(content, end, admit)
    }
}

/// A part of a filter that is stored by itself.
///
/// A position in a section is a number of bytes in blocks, and a place among all paths in a table.
pub(crate) trait Section {
    /// Appends the record of the section in the [header](super::header): its parameters and counts.
    fn encode_record(&self, header: &mut Vec<u8>);

    /// Returns the position after the last chunk.
    fn end(&self) -> u64;

    /// Returns the chunk that contains a position, or `None` after the last chunk. A section without items has no
    /// chunks.
    fn part_at(&self, position: u64) -> Result<Option<Part<'_>>, Error>;

    /// Returns the maximum size of the content of all chunks, in bytes.
    fn content_bytes(&self) -> u64;

    /// Returns the position of the end of a chunk that starts at `start`, or `None` if it is no chunk.
    fn end_of(&self, content: &[u8], start: u64) -> Option<u64>;

    /// Sets the content of a chunk that ends at `end`. The section has no content there yet.
    fn load(&mut self, content: &[u8], end: u64, admit: Admit<'_>) -> Result<(), DecodeError>;

    /// Adds the content of a chunk that ends at `end`. Returns true if the section changed.
    fn merge(&mut self, content: &[u8], end: u64, admit: Admit<'_>) -> Result<bool, DecodeError>;
}

/// A chunk of a section.
pub(crate) struct Part<'a> {
    pub content: Cow<'a, [u8]>,
    /// The position of its end.
    pub end: u64,
}

/// A section of a filter, and what binds its chunks to it.
pub(crate) struct Placed<'a> {
    pub section: &'a dyn Section,
    /// The position of its start among the positions of all sections.
    pub start: u64,
    /// Identifies the filter, or its present state, and the section.
    pub tag: u64,
}

/// Returns the sections of a filter, in order.
pub(crate) fn sections(filter: &dyn OwnFilter) -> impl Iterator<Item = Placed<'_>> + Clone {
    let mut start = 0;
    filter.sections().into_iter().flatten().zip(filter.tags()).map(move |(section, tag)| {
        let placed = Placed { section, start, tag };
        start = start.saturating_add(section.end());
        placed
    })
}

/// Returns the number of the section that contains the chunk that ends at `end`, its tag, and the end within this
/// section.
///
/// # Errors
///
/// [`DecodeError::NoSuchOffset`] if the end is after all sections.
pub(crate) fn section_at(filter: &dyn OwnFilter, end: u64) -> Result<(usize, u64, u64), DecodeError> {
    let found = sections(filter).enumerate().find_map(|(number, Placed { section, start, tag })| {
        let within = end.saturating_sub(start);
        (within <= section.end()).then_some((number, tag, within))
    });
    found.ok_or(DecodeError::NoSuchOffset)
}

/// Returns the chunks of all sections, in order, each with its tag.
pub(crate) fn parts(filter: &dyn OwnFilter) -> impl Iterator<Item = Result<(Part<'_>, u64), Error>> {
    sections(filter).flat_map(|Placed { section, tag, .. }| {
        let mut position = 0;
        std::iter::from_fn(move || {
            let part = section.part_at(position).transpose()?;
            Some(part.inspect(|part| position = part.end).map(|part| (part, tag)))
        })
    })
}
