//! The content of a filter with forged numbers, and the checksums that match them.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::chunk::{self, FIRST_CHUNK_CURSOR};
use oxbloom_filter::internals::codec::{self, HEADER_CURSOR, Header, Origin, header};
use oxbloom_filter::internals::{AnyFilter, end_of};
use xxhash_rust::xxh3::xxh3_64;

use crate::forgery::entries::{Entries, Widths};
use crate::forgery::fields::{
    CHECKSUM_BYTES, END, Field, RECORDS, counts_of_content, header_fields, part_fields, table_records,
};
use crate::forgery::sealed::{Sealed, first_string};
use crate::forgery::{classic, cuckoo, valkey};
use crate::payload::Part;

/// The content of a filter with forged numbers. [`sealed`](Forgery::sealed) gives it the checksums that match.
#[derive(Clone)]
pub struct Forgery {
    format: Format,
    original_header: Vec<u8>,
    /// The header, or the numbers of a [classic], [cuckoo] or [valkey] filter.
    header: Vec<u8>,
    /// The bits or slots of each layer.
    bits: Vec<Vec<u8>>,
    /// The only part of each table.
    parts: Vec<Vec<u8>>,
    /// The numbers of slots and set bits that were forged, as offsets in the header.
    forged: Vec<usize>,
}

impl Forgery {
    /// Takes the content of a filter whose tables have at most one chunk each.
    pub fn of(filter: &Filter) -> Forgery {
        if let AnyFilter::Classic(filter) = filter.by_kind() {
            let header = classic::numbers_of(filter);
            let bits = filter.chain().iter().map(|layer| layer.bytes().to_vec()).collect();
            return Forgery::with_content(Format::Classic, header, bits, Vec::new());
        }
        if let AnyFilter::Cuckoo(filter) = filter.by_kind() {
            let slots = filter.chain().iter().map(|layer| layer.slots().to_vec()).collect();
            return Forgery::with_content(Format::Cuckoo, cuckoo::numbers_of(filter), slots, Vec::new());
        }
        if let AnyFilter::Valkey(filter) = filter.by_kind() {
            let bits = filter.chain().iter().map(|layer| layer.bytes().to_vec()).collect();
            return Forgery::with_content(Format::Valkey, valkey::numbers_of(filter), bits, Vec::new());
        }
        let mut chunks = codec::dump(filter).map(|chunk| chunk.expect("little memory").data.into_owned());
        let header = chunks.next().expect("a header");
        let mut contents = chunks.map(|mut chunk| {
            chunk.truncate(chunk.len() - 16);
            chunk
        });
        let bits = match filter.by_kind() {
            AnyFilter::Native(filter) if filter.layer().set_bits() > 0 => contents.by_ref().take(1).collect(),
            _ => Vec::new(),
        };
        let parts: Vec<_> = contents.collect();
        assert!(parts.len() <= table_records(&header).len(), "one chunk for each table");
        Forgery::with_content(Format::Own, header, bits, parts)
    }

    fn with_content(format: Format, header: Vec<u8>, bits: Vec<Vec<u8>>, parts: Vec<Vec<u8>>) -> Forgery {
        Forgery { format, original_header: header.clone(), header, bits, parts, forged: Vec::new() }
    }

    /// Returns all fields with their places.
    pub fn fields(&self) -> Vec<(Place, Field)> {
        let in_header = match self.format {
            Format::Own => header_fields(&self.header),
            Format::Classic => classic::fields(&self.header),
            Format::Cuckoo => cuckoo::fields(&self.header),
            Format::Valkey => valkey::fields(&self.header),
        };
        let in_header = in_header.into_iter().map(|field| (Place::Header, field));
        let in_parts = (0..self.parts.len()).flat_map(|index| {
            part_fields(self.is_windowed()).into_iter().map(move |field| (Place::Part(index), field))
        });
        in_header.chain(in_parts).collect()
    }

    /// Returns the values to try in a field.
    pub fn values(&self, (place, field): (Place, Field)) -> Vec<u64> {
        match place {
            Place::Header => field.values(&self.header),
            Place::Part(index) => field.values(&self.parts[index]),
        }
    }

    pub fn set(&mut self, (place, field): (Place, Field), value: u64) {
        match place {
            Place::Header => {
                self.forged.push(field.at);
                field.set(&mut self.header, value);
            }
            Place::Part(index) => field.set(&mut self.parts[index], value),
        }
    }

    /// Returns the number of tables that have entries.
    pub fn tables(&self) -> usize {
        self.parts.len()
    }

    /// Replaces the content of a table.
    pub fn replace(&mut self, table: usize, part: Vec<u8>) {
        self.parts[table] = part;
    }

    /// Replaces the entries of a table.
    pub fn put(&mut self, table: usize, entries: Entries) {
        let record = table_records(&self.original_header)[table];
        let base = self.is_windowed().then(|| Field::number(&self.header[RECORDS + 24..]));
        self.parts[table] = entries.part(&Widths::of(&self.header[record..]), base);
    }

