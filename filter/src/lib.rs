//! Bloom filters that grow. Plain Rust: no server, no clock, no global state, no I/O.
//!
//! A [`Filter`] remembers items in few bits each and answers "certainly not" or "probably" when asked for one. It is a
//! chain of layers; the newest takes new items, and when it is full a larger one follows:
//!
//! ```text
//!  Filter ── seed, error rate, growth
//!    └─ layers   ┌─────┐ ┌──────────┐ ┌────────────────────┐
//!                │ 100 │ │ 200      │ │ 400                │ ◄─ inserts      (expansion 2)
//!                └─────┘ └──────────┘ └────────────────────┘
//!       lookups ◄──────────────────────────────────────────
//! ```
//!
//! - [`chain`] is how layers together are asked, filled and grown;
//! - [`blocked`] is the native layer, on a [`table`] of cache lines, [`counting`]
//!   its like with counters, [`classic`] is RedisBloom's; [`storage`] is their memory;
//! - [`sizing`] turns an error rate and a capacity into the shape of a native layer;
//! - [`hash`] turns an item into 128 bits, and those into positions, with [`murmur`] for the classic layer;
//! - [`batch`] is how items are handled together, so that their cache misses overlap;
//! - [`merge`] makes one filter of several;
//! - [`codec`] turns a filter into bytes and back.
//!
//! ```
//! use oxbloom_filter::{Error, ErrorRate, Filter, Growth, Layout, Params};
//!
//! let params = Params {
//!     error_rate: ErrorRate::new(0.01).unwrap(),
//!     capacity: 1000.try_into().unwrap(),
//!     growth: Growth::By(2.try_into().unwrap()),
//!     layout: Layout::Native { seed: 42 },
//! };
//! let mut filter = Filter::new(params, |_bytes| true)?;
//! assert!(filter.insert(b"https://example.com/")?);
//! assert!(!filter.insert(b"https://example.com/")?);
//! assert!(filter.contains(b"https://example.com/"));
//! # Ok::<(), Error>(())
//! ```

pub mod batch;
pub mod blocked;
pub mod chain;
pub mod classic;
pub mod codec;
pub mod counting;
pub mod hash;
pub mod merge;
pub mod murmur;
pub mod sizing;
pub mod storage;
pub mod table;

use std::num::{NonZeroU32, NonZeroU64};
use std::ptr::NonNull;

use chain::{Chain, Layer};
use hash::{Hash, Hasher};

/// The most layers that a filter may have: with each, look-ups take longer. Filters that grow by a factor of 2 or more never
/// come near it.
pub const MAX_LAYERS: usize = 1 << 14;

/// The most items that a layer counts, 2.8 * 10^14: it is full then, whatever its capacity. A layer of so many would take 32
/// terabytes even at a bit an item. A larger count is forged, and would overflow the sum over all layers.
pub const MAX_ITEMS: u64 = 1 << 48;

/// Returns an empty vector with room for `count` elements.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if the memory is refused.
pub fn with_room<T>(count: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)?;
    Ok(values)
}

/// Why an operation on a filter failed. The filter is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The memory was refused, or cannot be addressed.
    OutOfMemory,
    /// The filter does not grow, and holds as many items as it was made for.
    Full,
    /// The filter is full, and has [`MAX_LAYERS`], or what it says of its growth leaves no room in another layer.
    CannotGrow,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::OutOfMemory => "not enough memory",
            Error::Full => "the filter is full",
            Error::CannotGrow => "the filter is full, and cannot grow as it is meant to",
        })
    }
}

impl std::error::Error for Error {}

/// The probability that an absent item is called present, above 0 and below 1.
///
/// Rates under `2^-64` are kept as if they were that.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ErrorRate(f64);

impl ErrorRate {
    /// `None` unless `0 < rate < 1`.
    pub const fn new(rate: f64) -> Option<ErrorRate> {
        if rate > 0.0 && rate < 1.0 { Some(ErrorRate(rate)) } else { None }
    }

    pub const fn get(self) -> f64 {
        self.0
    }
}

/// What happens when the newest layer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Inserts of new items are refused.
    Fixed,
    /// A layer follows that is so many times as large.
    By(NonZeroU32),
}

/// What a filter is created from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// The rate for the whole filter, however far it grows.
    pub error_rate: ErrorRate,
    /// The number of distinct items that fit before the filter grows or refuses.
    pub capacity: NonZeroU64,
    pub growth: Growth,
    pub layout: Layout,
}

/// How the bits lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In blocks of a cache line.
    Native {
        /// Filters of one shape and seed hold the same bits for the same items. Who knows it can craft collisions.
        seed: u64,
    },
    /// As native, with a counter in the place of each bit, so that items can be removed.
    Counting {
        /// As for native filters.
        seed: u64,
    },
    /// As in RedisBloom.
    Classic {
        /// What a filter that does not grow has for an expansion nevertheless: it is stored.
        noted_expansion: u32,
    },
}

