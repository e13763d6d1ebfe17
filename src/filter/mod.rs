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
//! - [`sizing`] turns an error rate and a capacity into a layer's shape;
//! - [`hash`] turns an item into 128 bits, and those into positions;
//! - [`blocked`] is the layer, [`storage`] its memory;
//! - [`codec`] turns a filter into bytes and back.
//!
//! ```
//! use oxbloom::filter::{Error, ErrorRate, Filter, Growth, Params};
//!
//! let params = Params {
//!     error_rate: ErrorRate::new(0.01).unwrap(),
//!     capacity: 1000.try_into().unwrap(),
//!     growth: Growth::By(2.try_into().unwrap()),
//!     seed: 42,
//! };
//! let mut filter = Filter::new(params, |_bytes| true)?;
//! assert!(filter.insert(b"https://example.com/")?);
//! assert!(!filter.insert(b"https://example.com/")?);
//! assert!(filter.contains(b"https://example.com/"));
//! # Ok::<(), Error>(())
//! ```

pub mod batch;
pub mod blocked;
pub mod codec;
pub mod hash;
pub mod sizing;
pub mod storage;

use std::num::{NonZeroU32, NonZeroU64};
use std::ptr::NonNull;

use multiversion::multiversion;

use batch::{BATCH, Screen, Subset};
use blocked::Layer;
use hash::Hash;
use sizing::{Budget, Shape};

/// The most layers that a filter may have: with each, look-ups take longer. Filters that grow by a factor of 2 or more never
/// come near it.
pub const MAX_LAYERS: usize = 1 << 14;

/// Layers of up to so many bytes are in the processor's first cache if they are looked at often: nothing to ask for.
const IN_CACHE: u64 = 32 << 10;

/// Why an operation on a filter failed. The filter is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The memory was refused, or cannot be addressed, or would be for more than [`MAX_LAYERS`].
    OutOfMemory,
    /// The filter does not grow, and holds as many items as it was made for.
    Full,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::OutOfMemory => "not enough memory",
            Error::Full => "the filter is full",
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
    /// Filters of one shape and seed hold the same bits for the same items. Who knows it can craft collisions.
    pub seed: u64,
}

/// A Bloom filter.
pub struct Filter {
    layers: Box<[Layer]>,
    seed: u64,
    error_rate: ErrorRate,
    growth: Growth,
}

impl Filter {
    /// An empty filter. `admit` is told the bytes it will take, and may refuse them.
    pub fn new(params: Params, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        let mut filter =
            Filter { layers: Box::default(), seed: params.seed, error_rate: params.error_rate, growth: params.growth };
        filter.push_layer(params.capacity.get(), admit)?;
        Ok(filter)
    }

    /// Adds a layer to a full filter. `admit` is told the bytes it will take, and may refuse them.
    pub fn grow(&mut self, admit: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        let Growth::By(expansion) = self.growth else { return Err(Error::Full) };
        let capacity = self.newest().map_or(1, Layer::capacity);
        let capacity = capacity.checked_mul(u64::from(expansion.get())).ok_or(Error::OutOfMemory)?;
        self.push_layer(capacity, admit)
    }

    fn push_layer(&mut self, capacity: u64, admit: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        if self.layers.len() >= MAX_LAYERS {
            return Err(Error::OutOfMemory);
        }
        let shape = self.shape_of_layer(self.layers.len(), capacity).ok_or(Error::OutOfMemory)?;
        if !admit(shape.bytes()) {
            return Err(Error::OutOfMemory);
        }
        let layer = Layer::new(shape, capacity)?;
        self.append(layer)
    }

    fn append(&mut self, layer: Layer) -> Result<(), Error> {
        let mut layers = std::mem::take(&mut self.layers).into_vec();
        let room = layers.try_reserve_exact(1);
        if room.is_ok() {
            layers.push(layer);
        }
        self.layers = layers.into_boxed_slice();
        room.map_err(|_| Error::OutOfMemory)
    }

