//! Bytes from anywhere: as a walk's header, as a file, and as pieces that are loaded into a filter.
//!
//! Native headers and chunks carry checksums, which no fuzzer guesses. The targets put the right ones in, so that what is
//! behind them is reached.

use std::ops::Range;

use oxbloom_filter::internals::codec::native::{self, Chunk, NativeLayer};
use oxbloom_filter::internals::codec::{self, Header, Origin, Sink, Source, classic};
use oxbloom_filter::internals::sizing::Cell;
use oxbloom_filter::internals::{
    Bytes, Chain, Chains, CreateParams, ErrorRate, Growth, Hash, Layer, Layout, MAX_COUNT,
};
use oxbloom_filter::{DecodeError, Error, Filter};
use testkit::counting_model::CountingModel;
use xxhash_rust::xxh3::xxh3_64;

/// The most bytes of bits that a filter is built with. It may grow to twice as many.
pub const MEMORY_LIMIT: u64 = 256 << 10;

/// Items that are inserted into whatever can be built: more than a batch.
const ITEMS: u64 = 48;

/// The filters that count, of those that the `pieces` target starts with.
pub const COUNTING_KINDS: Range<u8> = 9..12;

/// The bytes are a header.
pub fn header(bytes: &[u8]) {
    let bytes = &sealed(bytes);
    let Some(mut filter) = Header::decode(bytes, Origin::Client).ok().and_then(|header| built(&header)) else { return };
    // A native header says how many cells are marked, and there are none yet.
    let is_whole = matches!(filter.chains(), Chains::Classic(_));
    assert!(!is_whole || codec::encode_header(&filter).unwrap() == *bytes);
    use_in_every_way(&mut filter);
    check_same(&filter, &through_a_walk(&filter));
}

/// The first byte tells what the others are a file of: to 6 a classic filter of this version, 7 a native or counting filter,
/// more one to which the right checksums and numbers of marked cells are given.
pub fn file(bytes: &[u8]) {
    let Some((&kind, file)) = bytes.split_first() else { return };
    let loaded = match kind {
        0..=6 => load_classic(kind.into(), file),
        7 => load_native(file),
        _ => sealed_file(file).and_then(|file| load_native(&file)),
    };
    let Ok(mut filter) = loaded else { return };
    if kind == 4 {
        // All but the sum of the layers' items, which is not looked at.
        let saved = saved(&filter);
        assert!(saved[8..] == file[8..saved.len()]);
    }
    use_in_every_way(&mut filter);
    check_same(&filter, &through_a_walk(&filter));
}

/// The first two bytes choose a filter and how many items it starts with, the others are operations on it.
pub fn pieces(bytes: &[u8]) {
    let mut rest = Reader(bytes);
    if let Some(mut subject) = Subject::new(&mut rest) {
        while subject.step(&mut rest).is_some() {}
        subject.check_held();
        check_figures(&subject.filter);
    }
}

/// Asks a filter everything, gives it items while they take little memory, and copies it.
fn use_in_every_way(filter: &mut Filter) {
    check_figures(filter);
    let before: Vec<bool> = (0..ITEMS).map(|number| filter.contains(item(number))).collect();
    let inserted = insert(filter, Filter::insert_hashes, 0..ITEMS);
    assert!((0..inserted).all(|number| filter.contains(item(number))));
    assert!((inserted..ITEMS).all(|number| !before[number as usize] || filter.contains(item(number))));
    // All is known now, and changes nothing.
    let after = whole(filter);
    assert!(insert(filter, Filter::insert_absent_hashes, 0..inserted) == inserted);
    assert!(whole(filter) == after);
    count_again(filter, 0..inserted);

    check_figures(filter);
    check_batches(filter);
    check_same(filter, &filter.try_clone().expect("a copy"));
    check_same(filter, &through_a_file(filter));
    if let Some(prefetch_hint) = filter.prefetch_hint(1) {
        prefetch_hint.prefetch(&item(0));
    }

    if filter.counting().is_some() {
        let depth = filter.num_layers();
        remove(filter, 0..inserted);
        // What was there before still is, unless a header lied and its layer was taken for empty.
        let is_there = |number| filter.contains(item(number)) || !before[number as usize];
        assert!(filter.num_layers() < depth || (0..ITEMS).all(is_there));
        check_figures(filter);
    }
}

