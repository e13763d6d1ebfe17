//! The first items of a small filter that grows: fingerprints of one length.
//!
//! ```text
//!  bits   │ upper: a zero for each quotient, after a one for each of its items │ lower: the fingerprints, in order │
//!  hash   │ quotient │ fingerprint │ unused …
//! ```
//!
//! This is the quotient representation of Carter et al. (1978), as in a group of the [table](crate::table), to which the
//! items move when the filter grows. Equal sets have equal bits, whatever the order of their insertions.
//!
//! A hundred items at 1 % take 13 bytes more than 128. So the last two words are stored beside the others.

use super::{BlockedLayer, Words};
use crate::arch::{Processor, positions, versioned};
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::{ItemCount, MergeOp};
use crate::memory::try_vec;
use crate::sizing::BlockShape;
use crate::table::{low_bits, low_bits_up_to_64};

/// The place of an item that is not there.
struct Place {
    /// The number of its fingerprint.
    slot: usize,
    /// The position of its one: in the run of its quotient, or after it.
    one: usize,
}

impl BlockedLayer {
    versioned! {
        /// Returns true if there is an item with the same prefix.
        pub(super) fn has_fingerprint(self: &BlockedLayer, hash: Hash) -> bool = BlockedLayer::has_with;
        /// Inserts and counts an item. Returns true if it was new. There is room for it.
        pub(super) fn insert_fingerprint(self: &mut BlockedLayer, hash: Hash) -> bool = BlockedLayer::insert_with;
    }

    #[inline(always)]
    fn has_with<P: Processor>(&self, _: P, hash: Hash) -> bool {
        self.items() > 0 && self.place_of::<P>(hash).is_none()
    }

    #[inline(always)]
    fn insert_with<P: Processor>(&mut self, _: P, hash: Hash) -> bool {
        let Some(Place { slot, one }) = self.place_of::<P>(hash) else { return false };
        let shape = self.shape();
        let (upper, width) = (shape.upper_bits() as usize, usize::from(shape.probes));
        self.insert_bits(one, upper, 1, 1);
        let end = upper + (self.items() as usize + 1) * width;
        self.insert_bits(upper + slot * width, end, width, prefix_of(hash, shape) & low_bits(shape.probes.into()));
        self.count.increment(true);
        true
    }

    /// Returns the stored bits of the items' hashes, in ascending order.
    pub fn prefixes(&self) -> impl Iterator<Item = u64> {
        let shape = self.shape();
        let (upper, width) = (shape.upper_bits() as usize, usize::from(shape.probes));
        let ones = (0..).flat_map(|index| positions(self.word(index)).map(move |bit| index * 64 + bit as usize));
        ones.take(self.items() as usize).enumerate().map(move |(slot, one)| {
            let prefix = ((one - slot) as u64) << width | self.field(upper + slot * width, width);
            prefix << (u64::BITS - shape.prefix_bits())
        })
    }

