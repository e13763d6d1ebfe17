//! A chain of counting layers: every operation goes to the oldest layer that claims the item.
//!
//! [`layer::counting`](crate::layer::counting) says why removal is exact.

use crate::chain::Chain;
use crate::hash::Hash;
use crate::layer::Layer as _;
use crate::layer::counting::CountingLayer;

impl Chain<CountingLayer> {
    /// Adds an occurrence of each item in order, until one is new and does not fit; `new[i]` tells whether the item was new.
    pub fn insert_all(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        self.insert(hashes, new, true)
    }

    /// As [`insert_all`](Self::insert_all), but leaves alone the items that are there already.
    pub fn insert_absent(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        self.insert(hashes, new, false)
    }

    #[inline(never)]
    fn insert(&mut self, hashes: &[Hash], new: &mut [bool], again: bool) -> usize {
        let [older @ .., newest] = self.layers_mut() else { return 0 };
        for (handled, (&hash, new)) in hashes.iter().zip(new).enumerate() {
            let holder = older.iter_mut().find(|layer| layer.contains(hash));
            *new = match holder {
                Some(holder) => again && holder.raise(hash),
                // Raising the counters tells whether the item was there.
                None if again && newest.room() > 0 => newest.raise(hash),
                None if newest.contains(hash) => again && newest.raise(hash),
                None if newest.room() > 0 => newest.raise(hash),
                None => return handled,
            };
        }
        hashes.len()
    }

    /// Removes an occurrence of an item. Returns false if there is none.
    ///
    /// If it was the last of a layer, and the layer not the newest, the layer is dropped.
    pub fn remove(&mut self, hash: Hash) -> bool {
        let Some(holder) = self.holder(hash) else { return false };
        let layer = &mut self.layers_mut()[holder];
        layer.lower(hash);
        if layer.is_empty() {
            self.drop_older(CountingLayer::is_empty);
        }
        true
    }

    /// Returns how often the item was added and not removed: never less than that, up to [`MAX_COUNT`](crate::layer::counting::MAX_COUNT), which stands for that or more.
    pub fn count(&self, hash: Hash) -> u8 {
        self.holder(hash).map_or(0, |holder| self.layers()[holder].smallest(hash))
    }

    /// Returns the number of saturated counters.
    pub fn stuck(&self) -> u64 {
        self.layers().iter().map(CountingLayer::stuck).sum()
    }

    /// Returns the oldest layer that claims the item.
    fn holder(&self, hash: Hash) -> Option<usize> {
        self.layers().iter().position(|layer| layer.contains(hash))
    }
}