/// Adds another occurrence of items that are there, if the filter counts them, and removes it.
fn count_again(filter: &mut Filter, numbers: Range<u64>) {
    if filter.counting().is_some() {
        assert!(insert(filter, Filter::insert_hashes, numbers.clone()) == numbers.end - numbers.start);
        assert!(numbers.clone().all(|number| count(filter, number) >= 2));
        remove(filter, numbers.clone());
        assert!(numbers.clone().all(|number| count(filter, number) >= 1));
    }
}

/// How often an item is in a counting filter.
fn count(filter: &Filter, number: u64) -> u8 {
    filter.counting().expect("counters").count(filter.hash(&item(number)))
}

/// Removes an occurrence of each of the items, which must be in a counting filter.
fn remove(filter: &mut Filter, mut numbers: Range<u64>) {
    let hasher = filter.hasher();
    let chain = filter.counting_mut().expect("counters");
    assert!(numbers.all(|number| chain.remove(hasher.hash(&item(number)))));
}

/// What inserts a batch: [`Filter::insert_hashes`], or [`Filter::insert_absent_hashes`].
type Insert = fn(&mut Filter, &[Hash], &mut [bool]) -> usize;

/// Inserts items until one does not fit. How many did.
fn insert(filter: &mut Filter, insert_some: Insert, numbers: Range<u64>) -> u64 {
    let hashes: Vec<_> = numbers.map(|number| filter.hash(&item(number))).collect();
    let mut handled = 0;
    loop {
        let rest = &hashes[handled..];
        handled += insert_some(filter, rest, &mut vec![true; rest.len()]);
        if handled == hashes.len() {
            return handled as u64;
        }
        let (before, present) = (whole(filter), filter.layers().map(|layer| layer.bytes).sum::<u64>());
        if let Err(error) = filter.grow(|bytes| present.saturating_add(bytes) <= 2 * MEMORY_LIMIT) {
            assert!((error == Error::Full) == filter.expansion().is_none());
            assert!(whole(filter) == before);
            return handled as u64;
        }
    }
}

/// What INFO and the like say of a filter is possible.
fn check_figures(filter: &Filter) {
    let layers: Vec<_> = filter.layers().collect();
    assert_eq!(layers.len(), filter.num_layers());
    assert_eq!(layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.items)), filter.len());
    assert_eq!(layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.capacity)), filter.capacity());
    let bytes: u64 = layers.iter().map(|layer| layer.bytes).sum();
    assert!(filter.memory_usage() as u64 > bytes);
    assert!((0.0..=1.0).contains(&filter.fill()), "{}", filter.fill());
    assert!((0.0..=1.0).contains(&filter.false_positive_rate()), "{}", filter.false_positive_rate());
    assert_eq!(bits(filter).len() as u64, bytes);
    assert!(counts_are_right(filter));
}

/// Items that are asked for together are answered as they are one by one.
fn check_batches(filter: &Filter) {
    let items: Vec<_> = (0..2 * ITEMS).map(item).collect();
    let mut items = items.iter().map(|item| item.as_slice()).peekable();
    let mut number = 0;
    while items.peek().is_some() {
        let prepared = filter.hash_batch(&mut items);
        let mut found = vec![false; prepared.hashes().len()];
        filter.contains_hashes(prepared.hashes(), &mut found);
        for found in found {
            assert_eq!(found, filter.contains(item(number)));
            number += 1;
        }
    }
}

/// The copy is the same filter.
fn check_same(filter: &Filter, copy: &Filter) {
    assert!(whole(copy) == whole(filter));
    assert!(counts_are_right(copy));
    assert!((0..2 * ITEMS).all(|number| copy.contains(item(number)) == filter.contains(item(number))));
}

fn counts_are_right(filter: &Filter) -> bool {
    fn right<L: Layer>(layer: &L, cell: Cell) -> bool {
        layer.marked() == marked(cell, layer.bytes())
    }
    match filter.chains() {
        Chains::Native(chain) => chain.layers().iter().all(|layer| right(layer, Cell::Bit)),
        Chains::Counting(chain) => {
            chain.layers().iter().all(|layer| right(layer, Cell::Counter) && layer.stuck() == stuck(layer.bytes()))
        }
        Chains::Classic(chain) => chain.layers().iter().all(|layer| right(layer, Cell::Bit)),
    }
}

/// How many bits are set, or counters above zero.
fn marked(cell: Cell, bytes: &[u8]) -> u64 {
    match cell {
        Cell::Bit => bytes.iter().map(|byte| u64::from(byte.count_ones())).sum(),
        Cell::Counter => counters(bytes).filter(|&count| count > 0).count() as u64,
    }
}