    /// A fixed filter has the whole error rate for its one layer and a tight budget. The first layer of a growing one may
    /// take as much as the incumbent's; the others are tight again, for they hold most of the memory.
    fn shape_of_layer(&self, index: usize, capacity: u64) -> Option<Shape> {
        let rate = self.error_rate.get();
        match (self.growth, index) {
            (Growth::Fixed, _) => Shape::choose(capacity, rate, Budget::Tight),
            (Growth::By(_), 0) => Shape::choose(capacity, rate * sizing::error_share(0), Budget::Incumbent { rate }),
            (Growth::By(_), _) => Shape::choose(capacity, rate * sizing::error_share(index), Budget::Tight),
        }
    }

    /// The hash of an item under the filter's seed, for the operations on many items.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        Hash::new(item, self.seed)
    }

    /// Whether the item is in the filter: `false` is certain, `true` is wrong at the error rate.
    pub fn contains(&self, item: &[u8]) -> bool {
        contains(&self.layers, self.hash(item))
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
        match &*self.layers {
            [layer] => {
                let place = layer.place();
                hashes.iter().for_each(|&hash| place.prefetch(hash));
            }
            [.., newest] => {
                let place = newest.place();
                hashes.iter().for_each(|&hash| place.prefetch_first(hash));
            }
            [] => {}
        }
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` is in the filter.
    ///
    /// Fastest in batches, each of them [`Prepared`](batch::Prepared).
    pub fn contains_all(&self, hashes: &[Hash], found: &mut [bool]) {
        match (&*self.layers, hashes) {
            ([layer], _) => found.iter_mut().zip(hashes).for_each(|(found, &hash)| *found = layer.contains(hash)),
            (layers, &[hash]) => found[0] = contains(layers, hash),
            (layers, _) => {
                let batches = hashes.chunks(BATCH).zip(found.chunks_mut(BATCH));
                batches.for_each(|(hashes, found)| find(layers, hashes, found));
            }
        }
    }

    /// Inserts the items of `hashes` in order until one does not fit; `new[i]` tells whether the item was new.
    ///
    /// Returns how many were handled. If they were not all, the next one is new and the newest layer is full:
    /// [`grow`](Self::grow), and call again for the rest. Fastest in batches, each of them [`Prepared`](batch::Prepared).
    pub fn insert_all(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        let mut handled = 0;
        while handled < hashes.len() {
            // Layers are not asked about items that wait for the next layer: they would be asked again then.
            let left = hashes.len() - handled;
            let room = usize::try_from(self.newest().map_or(0, Layer::room)).unwrap_or(usize::MAX);
            let count = if self.layers.len() == 1 { left } else { left.min(room.saturating_add(1)) };
            let (hashes, new) = (&hashes[handled..][..count], &mut new[handled..][..count]);
            let inserted = self.insert_some(hashes, new);
            handled += inserted;
            if inserted < count {
                break;
            }
        }
        handled
    }

    /// As [`insert_all`](Self::insert_all).
    fn insert_some(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        let known = new;
        if self.layers.len() == 1 {
            known.fill(false);
        } else {
            self.contains_all(hashes, known);
        }
        let several = self.layers.len() > 1;
        let Some(newest) = self.layers.last_mut() else { return 0 };
        if several {
            let place = newest.place();
            let absent = hashes.iter().zip(&*known).filter(|(_, known)| !**known);
            absent.for_each(|(&hash, _)| place.prefetch(hash));
        }
        for (handled, (&hash, known)) in hashes.iter().zip(known.iter_mut()).enumerate() {
            // Items of the batch may be the same, so that what was absent is not any more.
            if newest.room() == 0 && !*known {
                *known = newest.contains(hash);
                if !*known {
                    return handled;
                }
            }
            *known = !*known && newest.insert(hash);
        }
        hashes.len()
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn error_rate(&self) -> ErrorRate {
        self.error_rate
    }

    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// The layers, oldest first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Lets `relocate` move the filter's allocations. It returns the new address, or `None` if it left the old one.
    ///
    /// # Safety
    ///
    /// See [`Blocks::relocate`](storage::Blocks::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { storage::relocate_slice(&mut self.layers, &relocate) };
        for layer in &mut self.layers {
            // SAFETY: as promised by the caller.
            unsafe { layer.relocate(&relocate) };
        }
    }

    fn newest(&self) -> Option<&Layer> {
        self.layers.last()
    }

    /// The number of items that the layers together are made for.
    pub fn capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.capacity()))
    }

    /// The number of items that were new when they were inserted.
    pub fn items(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.items()))
    }

    /// Bytes asked of the allocator, for this struct (in a box of its own) and all below it.
    pub fn memory_usage(&self) -> usize {
        let layers: usize = self.layers.iter().map(|layer| size_of::<Layer>() + layer.allocated()).sum();
        size_of::<Filter>() + layers
    }

    /// The share of set bits.
    pub fn fill(&self) -> f64 {
        let (ones, bits) = self
            .layers
            .iter()
            .fold((0.0, 0.0), |(ones, bits), layer| (ones + layer.ones() as f64, bits + layer.shape().bits() as f64));
        ones / bits
    }

    /// The estimated probability, at the present fill, that an absent item is called present.
    pub fn false_positive_rate(&self) -> f64 {
        let spared: f64 = self
            .layers
            .iter()
            .map(|layer| {
                let shape = layer.shape();
                libm::log1p(-shape.false_positive_rate(shape.items_from_fill(layer.ones())))
            })
            .sum();
        -libm::expm1(spared)
    }

    /// A copy that shares nothing.
    pub fn try_clone(&self) -> Result<Filter, Error> {
        let mut layers = Vec::new();
        layers.try_reserve_exact(self.layers.len()).map_err(|_| Error::OutOfMemory)?;
        for layer in &self.layers {
            layers.push(layer.try_clone()?);
        }
        Ok(Filter { layers: layers.into_boxed_slice(), ..*self })
    }
}

/// Whether one of `layers` contains the item.
fn contains(layers: &[Layer], hash: Hash) -> bool {
    match layers {
        [layer] => layer.contains(hash),
        layers => {
            let mut screen = Screen::OPEN;
            screen.add(hash, common_probes(layers));
            layers.iter().rev().any(|layer| layer.fits(&screen, hash) && layer.contains(hash))
        }
    }
}

/// Sets `found[i]` to whether one of `layers` contains the item of `hashes[i]`, of which there are at most [`BATCH`].
///
/// Compiled twice, for any processor and for one with AVX2, which is chosen when the program runs: with 256 bits at a time, an
/// item that is absent from fourteen layers took 57 ns, and 87 with 128.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn find(layers: &[Layer], hashes: &[Hash], found: &mut [bool]) {
    let probes = common_probes(layers);
    let mut screens = [Screen::OPEN; BATCH];
    screens.iter_mut().zip(hashes).for_each(|(screen, &hash)| screen.add(hash, probes));
    found.fill(false);
    let mut absent = Subset::first(hashes.len());
    let mut older = layers.iter().rev().skip(1);
    for layer in layers.iter().rev() {
        // While this layer is looked through, the lines of the next one come.
        if let Some(next) = older.next().filter(|next| next.shape().bytes() > IN_CACHE) {
            let place = next.place();
            absent.iter().for_each(|item| place.prefetch_first(hashes[item]));
        }
        let likely = absent.filter(|item| layer.fits(&screens[item], hashes[item]));
        let present = likely.filter(|item| layer.contains(hashes[item]));
        present.iter().for_each(|item| found[item] = true);
        absent = absent.without(present);
    }
}

/// The number of probes that an item has in its first line, whatever the layer.
fn common_probes(layers: &[Layer]) -> u8 {
    layers.iter().map(Layer::first_probes).min().unwrap_or(0)
}