/// A Bloom filter.
pub enum Filter {
    Native(Chain<blocked::Layer>),
    Counting(Chain<counting::Layer>),
    Classic(Chain<classic::Layer>),
}

/// Does the same with the chain of a filter, whatever its layout.
macro_rules! each {
    ($filter:expr, $chain:ident => $body:expr) => {
        match $filter {
            Filter::Native($chain) => $body,
            Filter::Counting($chain) => $body,
            Filter::Classic($chain) => $body,
        }
    };
}
use each;

impl Filter {
    /// An empty filter. `admit` is told the bytes it will take, and may refuse them.
    pub fn new(params: Params, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        let Params { error_rate, capacity, growth, layout } = params;
        match layout {
            Layout::Native { seed } => {
                let plan = table::Plan { seed, error_rate, growth };
                Chain::new(plan, blocked::Design::new(&plan, 0, capacity.get())?, admit).map(Filter::Native)
            }
            Layout::Counting { seed } => {
                let plan = table::Plan { seed, error_rate, growth };
                Chain::new(plan, counting::Design::new(&plan, 0, capacity.get())?, admit).map(Filter::Counting)
            }
            Layout::Classic { noted_expansion } => {
                let plan = classic::Plan::new(growth, noted_expansion);
                Chain::new(plan, plan.first(capacity.get(), error_rate.get())?, admit).map(Filter::Classic)
            }
        }
    }

    /// Adds a layer to a full filter. `admit` is told the bytes it will take, and may refuse them.
    pub fn grow(&mut self, admit: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        each!(self, chain => chain.grow(admit))
    }

    /// How the filter hashes its items.
    #[inline]
    pub fn hasher(&self) -> Hasher {
        each!(self, chain => chain.hasher())
    }