fn stuck(bytes: &[u8]) -> u64 {
    counters(bytes).filter(|&count| count == MAX_COUNT).count() as u64
}

fn counters(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().flat_map(|byte| [byte & 15, byte >> 4])
}

/// The item of a number, of various lengths.
pub fn item(number: u64) -> Vec<u8> {
    number.to_string().repeat(1 + number as usize % 4).into_bytes()
}

/// All bits of a filter, oldest layer first.
fn bits(filter: &Filter) -> Vec<u8> {
    match filter.chains() {
        Chains::Native(chain) => chain.layers().iter().flat_map(Layer::bytes).copied().collect(),
        Chains::Counting(chain) => chain.layers().iter().flat_map(Layer::bytes).copied().collect(),
        Chains::Classic(chain) => chain.layers().iter().flat_map(Layer::bytes).copied().collect(),
    }
}

/// Header and bits: two filters that agree in these are the same filter.
fn whole(filter: &Filter) -> (Vec<u8>, Vec<u8>) {
    (codec::encode_header(filter).unwrap(), bits(filter))
}

/// The filter of a header, if it is small.
fn built(header: &Header) -> Option<Filter> {
    (header.memory() <= MEMORY_LIMIT).then(|| header.build().expect("little memory"))
}

/// A filter without bits, from the header of this one.
fn emptied(filter: &Filter) -> Filter {
    let header = Header::decode(&codec::encode_header(filter).unwrap(), Origin::Replication).expect("a sound header");
    let empty = header.build().expect("little memory");
    assert!(empty.layers().eq(filter.layers()));
    assert_eq!((empty.seed(), empty.expansion()), (filter.seed(), filter.expansion()));
    assert_eq!(empty.error_rate(), filter.error_rate());
    empty
}

/// Copies a filter as a client does, piece after piece.
fn through_a_walk(filter: &Filter) -> Filter {
    let mut copy = emptied(filter);
    let mut iterator = codec::HEADER_CURSOR;
    while let Some(piece) = codec::next_chunk(filter, iterator).expect("little memory") {
        assert!(piece.cursor > iterator);
        iterator = piece.cursor;
        let loaded = codec::load_chunk(&mut copy, iterator, &piece.data, Origin::Client);
        assert_eq!(loaded.map(|loaded| loaded.bytes), Ok(&*piece.data));
    }
    copy
}

fn through_a_file(filter: &Filter) -> Filter {
    let file = saved(filter);
    let mut reader = Reader(&file);
    let copy = match filter.chains() {
        Chains::Native(_) | Chains::Counting(_) => native::read_rdb(&mut reader, |_| true),
        Chains::Classic(_) => classic::read_rdb(classic::VERSION, &mut reader, |_| true),
    };
    assert!(reader.0.is_empty());
    copy.expect("a sound file")
}

fn saved(filter: &Filter) -> Vec<u8> {
    let mut file = Writer::default();
    codec::write_rdb(filter, &mut file).unwrap();
    file.0
}

fn load_native(file: &[u8]) -> Result<Filter, DecodeError> {
    native::read_rdb(&mut Reader(file), |bytes| bytes <= MEMORY_LIMIT)
}

fn load_classic(version: u32, file: &[u8]) -> Result<Filter, DecodeError> {
    classic::read_rdb(version, &mut Reader(file), |bytes| bytes <= MEMORY_LIMIT)
}

/// A file as bytes: numbers and doubles in eight, strings behind their length in four, all little-endian.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Sink for Writer {
    fn unsigned(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn double(&mut self, number: f64) {
        self.unsigned(number.to_bits());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
}

/// Reads what [`Writer`] writes, and other numbers.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

impl<'a> Source for Reader<'a> {
    type String = &'a [u8];

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        self.u64().ok_or(DecodeError::Corrupt)
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        self.unsigned().map(f64::from_bits)
    }

    fn string(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.array().map(u32::from_le_bytes).ok_or(DecodeError::Corrupt)?;
        self.take(length as usize).ok_or(DecodeError::Corrupt)
    }

    fn array(&mut self, _bytes: u64) -> Result<Bytes, DecodeError> {
        let string = self.string()?;
        let mut array = Bytes::zeroed(string.len() as u64)?;
        array.as_mut_slice().as_flattened_mut().copy_from_slice(string);
        Ok(array)
    }
}

