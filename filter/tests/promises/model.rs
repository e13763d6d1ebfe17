//! What the tests share: filters by plain numbers, and every way to copy one.

use std::collections::VecDeque;

use oxbloom_filter::internals::codec::native::{self, Chunk, Header};
use oxbloom_filter::internals::codec::{self, Origin, Sink, Source, classic};
use oxbloom_filter::internals::{
    BlockedLayer as Layer, Bytes, Chain, Chains, CreateParams, ErrorRate, Growth, Layer as _, Layout,
};
use oxbloom_filter::{DecodeError, Error, Filter};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) fn params(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> CreateParams {
    CreateParams {
        error_rate: ErrorRate::new(error_rate).unwrap(),
        capacity: capacity.try_into().unwrap(),
        growth,
        layout: Layout::Native { seed },
    }
}

pub(crate) fn filter(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> Filter {
    Filter::create(params(error_rate, capacity, growth, seed), |_| true).unwrap()
}

pub(crate) fn by(expansion: u32) -> Growth {
    Growth::By(expansion.try_into().unwrap())
}

/// The chain of a filter in the native layout.
pub(crate) fn chain(filter: &Filter) -> &Chain<Layer> {
    match filter.chains() {
        Chains::Native(chain) => chain,
        Chains::Counting(_) | Chains::Classic(_) => panic!("no filter of bits in cache lines"),
    }
}

/// The layers of a filter in the native layout.
pub(crate) fn layers(filter: &Filter) -> &[Layer] {
    chain(filter).layers()
}

/// The item of a number. Different numbers are different items.
pub(crate) fn item(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Inserts items in batches of the given sizes, over and over, growing in the middle of a batch where needed.
pub(crate) fn insert_in_batches(filter: &mut Filter, items: &[Vec<u8>], sizes: &[usize]) -> Vec<Result<bool, Error>> {
    let hashes: Vec<_> = items.iter().map(|item| filter.hash(item)).collect();
    let (mut rest, mut answers) = (hashes.as_slice(), Vec::new());
    for &size in sizes.iter().cycle() {
        let (mut batch, others) = rest.split_at(size.min(rest.len()));
        rest = others;
        while !batch.is_empty() {
            let mut new = vec![true; batch.len()];
            let handled = filter.insert_hashes(batch, &mut new);
            answers.extend(new[..handled].iter().map(|&new| Ok(new)));
            batch = &batch[handled..];
            if !batch.is_empty()
                && let Err(error) = filter.grow(|_| true)
            {
                answers.push(Err(error));
                batch = &batch[1..];
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    answers
}

/// All bits of a filter, oldest layer first.
pub(crate) fn bits(filter: &Filter) -> Vec<u8> {
    match filter.chains() {
        Chains::Native(chain) => chain.layers().iter().flat_map(|layer| layer.bytes()).copied().collect(),
        Chains::Counting(chain) => chain.layers().iter().flat_map(|layer| layer.bytes()).copied().collect(),
        Chains::Classic(chain) => chain.layers().iter().flat_map(|layer| layer.bytes()).copied().collect(),
    }
}

/// Header and bits: two filters that agree in these are the same filter.
pub(crate) fn whole(filter: &Filter) -> (Vec<u8>, Vec<u8>) {
    (codec::encode_header(filter).unwrap(), bits(filter))
}

/// The filter of a header, without bits.
pub(crate) fn built(header: &[u8]) -> Result<Filter, DecodeError> {
    codec::Header::decode(header, Origin::Client)?.build()
}

/// A header without its checksum.
pub(crate) fn body(filter: &Filter) -> Vec<u8> {
    let header = codec::encode_header(filter).unwrap();
    header[..header.len() - 8].to_vec()
}

pub(crate) fn with_checksum(body: &[u8]) -> Vec<u8> {
    [body, &xxh3_64(body).to_le_bytes()].concat()
}

/// A file in memory.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Unsigned(u64),
    Double(f64),
    String(Vec<u8>),
}

#[derive(Default)]
struct File(VecDeque<Value>);

impl Sink for File {
    fn unsigned(&mut self, number: u64) {
        self.0.push_back(Value::Unsigned(number));
    }

    fn double(&mut self, number: f64) {
        self.0.push_back(Value::Double(number));
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.push_back(Value::String(bytes.to_vec()));
    }
}

impl Source for File {
    type String = Vec<u8>;

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        match self.0.pop_front() {
            Some(Value::Unsigned(number)) => Ok(number),
            _ => Err(DecodeError::Corrupt),
        }
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        match self.0.pop_front() {
            Some(Value::Double(number)) => Ok(number),
            _ => Err(DecodeError::Corrupt),
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, DecodeError> {
        match self.0.pop_front() {
            Some(Value::String(bytes)) => Ok(bytes),
            _ => Err(DecodeError::Corrupt),
        }
    }

    fn array(&mut self, _bytes: u64) -> Result<Bytes, DecodeError> {
        let bytes = Source::string(self)?;
        let mut array = Bytes::zeroed(bytes.len() as u64)?;
        array.as_mut_slice().as_flattened_mut().copy_from_slice(&bytes);
        Ok(array)
    }
}

/// Writes a filter as an RDB file does, and reads it back.
pub(crate) fn through_a_file(filter: &Filter) -> Filter {
    let mut file = File::default();
    codec::write_rdb(filter, &mut file).unwrap();
    let copy = match filter.chains() {
        Chains::Native(_) | Chains::Counting(_) => native::read_rdb(&mut file, |_| true),
        Chains::Classic(_) => classic::read_rdb(classic::VERSION, &mut file, |_| true),
    };
    assert!(file.0.is_empty());
    copy.unwrap()
}

/// Loads a piece as a client does.
pub(crate) fn load(filter: &mut Filter, iterator: u64, data: &[u8]) -> Result<(), DecodeError> {
    codec::load_chunk(filter, iterator, data, Origin::Client).map(|_| ())
}

/// Copies a filter as a client does, one chunk a request, each with its iterator.
pub(crate) fn through_a_client(filter: &Filter) -> Filter {
    let header = Header::decode(&codec::encode_header(filter).unwrap()).unwrap();
    let mut copy = header.build().unwrap();
    let mut iterator = codec::HEADER_CURSOR;
    while let Some(piece) = codec::next_chunk(filter, iterator).unwrap() {
        assert!(piece.cursor > iterator);
        iterator = piece.cursor;
        load(&mut copy, iterator, &piece.data).unwrap();
    }
    assert!(header.matches_marked(&copy));
    copy
}

/// The first chunk of a filter.
pub(crate) fn first_chunk(filter: &Filter) -> Chunk<'_> {
    native::chunks(chain(filter)).next().unwrap()
}

/// What a filter asks of an allocator that aligns to cache lines.
pub(crate) fn memory_when_aligned(filter: &Filter) -> usize {
    let layers = layers(filter);
    let blocks: u64 = layers.iter().map(|layer| layer.array().shape().blocks).sum();
    size_of::<Filter>() + size_of_val(layers) + blocks as usize * 64
}
