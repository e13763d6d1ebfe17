//! Layers: what a filter is made of.
//!
//! A layer is an array of cells for a number of items. Layers of one kind form a [chain](crate::chain). [`blocked`] is the
//! native layer, [`classic`] RedisBloom's.

pub(crate) mod blocked;
pub mod classic;
mod count;

use std::ptr::NonNull;

pub(crate) use count::ItemCount;

use crate::block::{CombineOp, combine, count_ones_of_part};
use crate::error::Error;
use crate::hash::{Hash, Hasher};
use crate::sizing::{BlockShape, LOWEST_ERROR_RATE};
use crate::spec::OwnSpec;

/// The most layers that a filter may have: each makes look-ups slower. Filters that grow by a factor of 2 or more never
/// come near it.
pub const MAX_LAYERS: usize = 1 << 14;

/// The most items that a layer counts, 2.8 * 10^14: it is full then, whatever its capacity. A layer of so many would take 32
/// terabytes even at a bit an item. A larger count is forged, and would overflow the sum over all layers.
pub const MAX_ITEMS: u64 = 1 << 48;

/// What a layer is created from. Two layers with equal specs have the same cells for the same items of one seed.
pub trait LayerSpec: Copy + PartialEq {
    /// Returns the number of items that the layer is created for.
    fn capacity(&self) -> u64;

    /// Returns the size of its cells in bytes.
    fn bytes(&self) -> u64;
}

/// A layer of one kind. Layers of different kinds are never in one chain.
pub trait Layer: Sized {
    /// What the layers of a filter share: how items are hashed, and how the filter grows.
    type FilterSpec: Copy;

    /// What a layer is created from.
    type LayerSpec: LayerSpec;

    /// Returns how the items of a filter are hashed.
    fn hasher(filter: &Self::FilterSpec) -> Hasher;

    /// Returns the layer that follows `layers` when the newest of them is full.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the filter does not grow; [`Error::CannotGrow`] or [`Error::OutOfMemory`] if no such layer is
    /// possible.
    fn next(filter: &Self::FilterSpec, layers: &[Self]) -> Result<Self::LayerSpec, Error>;

    /// Creates an empty layer.
    fn new(spec: Self::LayerSpec) -> Result<Self, Error>;

    /// Returns what the layer was created from.
    fn spec(&self) -> Self::LayerSpec;

    /// Returns the number of items that were new when they were inserted, and were not removed since.
    fn items(&self) -> u64;

    /// Returns the number of bits that are set.
    fn marked(&self) -> u64;

    /// Returns the cells, as they are stored.
    fn bytes(&self) -> &[u8];

    /// Returns what is known of the layer, which is number `index` (from 0) of its filter.
    fn info(&self, filter: &Self::FilterSpec, index: usize) -> LayerInfo;

    /// Returns the estimated false-positive rate at the present fill.
    fn false_positive_rate(&self) -> f64;

    /// Returns true if the item may have been inserted.
    fn contains(&self, hash: Hash) -> bool;

    /// Sets `found[i]` to whether one of `layers` contains the item of `hashes[i]`.
    fn find(layers: &[Self], hashes: &[Hash], found: &mut [bool]);

    /// Prefetches the memory that any operation on the items reads first.
    fn prefetch(layers: &[Self], hashes: &[Hash]);

    /// Merges `sources`, which have this layer's spec, into the layer. If the layer is new, its content becomes that of
    /// `sources` alone. Returns true if that changed it.
    ///
    /// The union of one source with a new layer is a copy. Where no cell is marked, its memory stays untouched.
    fn merge(&mut self, sources: &[&Self], op: MergeOp, is_new: bool) -> bool;

    /// Lets `relocate` move the cells.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>);

    /// Returns how many more items fit.
    #[inline]
    fn room(&self) -> u64 {
        self.spec().capacity().min(MAX_ITEMS).saturating_sub(self.items())
    }

    /// Returns the number of bits.
    fn cells(&self) -> u64 {
        8 * self.bytes().len() as u64
    }
}

/// A layer of bits: an item is there or not, and inserting it again changes nothing.
pub trait Insert: Layer {
    /// Sets the item's bits. Returns true if any of them was clear, that is, if the item is new.
    ///
    /// A new item counts, even beyond the capacity: the caller checks [`room`](Layer::room) first.
    fn insert(&mut self, hash: Hash) -> bool;

    /// How many inserts ahead their memory is prefetched.
    const INSERTS_AHEAD: usize;

    /// Returns true if an insert into the newest of `layers` reads more memory than [`prefetch`](Layer::prefetch) requests.
    fn inserts_look_further(layers: &[Self]) -> bool;

    /// Prefetches all the memory that an insert of the item reads.
    fn prefetch_insert(&self, hash: Hash);
}

/// What becomes of several filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOp {
    /// What is in any of them.
    Union,
    /// What is in all of them, and some items more.
    Intersection,
}

/// Merges layers of bits. Returns whether `target` changed, and how many bits of it are set.
fn merge_bits<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: MergeOp,
    is_new: bool,
) -> (bool, u64) {
    let op = match op {
        MergeOp::Union => CombineOp::Or,
        MergeOp::Intersection => CombineOp::And,
    };
    let mut ones = 0;
    let changed = combine(target, sources, op, is_new, |part| ones += count_ones_of_part(part));
    (changed, ones)
}

/// What is known of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInfo {
    /// The size of its cells in bytes.
    pub bytes: u64,
    /// The same in bits.
    pub bits: u64,
    /// The width of the hash in bits.
    pub hash_bits: u8,
    /// The number of cells that an item sets.
    pub probes: u32,
    /// The number of blocks, one cache line each, that an item touches. `None` if its probes are spread over the whole layer.
    pub blocks_per_item: Option<u8>,
    /// The number of distinct items that the layer was created for.
    pub capacity: u64,
    /// The number of items in it.
    pub items: u64,
    /// The part of the filter's error rate that the layer may use.
    pub error_rate: f64,
}

impl LayerInfo {
    /// Describes a layer of blocks that uses share number `share` of the error rate.
    fn of_blocks(filter: &OwnSpec, share: usize, shape: BlockShape, capacity: u64, items: u64) -> LayerInfo {
        LayerInfo {
            bytes: shape.bytes(),
            bits: 8 * shape.bytes(),
            hash_bits: 128,
            probes: shape.probes.into(),
            blocks_per_item: Some(shape.blocks_per_item),
            capacity,
            items,
            error_rate: filter.layer_error_rate(share).max(LOWEST_ERROR_RATE),
        }
    }
}