    /// Inserts the items that are in any or in all of `sources`, which have this layer's parameters. Returns false if
    /// there is no room for all.
    pub fn insert_merged<'a>(&mut self, sources: impl Iterator<Item = &'a BlockedLayer> + Clone, op: MergeOp) -> bool {
        for first in sources.clone().flat_map(BlockedLayer::prefixes) {
            let hash = Hash { first, second: 0 };
            if op == MergeOp::Intersection && !sources.clone().all(|source| source.contains(hash)) {
                continue;
            }
            if self.room() == 0 && !self.contains(hash) {
                return false;
            }
            self.insert_fingerprint(hash);
        }
        self.count = ItemCount::merged(op, sources.map(BlockedLayer::count), self.items() as f64);
        true
    }

    /// Removes all items, and frees their memory. The layer takes no items any more.
    pub fn clear(&mut self) {
        self.words = Words::without_elements(self.words.label());
        self.count = ItemCount::default();
        [self.set_bits, self.capacity] = [0; 2];
    }

    /// Returns all bits.
    pub fn encoded(&self) -> Result<Vec<u8>, Error> {
        let last = [self.set_bits, self.capacity].map(u64::to_le_bytes);
        let mut bits = try_vec(self.bytes().len() + size_of_val(&last))?;
        bits.extend_from_slice(self.bytes());
        bits.extend_from_slice(last.as_flattened());
        Ok(bits)
    }

    /// Returns a layer like this one with these bits, or `None` if no layer has them. They may be forged.
    pub fn of_encoded(&self, bits: &[u8]) -> Result<Option<BlockedLayer>, Error> {
        let [mut decoded, mut layer] = [BlockedLayer::new(self.spec())?, BlockedLayer::new(self.spec())?];
        let (words, last) = bits.split_at_checked(layer.bytes().len()).unwrap_or_default();
        let (last, []) = last.as_chunks() else { return Ok(None) };
        let &[before_last, last] = last else { return Ok(None) };
        decoded.bytes_mut().copy_from_slice(words);
        [decoded.set_bits, decoded.capacity] = [before_last, last].map(u64::from_le_bytes);
        let upper = layer.shape().upper_bits() as usize;
        let items = (0..upper).filter(|&bit| decoded.field(bit, 1) > 0).count() as u64;
        decoded.count = ItemCount::new(items.min(layer.capacity()), false);
        decoded.prefixes().for_each(|first| {
            layer.insert_fingerprint(Hash { first, second: 0 });
        });
        layer.count = ItemCount::new(layer.items(), self.count.is_estimate());
        Ok((layer.encoded()? == bits).then_some(layer))
    }

    /// Returns the place of an item, or `None` if there is one with the same prefix.
    #[inline(always)]
    fn place_of<P: Processor>(&self, hash: Hash) -> Option<Place> {
        let shape = self.shape();
        let (upper, width) = (shape.upper_bits() as usize, usize::from(shape.probes));
        let prefix = prefix_of(hash, shape);
        let (quotient, fingerprint) = ((prefix >> width) as usize, prefix & low_bits(shape.probes.into()));
        let mut one = if quotient == 0 { 0 } else { self.select_zero::<P>(quotient as u32 - 1) + 1 };
        while self.field(one, 1) > 0 {
            let slot = one - quotient;
            let stored = self.field(upper + slot * width, width);
            if stored >= fingerprint {
                return (stored > fingerprint).then_some(Place { slot, one });
            }
            one += 1;
        }
        Some(Place { slot: one - quotient, one })
    }

    /// Returns the position of the zero that ends the run of a quotient.
    #[inline(always)]
    fn select_zero<P: Processor>(&self, mut rank: u32) -> usize {
        let mut index = 0;
        loop {
            let zeros = !self.word(index);
            let count = zeros.count_ones();
            if rank < count {
                return index * u64::BITS as usize + P::select(zeros, rank) as usize;
            }
            rank -= count;
            index += 1;
        }
    }

    /// Returns the word with this number.
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        let words = self.words.as_slice();
        match words.get(index) {
            Some(word) => u64::from_le_bytes(*word),
            None if index == words.len() => self.set_bits,
            None => self.capacity,
        }
    }

    #[inline(always)]
    fn set_word(&mut self, index: usize, value: u64) {
        let words = self.words.as_mut_slice();
        let count = words.len();
        match words.get_mut(index) {
            Some(word) => *word = value.to_le_bytes(),
            None if index == count => self.set_bits = value,
            None => self.capacity = value,
        }
    }

    /// Returns the `width` bits from bit `at` on.
    #[inline(always)]
    fn field(&self, at: usize, width: usize) -> u64 {
        let (index, shift) = (at / 64, at as u32 % 64);
        let in_next = self.word(index + 1).checked_shl(64 - shift).unwrap_or(0);
        (self.word(index) >> shift | in_next) & low_bits(width as u32)
    }

    /// Moves the bits from bit `start` on up by `width`, but those from bit `end` on not at all, and writes `field` before
    /// them.
    #[inline(always)]
    fn insert_bits(&mut self, start: usize, end: usize, width: usize, field: u64) {
        let (first, last) = (start / 64, (end - 1) / 64);
        let mut below = low_bits(start as u32 % 64);
        let mut incoming = field << (start % 64);
        let mut later = field.checked_shr(64 - start as u32 % 64).unwrap_or(0);
        for index in first..last {
            let old = self.word(index);
            self.set_word(index, old & below | (old & !below) << width | incoming);
            incoming = (old & !below) >> (64 - width) | later;
            (below, later) = (0, 0);
        }
        let old = self.word(last);
        let inside = low_bits_up_to_64((end - 1) as u32 % 64 + 1);
        self.set_word(last, (old & below | (old & !below) << width | incoming) & inside | old & !inside);
    }
}

/// Returns the bits of a hash that are stored.
fn prefix_of(hash: Hash, shape: BlockShape) -> u64 {
    hash.first >> (u64::BITS - shape.prefix_bits())
}