    /// The hash of an item, for the operations on many items.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        self.hasher().hash(item)
    }

    /// Whether the item is in the filter: `false` is certain, `true` is wrong at the error rate.
    pub fn contains(&self, item: &[u8]) -> bool {
        each!(self, chain => chain.contains(chain.hasher().hash(item)))
    }

    /// Inserts an item, growing as needed. `true` if it was new, `false` if it was there already (or seemed to be).
    pub fn insert(&mut self, item: &[u8]) -> Result<bool, Error> {
        let hash = self.hash(item);
        let mut new = [false];
        while self.insert_all(&[hash], &mut new) == 0 {
            self.grow(|_| true)?;
        }
        Ok(new[0])
    }

    /// Asks for the memory that [`contains_all`](Self::contains_all) or [`insert_all`](Self::insert_all) of these items
    /// looks at first.
    #[inline]
    fn prefetch(&self, hashes: &[Hash]) {
        each!(self, chain => chain.prefetch(hashes))
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` is in the filter.
    ///
    /// Fastest in batches, each of them [`Prepared`](batch::Prepared).
    #[inline]
    pub fn contains_all(&self, hashes: &[Hash], found: &mut [bool]) {
        each!(self, chain => chain.contains_all(hashes, found))
    }

    /// Inserts the items of `hashes` in order until one does not fit; `new[i]` tells whether the item was new.
    ///
    /// Returns how many were handled. If they were not all, the next one is new and the newest layer is full:
    /// [`grow`](Self::grow), and call again for the rest. Fastest in batches, each of them [`Prepared`](batch::Prepared).
    #[inline]
    pub fn insert_all(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        each!(self, chain => chain.insert_all(hashes, new))
    }

    /// As [`insert_all`](Self::insert_all), but leaves alone the items that are there already: a counting filter counts no
    /// further occurrence of them.
    #[inline(never)]
    pub fn insert_absent(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        match self {
            Filter::Counting(chain) => chain.insert_absent(hashes, new),
            filter => filter.insert_all(hashes, new),
        }
    }

    /// The filter as one that counts, if it is one.
    pub fn counting(&self) -> Option<&Chain<counting::Layer>> {
        if let Filter::Counting(chain) = self { Some(chain) } else { None }
    }

    /// As [`counting`](Self::counting), to remove items from.
    pub fn counting_mut(&mut self) -> Option<&mut Chain<counting::Layer>> {
        if let Filter::Counting(chain) = self { Some(chain) } else { None }
    }

    /// The seed of the hash. Classic filters all have the same, which is no secret.
    pub fn seed(&self) -> Option<u64> {
        match self {
            Filter::Native(chain) => Some(chain.plan().seed),
            Filter::Counting(chain) => Some(chain.plan().seed),
            Filter::Classic(_) => None,
        }
    }

    /// The error rate that was asked for, as far as it can be told: a classic filter knows that of its first layer.
    pub fn error_rate(&self) -> f64 {
        match self {
            Filter::Native(chain) => chain.plan().error_rate.get(),
            Filter::Counting(chain) => chain.plan().error_rate.get(),
            Filter::Classic(chain) => {
                let first = chain.layers().first().map_or(0.0, |layer| layer.design().error_rate);
                if chain.plan().options.is_fixed() { first } else { 2.0 * first }
            }
        }
    }

    /// How many times as large each further layer is. `None` if the filter does not grow.
    pub fn expansion(&self) -> Option<u32> {
        each!(self, chain => chain.plan().expansion())
    }

    /// The number of layers.
    pub fn depth(&self) -> usize {
        each!(self, chain => chain.layers().len())
    }

    /// What is known of each layer, oldest first.
    pub fn layers(&self) -> Box<dyn Iterator<Item = LayerFacts> + '_> {
        each!(self, chain => Box::new(chain.facts()))
    }

    /// The bits of each layer that has any set, or its counters, oldest first.
    pub fn bits(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        each!(self, chain => Box::new(chain.layers().iter().filter(|layer| layer.marked() > 0).map(Layer::bytes)))
    }

    /// The number of items that the layers together are made for.
    pub fn capacity(&self) -> u64 {
        each!(self, chain => chain.capacity())
    }

    /// The number of items that were new when they were inserted, and were not removed since.
    pub fn items(&self) -> u64 {
        each!(self, chain => chain.items())
    }

    /// Whether [`items`](Self::items) is an estimate from the fill, as after a merge. A classic filter does not note it.
    pub fn is_estimate(&self) -> Option<bool> {
        match self {
            Filter::Native(chain) => Some(chain.layers().iter().any(|layer| layer.counts().is_estimate())),
            Filter::Counting(chain) => Some(chain.layers().iter().any(|layer| layer.counts().count.is_estimate())),
            Filter::Classic(_) => None,
        }
    }

    /// Bytes asked of the allocator, for this value (in a box of its own) and all below it. For a classic filter, what
    /// RedisBloom says of it: some bytes less.
    pub fn memory_usage(&self) -> usize {
        match self {
            Filter::Native(chain) => size_of::<Filter>() + chain.allocated(),
            Filter::Counting(chain) => size_of::<Filter>() + chain.allocated(),
            Filter::Classic(chain) => {
                let bits: usize = chain.layers().iter().map(|layer| layer.bytes().len()).sum();
                classic::FILTER_BYTES + classic::LAYER_BYTES * chain.layers().len() + bits
            }
        }
    }

    /// The share of set bits, or of counters above zero.
    pub fn fill(&self) -> f64 {
        each!(self, chain => chain.fill())
    }

    /// The estimated probability, at the present fill, that an absent item is called present.
    pub fn false_positive_rate(&self) -> f64 {
        each!(self, chain => chain.false_positive_rate())
    }

    /// Where the newest layer is, if it has at least so many bytes, to prefetch items from.
    #[inline]
    pub fn outlook(&self, least_bytes: u64) -> Option<Outlook> {
        match self {
            Filter::Native(chain) => newest(chain, least_bytes)
                .map(|layer| Outlook::Native(table::Outlook::new(chain.plan(), layer.table()))),
            Filter::Counting(chain) => newest(chain, least_bytes)
                .map(|layer| Outlook::Native(table::Outlook::new(chain.plan(), layer.table()))),
            Filter::Classic(chain) => {
                newest(chain, least_bytes).map(|layer| Outlook::Classic(classic::Outlook::new(chain.plan(), layer)))
            }
        }
    }

    /// A copy that shares nothing.
    pub fn try_clone(&self) -> Result<Filter, Error> {
        match self {
            Filter::Native(chain) => chain.try_clone().map(Filter::Native),
            Filter::Counting(chain) => chain.try_clone().map(Filter::Counting),
            Filter::Classic(chain) => chain.try_clone().map(Filter::Classic),
        }
    }

    /// Lets `relocate` move the filter's allocations. It returns the new address, or `None` if it left the old one.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](storage::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        each!(self, chain => unsafe { chain.relocate(relocate) })
    }
}

/// What is known of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerFacts {
    pub bytes: u64,
    pub bits: u64,
    /// The width of the hash.
    pub hash_bits: u8,
    /// Bits that an item sets.
    pub probes: u32,
    /// Cache lines that an item touches, where that is known.
    pub lines: Option<u8>,
    pub capacity: u64,
    pub items: u64,
    /// The part of the filter's error rate that the layer may use up.
    pub error_rate: f64,
}

/// How and where a filter looks for an item first: good as a hint, for as long as anyone likes.
#[derive(Clone, Copy, Debug)]
pub enum Outlook {
    Native(table::Outlook),
    Classic(classic::Outlook),
}

impl Outlook {
    /// Brings the memory that an item is looked for in into the processor's cache.
    #[inline]
    pub fn prefetch(&self, item: &[u8]) {
        match self {
            Outlook::Native(outlook) => outlook.prefetch(item),
            Outlook::Classic(outlook) => outlook.prefetch(item),
        }
    }
}

/// The newest layer, if it has at least so many bytes.
#[inline]
fn newest<L: Layer>(chain: &Chain<L>, least_bytes: u64) -> Option<&L> {
    chain.layers().last().filter(|layer| layer.bytes().len() as u64 >= least_bytes)
}