    fn is_windowed(&self) -> bool {
        self.original_header[4] == 3
    }

    /// Gives everything the right checksums, tags and cursors, and the header the right numbers of slots and set bits
    /// unless they were forged. Returns `None` if the header is not valid or claims more than `max_memory` bytes.
    pub fn sealed(&self, max_memory: u64) -> Option<Sealed> {
        match self.format {
            Format::Classic => return Some(classic::sealed(&self.header, &self.bits, &self.forged, max_memory)),
            Format::Cuckoo => return Some(cuckoo::sealed(&self.header, &self.bits, &self.forged, max_memory)),
            Format::Valkey => return Some(valkey::sealed(&self.header, &self.bits, max_memory)),
            Format::Own => {}
        }
        let build = |header: &[u8]| {
            let header = Header::decode(header, Origin::Client).ok().filter(|header| header.memory() <= max_memory)?;
            Some((header.build().ok()?, header.memory()))
        };
        let mut header = sealed_header(&self.agreeing_header());
        let (mut filter, _) = build(&header)?;
        let (mut stream, mut values, mut short) = (Vec::new(), Vec::new(), Vec::new());
        let mut tags = codec::tags(&filter)?.into_iter();
        let mut add = |content: &[u8], start: u64, end: u64, tag: u64| {
            let offset = start.wrapping_add(end);
            let data = chunk::seal(content, offset, tag).expect("little memory");
            stream.push((FIRST_CHUNK_CURSOR.wrapping_add(offset), data));
            values.extend([Part::String(content.to_vec()), Part::Unsigned(chunk::checksum(content, end, tag))]);
            short.extend_from_slice(&(content.len() as u64).to_le_bytes());
            short.extend_from_slice(content);
            short.resize(short.len().next_multiple_of(8), 0);
        };
        let mut starts = [0, END].into_iter();
        if let AnyFilter::Native(native) = filter.by_kind() {
            let shape = native.layer().shape();
            // The last word of fingerprints is stored beside the others.
            let end = shape.bytes() + if shape.is_of_fingerprints() { 8 } else { 0 };
            let tag = tags.next()?;
            if let Some(bits) = self.bits.first() {
                let mut bits = bits.clone();
                bits.resize(end as usize, 0);
                add(&bits, 0, end, tag);
            }
            starts = [end, end].into_iter();
        }
        for ((part, tag), start) in self.parts.iter().zip(tags).zip(starts) {
            add(part, start, end_of(part).unwrap_or_default(), tag);
        }
        for (cursor, data) in &stream {
            let _ = codec::load_chunk(&mut filter, *cursor, data, Origin::Client, &mut |_| true);
        }
        let right = codec::encode_header(&filter).expect("little memory");
        for at in counts_of_content(&header).filter(|at| !self.forged.contains(at)) {
            header[at..at + 8].copy_from_slice(&right[at..at + 8]);
        }
        header = sealed_header(&header);
        let (_, memory) = build(&header)?;
        let unsealed = &header[..header.len() - CHECKSUM_BYTES];
        values.insert(0, Part::String(first_string(unsealed)));
        let short = Part::String(first_string(&[unsealed, &short].concat()));
        stream.insert(0, (HEADER_CURSOR, header));
        Some(Sealed { stream, values, short: Some(short), encoding: header::VERSION.into(), memory })
    }
}

impl Forgery {
    /// Returns the header, in which numbers that were not forged agree with those that were.
    fn agreeing_header(&self) -> Vec<u8> {
        let mut header = self.header.clone();
        let mut put = |at: usize, value: u64| {
            if !self.forged.contains(&at) {
                header[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        };
        let number = |at: usize| Field::number(&self.header[at..]);
        if !self.is_windowed() {
            // There are at least as many occurrences as items.
            for record in table_records(&self.original_header) {
                put(record + 8, number(record + 8).max(number(record) & !(1 << 63)));
            }
        } else if self.header[RECORDS + 17] & 2 == 0 && self.header[RECORDS + 16] > 0 {
            // The numbers and the times of slices follow from the time, unless the filter rolls.
            let length = number(RECORDS + 8).div_ceil(self.header[RECORDS + 16].into()).max(1);
            let forgotten = number(RECORDS + 32) / length;
            put(RECORDS + 24, forgotten);
            for slice in 0..usize::from(self.original_header[RECORDS + 18]) {
                put(RECORDS + 64 + 24 * slice, length.saturating_mul(forgotten.saturating_add(1 + slice as u64)));
            }
        }
        header
    }
}

/// The format of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Own,
    Classic,
    Cuckoo,
    Valkey,
}

/// A place of fields: the header, or the part of a table.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Header,
    Part(usize),
}

/// Returns a header with the right checksum.
fn sealed_header(header: &[u8]) -> Vec<u8> {
    let body = &header[..header.len() - CHECKSUM_BYTES];
    [body, &xxh3_64(body).to_le_bytes()].concat()
}
