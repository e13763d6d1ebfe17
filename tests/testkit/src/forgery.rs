//! Forged bytes of filters: the fields of headers and chunks, their limits, and values that overflow sums; and tables
//! of entries that no additions make.
//!
//! The formats are those of `filter/src/stored` and `filter/src/table/stored.rs`. [`classic`] and [`cuckoo`] have those
//! of RedisBloom, and [`valkey`] that of valkey-bloom.

mod classic;
mod cuckoo;
mod valkey;

use std::num::{NonZeroU32, NonZeroU64};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::chunk::{self, FIRST_CHUNK_CURSOR};
use oxbloom_filter::internals::codec::{self, HEADER_CURSOR, Header, Origin, header, packing};
use oxbloom_filter::internals::{
    Content, CreateParams, CuckooSpec, ErrorRate, FIXED_SEED, Growth, InsertOptions, Layout, OnDuplicate, Window,
    end_of,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::payload::Part;

/// The number of quotients in a group.
pub const GROUP: usize = 64;
const LOG_GROUP: u32 = 6;

/// The position after all paths of a table.
const END: u64 = 1 << 48;

/// The bytes of a part of a table before its first segment.
const PLACES: usize = 16;

/// The offset of the slots and the segments in the record of a table. Both follow from the chunks.
const SLOTS: usize = 16;
const RECORD_BYTES: usize = 48;
const CHECKSUM_BYTES: usize = 8;

/// The start of the records in a header.
const RECORDS: usize = 32;

const MAX_ITEMS: u64 = 1 << 48;
const MAX_SLICE: u64 = 1 << 52;
const MAX_LENGTH: u64 = 100 * 36525 * 24 * 3600 * 10;

/// Values near the limits of decoders, and values that overflow when others are added to them or multiply them.
const OVERFLOWING: [u64; 20] = [
    (1 << 32) - 1,
    1 << 32,
    (1 << 48) - 3,
    (1 << 48) - 2,
    (1 << 48) - 1,
    1 << 48,
    (1 << 48) + 1,
    (1 << 52) - 8,
    (1 << 52) - 1,
    1 << 52,
    (1 << 52) + 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    (1 << 63) | (1 << 48),
    (1 << 63) | ((1 << 48) - 1),
    u64::MAX - 3,
    u64::MAX - 2,
    u64::MAX - 1,
    u64::MAX,
];

/// Doubles that no rate and no number of bits is, or that are at a limit of these.
const DOUBLES: [f64; 12] = [
    -0.0,
    f64::MIN_POSITIVE / 2.0,
    f64::MIN_POSITIVE,
    f64::EPSILON,
    1.0 - f64::EPSILON / 2.0,
    2.0,
    f64::MAX,
    f64::INFINITY,
    f64::NAN,
    -1.0,
    f64::MIN,
    f64::NEG_INFINITY,
];

/// A number in a header, or in the first chunk of a table.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// The offset in bytes, and the number of bytes.
    pub at: usize,
    pub width: usize,
    /// The largest valid value.
    pub limit: u64,
    /// True if the bytes are those of a double.
    pub is_double: bool,
}

impl Field {
    fn new(name: &'static str, at: usize, width: usize, limit: u64) -> Field {
        Field { name, at, width, limit, is_double: false }
    }