/// A native header with the right checksum, or whatever else it is, as it is.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    match bytes.split_last_chunk::<8>() {
        Some((body, _)) if body.starts_with(b"OXB") => [body, &xxh3_64(body).to_le_bytes()].concat(),
        _ => bytes.to_vec(),
    }
}

/// A native or counting file with the right checksums, but where a chunk has 0 for one, and the right numbers of marked
/// cells, but where a layer has none.
fn sealed_file(file: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut file = Reader(file);
    let mut header = sealed(file.string()?);
    let chunks = match built(&Header::decode(&header, Origin::Client)?).as_ref().map(Filter::chains) {
        Some(Chains::Native(chain)) => sealed_chunks(chain, &mut header, &mut file)?,
        Some(Chains::Counting(chain)) => sealed_chunks(chain, &mut header, &mut file)?,
        _ => return Err(DecodeError::Corrupt),
    };
    let mut whole = Writer::default();
    whole.string(&sealed(&header));
    Ok([whole.0, chunks.0].concat())
}

/// The chunks of a [`sealed_file`]. Their marked cells are noted in the header.
fn sealed_chunks<L: NativeLayer>(
    chain: &Chain<L>,
    header: &mut [u8],
    file: &mut Reader<'_>,
) -> Result<Writer, DecodeError> {
    let mut chunks = Writer::default();
    let mut start = 0;
    for (index, layer) in chain.layers().iter().enumerate() {
        let marked_at = 32 + (40 + L::EXTRA_BYTES) * index + 24;
        let expected = if header[marked_at..][..8] == [0; 8] { 0 } else { layer.bytes().len() };
        let (mut loaded, mut total) = (0, 0);
        while loaded < expected {
            let (bits, checksum) = (file.string()?, file.unsigned()?);
            let chunk = Chunk { offset: start + loaded as u64, bits };
            chunks.string(bits);
            chunks.unsigned(if checksum == 0 { 0 } else { chunk.checksum(chain) });
            loaded += bits.len();
            total += marked(L::CELL, bits);
        }
        header[marked_at..][..8].copy_from_slice(&total.to_le_bytes());
        start += layer.bytes().len() as u64;
    }
    Ok(chunks)
}

/// A filter that pieces are loaded into.
struct Subject {
    filter: Filter,
    /// The numbers of the items that must be in it.
    model: CountingModel<u64>,
    /// A piece of a counting filter from before it was first written to.
    outdated: Option<(u64, Vec<u8>)>,
}

impl Subject {
    fn new(rest: &mut Reader<'_>) -> Option<Subject> {
        let (kind, items) = (rest.u8()?, rest.u8()?);
        let mut subject = Subject { filter: filter_of_kind(kind), model: CountingModel::default(), outdated: None };
        (0..items.into()).for_each(|number| subject.insert(number));
        Some(subject)
    }

    /// One operation. `None` when there are no more.
    fn step(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let operation = rest.u8()?;
        let origin = if operation & 0x80 == 0 { Origin::Client } else { Origin::Replication };
        let reference = (operation >> 4) & 7;
        match operation & 0xF {
            code @ 0..4 if self.filter.counting().is_some() => {
                let (times, number) = (1 + (operation >> 4), rest.u16()?.into());
                self.write(|subject| match code {
                    0 => (0..times).for_each(|_| subject.insert(number)),
                    1 => subject.insert_absent_hashes(number),
                    2 => (0..times).for_each(|_| subject.remove(number as usize)),
                    _ => subject.check_count(number),
                });
            }
            0..4 => self.insert(rest.u16()?.into()),
            4..6 => check_same(&self.filter, &through_a_walk(&self.filter)),
            6..9 => {
                let iterator = self.iterator(reference, rest)?;
                self.ask(iterator);
            }
            9..12 => {
                let (iterator, length) = (self.iterator(reference, rest)?, rest.u16()?);
                let data = rest.take(rest.0.len().min(length.into()))?;
                self.load(iterator, data, origin);
            }
            12..14 => {
                let (offset, length) = (u64::from(rest.u8()?), u16::from(rest.u8()?));
                let unit = if let Chains::Classic(_) = self.filter.chains() { 8 } else { 64 };
                let data = rest.take(rest.0.len().min((length * unit / 8).into()))?;
                self.load_sealed(offset * u64::from(unit), data, origin);
            }
            _ => {
                let (kind, items) = (rest.u8()?, rest.u8()?);
                self.load_another(&filter_of_kind(kind), items.into(), origin);
            }
        }
        Some(())
    }

    /// Any number, or one near to where pieces are.
    fn iterator(&self, reference: u8, rest: &mut Reader<'_>) -> Option<u64> {
        let end = 1 + bits(&self.filter).len() as u64;
        let near = |place: u64, rest: &mut Reader<'_>| {
            rest.u8().map(|distance| place.wrapping_add_signed(i64::from(distance.cast_signed())))
        };
        match reference & 3 {
            0 => rest.u64(),
            1 => rest.u16().map(u64::from),
            2 => rest.u16().map(|offset| native::FIRST_CHUNK_CURSOR + u64::from(offset)),
            _ if reference & 4 == 0 => near(end, rest),
            _ => near(native::FIRST_CHUNK_CURSOR + end - 1, rest),
        }
    }

    fn insert(&mut self, number: u64) {
        if insert(&mut self.filter, Filter::insert_hashes, number..number + 1) == 1 {
            self.model.add(number);
            assert!(self.filter.contains(item(number)));
        }
    }

    /// Whatever is written to a counting filter, a piece from before is refused from then on.
    fn write(&mut self, write: impl FnOnce(&mut Subject)) {
        let before = whole(&self.filter);
        let piece = codec::next_chunk(&self.filter, codec::HEADER_CURSOR).expect("little memory");
        let piece = piece.map(|piece| (piece.cursor, piece.data.into_owned()));
        write(self);
        let after = whole(&self.filter);
        if after != before && self.outdated.is_none() {
            self.outdated = piece;
        }
        if let Some((iterator, data)) = &self.outdated {
            assert!(codec::load_chunk(&mut self.filter, *iterator, data, Origin::Replication).is_err());
            assert!(whole(&self.filter) == after);
        }
    }

    fn insert_absent_hashes(&mut self, number: u64) {
        let (before, is_there) = (whole(&self.filter), self.filter.contains(item(number)));
        let inserted = insert(&mut self.filter, Filter::insert_absent_hashes, number..number + 1) == 1;
        assert!(!is_there || (inserted && whole(&self.filter) == before));
        if inserted && !is_there {
            assert!(!self.model.contains(&number));
            self.model.add(number);
            assert!(self.filter.contains(item(number)));
        }
    }

    /// Removes an occurrence of one of the items that are held. Others may not be removed.
    fn remove(&mut self, index: usize) {
        let count = self.model.items().len().max(1);
        let Some(number) = self.model.items().nth(index % count).copied() else { return };
        remove(&mut self.filter, number..number + 1);
        self.model.remove(&number);
    }

    fn check_count(&self, number: u64) {
        let count = count(&self.filter, number);
        assert!(count <= MAX_COUNT && (count > 0) == self.filter.contains(item(number)));
        self.check_held();
    }

    /// What was inserted and not removed is there, as often as it was.
    fn check_held(&self) {
        assert!(self.model.items().all(|&number| self.filter.contains(item(number))));
        if self.filter.counting().is_some() {
            let is_enough = |number: &u64| self.model.allows(number, count(&self.filter, *number).into());
            assert!(self.model.items().all(is_enough));
        }
    }

    /// Whatever piece there is loads into an empty filter, where it belongs.
    fn ask(&self, iterator: u64) {
        let Some(piece) = codec::next_chunk(&self.filter, iterator).expect("little memory") else { return };
        let mut copy = emptied(&self.filter);
        let loaded = codec::load_chunk(&mut copy, piece.cursor, &piece.data, Origin::Replication);
        assert_eq!(loaded.map(|loaded| loaded.bytes), Ok(&*piece.data));
        assert!(counts_are_right(&copy));
        assert!(bits(&copy).iter().zip(bits(&self.filter)).all(|(&copied, bits)| copied == 0 || copied == bits));
    }

    fn load(&mut self, iterator: u64, data: &[u8], origin: Origin) {
        let before = whole(&self.filter);
        let replaces = match self.filter.chains() {
            Chains::Native(_) => false,
            Chains::Counting(_) => true,
            Chains::Classic(_) => origin == Origin::Replication,
        };
        match codec::load_chunk(&mut self.filter, iterator, data, origin) {
            Ok(loaded) => {
                assert!(loaded.bytes.len() == data.len());
                assert!(loaded.bytes.iter().zip(data).all(|(&loaded, &data)| loaded & data == data));
                assert!(!replaces || loaded.bytes == data);
                let changed = loaded.changed;
                assert_eq!(changed, whole(&self.filter) != before);
                if self.filter.counting().is_some() {
                    self.follow_counters(before.1, iterator, data);
                } else if replaces {
                    self.model.retain(|&number| self.filter.contains(item(number)));
                } else {
                    let before = before.1.iter().zip(bits(&self.filter));
                    assert!(before.into_iter().all(|(&before, after)| before & after == before));
                    self.check_held();
                }
            }
            Err(_) => assert!(whole(&self.filter) == before),
        }
        assert!(counts_are_right(&self.filter));
    }

    /// The counters of a piece are in its place now, and all others as they were. What they hold is not known.
    fn follow_counters(&mut self, before: Vec<u8>, iterator: u64, piece: &[u8]) {
        let mut after = before.clone();
        let (counters, _tag_and_checksum) = piece.split_last_chunk::<16>().expect("a tag and a checksum");
        let end = (iterator - native::FIRST_CHUNK_CURSOR) as usize;
        after[end - counters.len()..end].copy_from_slice(counters);
        assert!(bits(&self.filter) == after);
        if after != before {
            self.model = CountingModel::default();
        }
    }

    /// Bits at an offset, with the iterator and the checksum that make a piece of them.
    fn load_sealed(&mut self, offset: u64, bits: &[u8], origin: Origin) {
        let (iterator, piece) = match self.filter.chains() {
            Chains::Native(chain) => {
                let chunk = Chunk { offset, bits };
                (chunk.cursor(), native::encode_chunk(chain, chunk).expect("little memory"))
            }
            Chains::Counting(chain) => {
                let chunk = Chunk { offset, bits };
                (chunk.cursor(), native::encode_chunk(chain, chunk).expect("little memory"))
            }
            Chains::Classic(_) => (1 + offset + bits.len() as u64, bits.to_vec()),
        };
        self.load(iterator, &piece, origin);
    }

    /// The pieces of another filter, of other items.
    fn load_another(&mut self, other: &Filter, items: u64, origin: Origin) {
        let mut other = other.try_clone().expect("little memory");
        insert(&mut other, Filter::insert_hashes, 1000..1000 + items);
        let mut iterator = codec::HEADER_CURSOR;
        while let Some(piece) = codec::next_chunk(&other, iterator).expect("little memory") {
            iterator = piece.cursor;
            self.load(iterator, &piece.data, origin);
        }
    }
}