    /// Returns the number at the start of the bytes.
    fn number(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    fn get(&self, bytes: &[u8]) -> u64 {
        let mut number = [0; 8];
        number[..self.width].copy_from_slice(&bytes[self.at..self.at + self.width]);
        u64::from_le_bytes(number)
    }

    fn set(&self, bytes: &mut [u8], value: u64) {
        bytes[self.at..self.at + self.width].copy_from_slice(&value.to_le_bytes()[..self.width]);
    }

    /// Returns the values to try: 0, 1, those near the limit and near the present value, and those that overflow.
    fn values(&self, bytes: &[u8]) -> Vec<u64> {
        let (present, max) = (self.get(bytes), u64::MAX >> (64 - 8 * self.width));
        let near = |value: u64| [value.wrapping_sub(1), value, value.wrapping_add(1)];
        let mut values = [&[0, 1], &near(self.limit)[..], &near(present), &OVERFLOWING].concat();
        values.extend(DOUBLES.map(f64::to_bits).iter().filter(|_| self.is_double));
        values.retain(|&value| value <= max && value != present);
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// The kinds of filters to forge.
pub const KINDS: [Kind; 25] = [
    Kind { name: "native", error_rate: 0.01, capacity: 300, expansion: 2, items: 20 },
    Kind { name: "native, grown", error_rate: 0.01, capacity: 20, expansion: 2, items: 60 },
    Kind { name: "counting", error_rate: 0.01, capacity: 20, expansion: 2, items: 40 },
    Kind { name: "counting, short", error_rate: 0.5, capacity: 20, expansion: 2, items: 40 },
    Kind { name: "counting, fixed", error_rate: 0.01, capacity: 300, expansion: 0, items: 40 },
    Kind { name: "by time", error_rate: 0.01, capacity: 300, expansion: 0, items: 40 },
    Kind { name: "by time, grown", error_rate: 0.01, capacity: 20, expansion: 2, items: 60 },
    Kind { name: "by time, empty", error_rate: 0.01, capacity: 20, expansion: 2, items: 0 },
    Kind { name: "by time, renewed", error_rate: 0.01, capacity: 20, expansion: 1, items: 60 },
    Kind { name: "rolling", error_rate: 0.01, capacity: 30, expansion: 0, items: 70 },
    Kind { name: "rolling by time", error_rate: 0.01, capacity: 30, expansion: 0, items: 70 },
    Kind { name: "rolling by time, renewed", error_rate: 0.01, capacity: 30, expansion: 0, items: 70 },
    Kind { name: "classic", error_rate: 0.01, capacity: 30, expansion: 2, items: 40 },
    Kind { name: "classic, grown", error_rate: 0.01, capacity: 5, expansion: 1, items: 60 },
    Kind { name: "classic, fixed", error_rate: 0.01, capacity: 100, expansion: 0, items: 40 },
    Kind { name: "classic, old", error_rate: 0.01, capacity: 100, expansion: 2, items: 40 },
    Kind { name: "valkey", error_rate: 0.01, capacity: 30, expansion: 2, items: 40 },
    Kind { name: "valkey, grown", error_rate: 0.01, capacity: 5, expansion: 1, items: 60 },
    Kind { name: "valkey, fixed", error_rate: 0.01, capacity: 100, expansion: 0, items: 40 },
    Kind { name: "cuckoo", error_rate: 0.01, capacity: 100, expansion: 2, items: 40 },
    Kind { name: "cuckoo, grown", error_rate: 0.01, capacity: 8, expansion: 2, items: 60 },
    Kind { name: "cuckoo, fixed", error_rate: 0.01, capacity: 100, expansion: 0, items: 40 },
    Kind { name: "native cuckoo", error_rate: 0.01, capacity: 20, expansion: 2, items: 40 },
    Kind { name: "native cuckoo, fixed", error_rate: 0.01, capacity: 300, expansion: 0, items: 40 },
    Kind { name: "cuckoo, converted", error_rate: 0.01, capacity: 20, expansion: 2, items: 60 },
];

/// The parameters of a filter, and its number of items. Its name tells its layout and options.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    error_rate: f64,
    capacity: u64,
    expansion: u32,
    items: u64,
}

impl Kind {
    /// Returns the filter. Its window has four slices and `window` milliseconds, and its items are added in the next
    /// milliseconds after `begin`, in a few slices.
    pub fn filter(&self, item: impl Fn(u64) -> Vec<u8>, begin: u64, window: u64) -> Filter {
        let growth = NonZeroU32::new(self.expansion).map_or(Growth::Fixed, Growth::By);
        let spec = CuckooSpec::new(growth, 4, 20).expect("a small expansion");
        let layout = match self.name.split(',').next() {
            Some("cuckoo") => Layout::Cuckoo { spec },
            Some("native cuckoo") => Layout::NativeCuckoo { seed: 7, spec },
            Some("native") => Layout::Native { seed: 7 },
            Some("counting") => Layout::Counting { seed: 7 },
            Some("classic") => Layout::Classic { stored_expansion: 2 },
            Some("valkey") => {
                Layout::Valkey { seed: FIXED_SEED, tightening: ErrorRate::new(0.5).expect("an error rate") }
            }
            _ => {
                let length = NonZeroU64::new(if self.name.contains("by time") { window } else { 0 });
                let (refresh, rolling) = (self.name.contains("renewed"), self.name.contains("rolling"));
                Layout::Windowed { seed: 7, window: Window { length, slices: 4, refresh, rolling } }
            }
        };
        let params = CreateParams {
            error_rate: ErrorRate::new(self.error_rate).expect("an error rate"),
            capacity: self.capacity.try_into().expect("a capacity"),
            growth,
            layout,
        };
        let mut filter = Filter::create(params, &mut |_| true).expect("little memory");
        if self.name.contains("old") {
            filter = without_options(&filter);
        }
        for number in 0..self.items {
            let hash = filter.hash(&item(number));
            let options = InsertOptions { now: begin + number / 20 * window / 5, ..OnDuplicate::Count.into() };
            let added = filter.insert_hashes(&[hash], &mut [false], &mut [false], &options, &mut |_| true);
            added.expect("little memory");
        }
        if self.name.contains("converted") {
            filter = filter.converted(&mut |_| true).expect("little memory").expect("a cuckoo filter");
        }
        filter
    }
}

/// Returns an empty classic filter as RedisBloom created it before 2.0: with 32-bit hashes, and layers rounded up to
/// powers of two.
pub fn without_options(filter: &Filter) -> Filter {
    let mut header = codec::encode_header(filter).expect("little memory");
    header[12..16].fill(0);
    Header::decode(&header, Origin::Client).and_then(|header| header.build()).expect("a sound header")
}

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

/// A forgery as a server and the library read it.
pub struct Sealed {
    /// The header and the chunks of a dump stream, with their cursors.
    pub stream: Vec<(u64, Vec<u8>)>,
    /// The values in an RDB file, and the version of their encoding.
    pub values: Vec<Part>,
    /// The value in an RDB file that has the header and the chunks in one string, for a filter of our own.
    pub short: Option<Part>,
    pub encoding: u64,
    /// The memory that the header claims, in bytes.
    pub memory: u64,
}

impl Sealed {
    /// Returns the number of bytes of the stream, or of the strings in a file if they have more.
    pub fn size(&self) -> usize {
        let strings = self.values.iter().map(|value| if let Part::String(bytes) = value { bytes.len() } else { 0 });
        self.stream.iter().map(|(_, chunk)| chunk.len()).sum::<usize>().max(strings.sum())
    }

    /// Returns the encoding of [`Filter::to_bytes`].
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"OXBLOOM\x01".to_vec();
        for (cursor, chunk) in &self.stream {
            bytes.extend_from_slice(&cursor.to_le_bytes());
            bytes.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
            bytes.extend_from_slice(chunk);
        }
        let checksum = xxh3_64(&bytes);
        [bytes, checksum.to_le_bytes().to_vec()].concat()
    }
}

impl Forgery {
    /// Takes the content of a filter whose tables have at most one chunk each.
    pub fn of(filter: &Filter) -> Forgery {
        if let Content::Classic(filter) = filter.content() {
            let header = classic::numbers_of(filter);
            let bits = filter.chain().iter().map(|layer| layer.bytes().to_vec()).collect();
            return Forgery::with_content(Format::Classic, header, bits, Vec::new());
        }
        if let Content::Cuckoo(filter) = filter.content() {
            let slots = filter.chain().iter().map(|layer| layer.slots().to_vec()).collect();
            return Forgery::with_content(Format::Cuckoo, cuckoo::numbers_of(filter), slots, Vec::new());
        }
        if let Content::Valkey(filter) = filter.content() {
            let bits = filter.chain().iter().map(|layer| layer.bytes().to_vec()).collect();
            return Forgery::with_content(Format::Valkey, valkey::numbers_of(filter), bits, Vec::new());
        }
        let mut chunks = codec::dump(filter).map(|chunk| chunk.expect("little memory").data.into_owned());
        let header = chunks.next().expect("a header");
        let mut contents = chunks.map(|mut chunk| {
            chunk.truncate(chunk.len() - 16);
            chunk
        });
        let bits = match filter.content() {
            Content::Native(filter) if filter.layer().set_bits() > 0 => contents.by_ref().take(1).collect(),
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
        if let Content::Native(native) = filter.content() {
            let end = native.layer().bytes().len() as u64;
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

/// Returns a header with the right checksum.
fn sealed_header(header: &[u8]) -> Vec<u8> {
    let body = &header[..header.len() - CHECKSUM_BYTES];
    [body, &xxh3_64(body).to_le_bytes()].concat()
}

/// Returns the first string in an RDB file, for a header without its checksum, and perhaps chunks.
pub fn first_string(bytes: &[u8]) -> Vec<u8> {
    let packed = packing::pack(bytes).expect("little memory");
    [&packed[..], &xxh3_64(&packed).to_le_bytes()].concat()
}

/// Returns the offsets of the numbers in a valid header that follow from the chunks: of set bits, slots and segments.
fn counts_of_content(header: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let set_bits = (header[4] == 0).then_some(RECORDS + 24);
    let sizes = table_records(header).into_iter().flat_map(|record| [record + SLOTS, record + SLOTS + 8]);
    set_bits.into_iter().chain(sizes)
}

/// Returns the fields of a valid header of one of our own filters. Of the slices of a window, only the oldest that has
/// items and the newest are there.
fn header_fields(header: &[u8]) -> Vec<Field> {
    let error_rate = Field::new("error rate", 24, 8, 1f64.to_bits());
    let mut fields = vec![Field { is_double: true, ..error_rate }];
    let mut add = |start: usize, described: &[(&'static str, usize, usize, u64)]| {
        fields.extend(described.iter().map(|&(name, at, width, limit)| Field::new(name, start + at, width, limit)));
    };
    add(0, &[("kind", 4, 1, 4), ("expansion", 8, 4, u32::MAX.into()), ("records", 12, 4, 2)]);
    add(0, &[("seed", 16, 8, u64::MAX)]);
    let capacity = ("capacity", 0, 8, i64::MAX as u64);
    let first_record = match header[4] {
        0 => {
            let blocks = ("blocks", 0, 8, 1 << 48);
            add(RECORDS, &[blocks, ("items", 16, 8, MAX_ITEMS), ("bits set", 24, 8, bits_of(header))]);
            add(RECORDS, &[("blocks per item", 32, 1, 16), ("probes", 33, 1, 255), ("words", 34, 1, 8)]);
            add(RECORDS + 8, &[capacity]);
            RECORDS + 40
        }
        2 => {
            add(RECORDS, &[capacity, ("history", 8, 8, u64::MAX)]);
            RECORDS + 16
        }
        4 => {
            add(RECORDS, &[capacity, ("history", 8, 8, u64::MAX)]);
            add(RECORDS + 16, &[("bucket size", 0, 2, 255), ("iterations", 2, 2, u16::MAX.into())]);
            add(RECORDS + 16, &[("figure of expansion", 4, 2, 32768), ("converted", 6, 2, 1)]);
            add(RECORDS + 24, &[("removals", 0, 8, u64::MAX)]);
            RECORDS + 32
        }
        _ => {
            add(RECORDS, &[capacity, ("window", 8, 8, MAX_LENGTH), ("slices", 16, 1, 64), ("flags", 17, 1, 3)]);
            add(RECORDS, &[("remembered", 18, 1, header[RECORDS + 18].into())]);
            add(RECORDS + 24, &[("forgotten", 0, 8, MAX_SLICE), ("latest", 8, 8, MAX_SLICE)]);
            add(RECORDS + 40, &[("history", 0, 8, u64::MAX), ("cursor", 8, 8, END - 1), ("cursor 2", 16, 8, END - 1)]);
            let (slices, number) = (RECORDS + 64, usize::from(header[RECORDS + 18]));
            if number > 0 {
                let has_items = |&slice: &usize| header[slices + 24 * slice + 8..][..16] != [0; 16];
                let filled = (0..number).find(has_items).unwrap_or(0);
                let oldest = [("oldest until", 0, 8, MAX_SLICE), ("oldest items", 8, 8, MAX_ITEMS)];
                let newest = [("newest until", 0, 8, MAX_SLICE), ("newest items", 8, 8, MAX_ITEMS)];
                add(slices + 24 * filled, &[oldest[0], oldest[1], ("oldest items 2", 16, 8, MAX_ITEMS)]);
                add(slices + 24 * (number - 1), &[newest[0], newest[1], ("newest items 2", 16, 8, MAX_ITEMS)]);
            }
            slices + 24 * number
        }
    };
    for start in records_from(header, first_record) {
        add(start, &[("table items", 0, 8, MAX_ITEMS), ("table occurrences", 8, 8, u64::MAX)]);
        add(start, &[("table slots", 16, 8, u32::MAX.into()), ("table segments", 24, 8, END)]);
        add(start, &[("level", 32, 1, 56), ("width", 33, 1, 56), ("shortest", 34, 1, 56), ("longer below", 35, 1, 25)]);
        add(start, &[("stamp bits", 36, 1, 8), ("scale", 40, 8, u64::MAX)]);
    }
    fields
}

/// Returns the number of bits of the blocks of a native filter.
fn bits_of(header: &[u8]) -> u64 {
    Field::number(&header[RECORDS..]).saturating_mul(64 * u64::from(header[RECORDS + 34]))
}

/// Returns the offsets of the records of tables in a valid header.
fn table_records(header: &[u8]) -> Vec<usize> {
    let first = match header[4] {
        0 => RECORDS + 40,
        2 => RECORDS + 16,
        4 => RECORDS + 32,
        _ => RECORDS + 64 + 24 * usize::from(header[RECORDS + 18]),
    };
    records_from(header, first).collect()
}

fn records_from(header: &[u8], first: usize) -> impl Iterator<Item = usize> + use<> {
    let end = header.len() - CHECKSUM_BYTES;
    (first..end).step_by(RECORD_BYTES)
}

/// Returns the fields of a part of a table.
fn part_fields(forgets: bool) -> Vec<Field> {
    let mut fields = vec![
        Field::new("part's start", 0, 8, END),
        Field::new("part's end", 8, 8, END),
        Field::new("depth", PLACES, 1, 42),
        Field::new("groups", PLACES + 1, 1, 5),
        Field::new("slots", PLACES + 2, 4, u32::MAX.into()),
    ];
    if forgets {
        fields.push(Field::new("segment's base", PLACES + 6, 8, MAX_SLICE));
        fields.push(Field::new("group's base", PLACES + 14, 1, 255));
    }
    fields
}

/// The parameters for the widths of a table's slots.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// The parameters of a table that does not grow. The width is 0 in a growing table.
    pub level: u32,
    pub width: u32,
    /// The parameters for the lengths of fingerprints.
    shortest: u32,
    longer_below: u32,
    stamp_bits: u32,
}

impl Widths {
    /// Reads them from the record of a table.
    pub fn of(record: &[u8]) -> Widths {
        let [level, width, shortest, longer_below, stamp_bits] = [32, 33, 34, 35, 36].map(|at| u32::from(record[at]));
        Widths { level, width, shortest, longer_below, stamp_bits }
    }

    /// Returns the depth of all segments of a table that does not grow, or 0.
    pub fn depth(&self) -> u32 {
        self.level.saturating_sub(LOG_GROUP + 5)
    }

    pub fn is_growing(&self) -> bool {
        self.width == 0
    }

    /// Returns the width of a slot at a level, in bits.
    pub fn width_at(&self, level: u32) -> u32 {
        let length = self.shortest + u32::from(level < self.longer_below);
        let length = (length + 14u32.saturating_sub(level) + level.saturating_sub(22).div_ceil(2)).min(56);
        if self.is_growing() { length + 1 } else { self.width }
    }
}

/// Entries that no additions make.
#[derive(Clone, Copy, Debug)]
pub enum Entries {
    /// An entry with these digits of its count, which stand for a count of three more.
    Digits(u128),
    /// Different entries in one quotient: the first, and their number.
    Run(u64, u64),
    /// In each quotient, an entry with this count, and with no bits of a fingerprint if the table grows.
    Void(u64),
}

/// All [`Entries`] to try.
pub const ENTRIES: [Entries; 28] = [
    Entries::Digits(0),
    Entries::Digits((1 << 48) - 4),
    Entries::Digits((1 << 48) - 3),
    Entries::Digits((1 << 48) - 2),
    Entries::Digits((1 << 63) - 3),
    Entries::Digits((1 << 64) - 5),
    Entries::Digits((1 << 64) - 4),
    Entries::Digits((1 << 64) - 3),
    Entries::Digits((1 << 64) - 2),
    Entries::Digits((1 << 64) - 1),
    Entries::Digits(1 << 64),
    Entries::Digits((1 << 64) + 1),
    Entries::Digits(1 << 65),
    Entries::Digits(u128::MAX >> 8),
    Entries::Run(1, 8),
    Entries::Run(1, 60),
    Entries::Run(1, 255),
    Entries::Run(1, 256),
    Entries::Run(1, 257),
    Entries::Run(1, 1000),
    Entries::Run(1, 4000),
    Entries::Run(1, 24_000),
    Entries::Void(1),
    Entries::Void(2),
    Entries::Void(3),
    Entries::Void(1 << 16),
    Entries::Void((1 << 48) - 1),
    Entries::Void(1 << 48),
];

impl Entries {
    /// Returns a part with the entries in its first segment, and otherwise empty segments. `base` is the base of the
    /// segment in a table that forgets.
    fn part(self, widths: &Widths, base: Option<u64>) -> Vec<u8> {
        // The numbers in the record may be forged, too.
        let stamp_bits = widths.stamp_bits.min(8);
        let depth = widths.depth().min(10);
        let log_groups = if widths.is_growing() { 1 } else { widths.level.saturating_sub(LOG_GROUP).min(5) };
        let width = widths.width_at(depth + log_groups + LOG_GROUP).clamp(2, 57 - stamp_bits);
        let mut runs = vec![Vec::new(); GROUP << log_groups];
        let last = 1 << (width - 1);
        match self {
            Entries::Digits(digits) => runs[5] = slots_of(last, digits, width),
            Entries::Run(first, number) => {
                runs[5] = (first..first + number).take_while(|&value| value < last).collect()
            }
            Entries::Void(count) => {
                let value = if widths.is_growing() { last } else { 1 };
                runs.fill(slots_of_count(value, count, width));
            }
        }
        let slots = runs.iter().map(Vec::len).sum::<usize>();
        let mut part = [0u64.to_le_bytes(), END.to_le_bytes()].concat();
        part.extend([depth as u8, log_groups as u8]);
        part.extend_from_slice(&(slots as u32).to_le_bytes());
        part.extend(base.into_iter().flat_map(u64::to_le_bytes));
        for group in runs.chunks(GROUP) {
            part.extend(base.map(|_| 0));
            let stamped: Vec<Vec<u64>> =
                group.iter().map(|run| run.iter().map(|slot| slot << stamp_bits).collect()).collect();
            write_group(&stamped, width + stamp_bits, &mut part);
        }
        (1..1 << depth).for_each(|_| part.extend([depth as u8, log_groups as u8, 0, 0, 0, 0]));
        part
    }
}

/// Returns the slots of an entry with a count.
pub fn slots_of_count(value: u64, count: u64, width: u32) -> Vec<u64> {
    match count {
        0 => vec![],
        1 | 2 => vec![value; count as usize],
        _ => slots_of(value, (count - 3).into(), width),
    }
}

/// Returns the slots of an entry with these digits, the lowest first.
fn slots_of(value: u64, mut left: u128, width: u32) -> Vec<u64> {
    let (mut slots, bits) = (vec![value, 0], width - 1);
    loop {
        let more = u64::from(left >> bits > 0);
        slots.push(left as u64 & ((1 << bits) - 1) | more << bits);
        left >>= bits;
        if more == 0 {
            return slots;
        }
    }
}

/// Writes a group: for each quotient, a zero and then a one for each of its slots; a last zero; and the slots, from the
/// end.
pub fn write_group(runs: &[Vec<u64>], width: u32, bytes: &mut Vec<u8>) {
    let mut upper = runs.iter().flat_map(|run| [&[false][..], &vec![true; run.len()]].concat()).collect::<Vec<_>>();
    upper.push(false);
    let slots = runs.concat();
    let mut lower = vec![false; (slots.len() * width as usize).next_multiple_of(8)];
    let length = lower.len();
    for (index, slot) in slots.iter().enumerate() {
        let first = length - (index + 1) * width as usize;
        (0..width as usize).for_each(|bit| lower[first + bit] = slot >> bit & 1 > 0);
    }
    for bits in upper.chunks(8).chain(lower.chunks(8)) {
        bytes.push(bits.iter().enumerate().map(|(bit, &is_set)| u8::from(is_set) << bit).sum());
    }
}