/// A small filter of any layout.
fn filter_of_kind(kind: u8) -> Filter {
    let native = Layout::Native { seed: 7 };
    let counting = Layout::Counting { seed: 7 };
    let classic = Layout::Classic { stored_expansion: 2 };
    // Higher numbers go round without those that count, which came later: what had been found keeps its meaning.
    let kind = if kind < COUNTING_KINDS.end { kind } else { kind % COUNTING_KINDS.start };
    let (error_rate, capacity, expansion, layout) = match kind {
        0 => (0.01, 20, 2, native),
        1 => (0.001, 5, 1, native),
        2 => (0.01, 300, 0, native),
        3 | 4 => (0.01, 20, 2, classic),
        5 => (0.3, 5, 1, classic),
        6 => (0.01, 300, 0, classic),
        7 => (1e-9, 1, 3, classic),
        8 => (2.0 * f64::MIN_POSITIVE * f64::EPSILON, 3, 2, classic),
        9 => (0.01, 20, 2, counting),
        10 => (0.3, 40, 1, counting),
        _ => (0.01, 300, 0, counting),
    };
    let params = CreateParams {
        error_rate: ErrorRate::new(error_rate).expect("an error rate"),
        capacity: capacity.try_into().expect("a capacity"),
        growth: std::num::NonZeroU32::new(expansion).map_or(Growth::Fixed, Growth::By),
        layout,
    };
    let filter = Filter::create(params, |_| true).expect("little memory");
    if kind == 4 { aged(&filter) } else { filter }
}

/// A classic filter as of before RedisBloom 2.0: with 32 bits of hash, and layers that are rounded up to powers of two.
fn aged(filter: &Filter) -> Filter {
    let mut header = codec::encode_header(filter).unwrap();
    header[12..16].fill(0);
    Header::decode(&header, Origin::Client).and_then(|header| header.build()).expect("a sound header")
}
