//! The cuckoo layer: RedisBloom's, byte for byte, so that filters can be migrated in both directions.
//!
//! ```text
//!  item ── MurmurHash64A ── h            h                h ^ f m
//!                           └─ f = h mod 255 + 1   │            │
//!                                            ▼            ▼
//!                         │ …  .  . │ f  . │ …  .  . │ .  . │ …  b buckets of some slots
//! ```
//!
//! A slot holds a fingerprint, or 0 if it is free. Each fingerprint is in one of two buckets, and either follows from
//! the other and the fingerprint. So a fingerprint can move to its other bucket without its item (Fan, Andersen,
//! Kaminsky, Mitzenmacher 2014, "Cuckoo Filter: Practically Better Than Bloom"). The number of buckets is a power of
//! two.

use std::ops::{Range, RangeInclusive};

use crate::arch::prefetch;
use crate::array::{Bytes, Mover, WORD};
use crate::error::Error;
use crate::hash::Hash;
use crate::hash::cuckoo::{self, other_bucket};
use crate::memory::try_vec;

const FREE: u8 = 0;

/// The maximum number of slots in a bucket.
pub const MAX_BUCKET_SIZE: u16 = 255;

/// The maximum number of buckets in a layer, as in RedisBloom.
const MAX_BUCKETS: u64 = 1 << 55;

const _: () = assert!(MAX_BUCKETS * MAX_BUCKET_SIZE as u64 <= i64::MAX as u64, "slots that cannot be counted");

/// A fingerprint, and two hashes whose low bits are its buckets in every layer.
#[derive(Clone, Copy)]
pub struct Entry {
    fingerprint: u8,
    buckets: [u64; 2],
}

impl Entry {
    #[inline]
    pub fn of(hash: Hash) -> Entry {
        Entry { fingerprint: cuckoo::fingerprint(hash.first), buckets: [hash.first, hash.second] }
    }

    /// Returns the entry of a fingerprint that is in a bucket.
    fn in_bucket(fingerprint: u8, bucket: u64) -> Entry {
        Entry { fingerprint, buckets: [bucket, other_bucket(bucket, fingerprint)] }
    }
}

/// A word with 1 in each byte.
const ONES: u64 = u64::MAX / 0xFF;

/// Returns the position of the first byte that is 0, if any (Mycroft 1987).
#[inline(always)]
fn first_zero(word: u64) -> Option<usize> {
    const TOP: u64 = ONES << 7;
    let zeros = word.wrapping_sub(ONES) & !word & TOP;
    (zeros != 0).then(|| zeros.trailing_zeros() as usize / 8)
}

/// The shape of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooLayerSpec {
    /// The number of slots in a bucket.
    pub bucket_size: u16,
    /// The number of buckets, a power of two.
    pub buckets: u64,
}

impl CuckooLayerSpec {
    /// Returns the number of slots, or `None` unless a layer can have this shape.
    pub fn checked_slots(&self) -> Option<u64> {
        let has_sound_buckets = self.buckets.is_power_of_two() && self.buckets <= MAX_BUCKETS;
        let is_sound = has_sound_buckets && (1..=MAX_BUCKET_SIZE).contains(&self.bucket_size);
        is_sound.then(|| self.buckets * u64::from(self.bucket_size))
    }
}

/// For each bucket number, the first of many layers of one size whose bucket may have a free slot. Draining the newest
/// layers only fills the slots of older ones, so the number of such a layer never falls, and each bucket is found full
/// once. Without this, each fingerprint would be tried in all layers.
pub struct Vacancies(Vec<u16>);

impl Vacancies {
    /// Returns the vacancies of layers of this size, before they are known.
    pub fn new(spec: CuckooLayerSpec) -> Result<Vacancies, Error> {
        let mut first = try_vec(spec.buckets as usize)?;
        first.resize(spec.buckets as usize, 0);
        Ok(Vacancies(first))
    }

    /// Returns the index of the first layer that has a free slot for a fingerprint, or the number of layers.
    fn first(&mut self, entry: Entry, layers: &[CuckooLayer]) -> usize {
        let mask = self.0.len() - 1;
        let first_of = |bucket: u64| {
            let first = &mut self.0[bucket as usize & mask];
            let is_full = |layer: &&CuckooLayer| layer.find_in(bucket, FREE).is_none();
            *first += layers.iter().skip((*first).into()).take_while(is_full).count() as u16;
            usize::from(*first)
        };
        let [one, other] = entry.buckets.map(first_of);
        one.min(other).min(layers.len())
    }
}

/// A layer of fingerprints.
pub struct CuckooLayer {
    slots: Bytes,
    bucket_size: usize,
    /// The number of buckets, minus 1.
    mask: u64,
}

impl CuckooLayer {
    /// Creates an empty layer.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if no layer can have this shape, or it cannot be allocated.
    pub fn new(spec: CuckooLayerSpec) -> Result<CuckooLayer, Error> {
        let slots = Bytes::zeroed(spec.checked_slots().ok_or(Error::OutOfMemory)?)?;
        CuckooLayer::from_slots(slots, spec).ok_or(Error::OutOfMemory)
    }

    /// Returns a layer with stored slots, or `None` unless they are as many as the shape says.
    pub fn from_slots(slots: Bytes, spec: CuckooLayerSpec) -> Option<CuckooLayer> {
        let fits = spec.checked_slots() == Some(slots.as_slice().len() as u64);
        fits.then(|| CuckooLayer { slots, bucket_size: spec.bucket_size.into(), mask: spec.buckets - 1 })
    }

    /// Returns the shape of the layer.
    pub fn spec(&self) -> CuckooLayerSpec {
        CuckooLayerSpec { bucket_size: self.bucket_size as u16, buckets: self.mask + 1 }
    }

    /// Returns the slots, as they are stored.
    #[inline]
    pub fn slots(&self) -> &[u8] {
        self.slots.as_slice().as_flattened()
    }

    /// Returns the slots, to change them.
    #[inline]
    pub fn slots_mut(&mut self) -> &mut [u8] {
        self.slots.as_mut_slice().as_flattened_mut()
    }

    #[inline]
    fn range(&self, bucket: u64) -> Range<usize> {
        let start = (bucket & self.mask) as usize * self.bucket_size;
        start..start + self.bucket_size
    }

    /// Returns the first slot of a bucket with this content.
    ///
    /// The slots of a small bucket are compared at once. They are read as a word, which holds slots of other buckets,
    /// too, unless the layer ends before it.
    #[inline(always)]
    fn find_in(&self, bucket: u64, content: u8) -> Option<usize> {
        let Range { start, end } = self.range(bucket);
        let position = match self.slots()[start..].first_chunk() {
            Some(&word) if self.bucket_size <= WORD => {
                let beyond = (u64::MAX - 1) << (8 * self.bucket_size - 1);
                first_zero(u64::from_le_bytes(word) ^ (u64::from(content) * ONES) | beyond)
            }
            _ => self.slots()[start..end].iter().position(|&slot| slot == content),
        };
        position.map(|position| start + position)
    }

    /// Returns the first slot with this content in the two buckets.
    #[inline]
    fn find(&self, entry: Entry, content: u8) -> Option<usize> {
        entry.buckets.into_iter().find_map(|bucket| self.find_in(bucket, content))
    }

    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        for bucket in [hash.first, hash.second] {
            prefetch(self.slots().as_ptr().wrapping_add((bucket & self.mask) as usize * self.bucket_size));
        }
    }

    /// Returns true if the fingerprint is in one of its buckets.
    #[inline]
    pub fn contains(&self, entry: Entry) -> bool {
        match self.bucket_size {
            2 => self.contains_in::<2>(entry),
            4 => self.contains_in::<4>(entry),
            _ => {
                let [one, other] = entry.buckets.map(|bucket| self.find_in(bucket, entry.fingerprint).is_some());
                one | other
            }
        }
    }

    /// Returns the same, for buckets of `N` slots, at most half a word: compares both buckets at once.
    #[inline(always)]
    fn contains_in<const N: usize>(&self, entry: Entry) -> bool {
        let (buckets, _) = self.slots().as_chunks::<N>();
        let mut both = [!entry.fingerprint; WORD];
        for (half, bucket) in both.chunks_exact_mut(N).zip(entry.buckets) {
            half.copy_from_slice(&buckets[(bucket & self.mask) as usize]);
        }
        first_zero(u64::from_le_bytes(both) ^ (u64::from(entry.fingerprint) * ONES)).is_some()
    }

    /// Returns how often the fingerprint is in its buckets. If both are the same bucket, each counts twice, as in
    /// RedisBloom.
    #[inline]
    pub fn count(&self, entry: Entry) -> u64 {
        let slots = entry.buckets.into_iter().flat_map(|bucket| &self.slots()[self.range(bucket)]);
        slots.filter(|&&slot| slot == entry.fingerprint).count() as u64
    }

    /// Puts the fingerprint into the first free slot of its buckets. Returns false if there is none.
    #[inline]
    pub fn insert(&mut self, entry: Entry) -> bool {
        let free = self.find(entry, FREE);
        if let Some(slot) = free {
            self.slots_mut()[slot] = entry.fingerprint;
        }
        free.is_some()
    }

    /// Removes the fingerprint from the first slot that has it. Returns false if there is none.
    #[inline]
    pub fn remove(&mut self, entry: Entry) -> bool {
        let found = self.find(entry, entry.fingerprint);
        if let Some(slot) = found {
            self.slots_mut()[slot] = FREE;
        }
        found.is_some()
    }

    /// Puts the fingerprint into its first bucket, in place of another, which moves to its other bucket, possibly in
    /// place of a third, and so on, with at most `max_moves` moves. Returns false if there was no free slot. The layer
    /// is then unchanged.
    #[inline(never)]
    pub fn insert_by_moving(&mut self, entry: Entry, max_moves: u16) -> bool {
        let Entry { fingerprint: mut carried, buckets: [mut bucket, _] } = entry;
        for moved in 0..max_moves {
            carried = self.swap(bucket, moved, carried);
            bucket = other_bucket(bucket, carried);
            if let Some(free) = self.find_in(bucket, FREE) {
                self.slots_mut()[free] = carried;
                return true;
            }
        }
        // Takes the moves back: each fingerprint returns to the bucket from which it came.
        for moved in (0..max_moves).rev() {
            bucket = other_bucket(bucket, carried);
            carried = self.swap(bucket, moved, carried);
        }
        debug_assert_eq!(carried, entry.fingerprint, "all moves are taken back");
        false
    }

    /// Exchanges a fingerprint with the one in a bucket that is displaced by the move of this number.
    fn swap(&mut self, bucket: u64, moved: u16, fingerprint: u8) -> u8 {
        let slot = self.range(bucket).start + usize::from(moved) % self.bucket_size;
        std::mem::replace(&mut self.slots_mut()[slot], fingerprint)
    }

    /// Returns the fingerprints in a range, each with its bucket.
    pub fn fingerprints(&self, range: RangeInclusive<u8>) -> impl Iterator<Item = (u8, u64)> {
        debug_assert!(!range.contains(&FREE), "free slots");
        let slots = self.slots().iter().enumerate().filter(move |(_, slot)| range.contains(slot));
        slots.map(|(index, &fingerprint)| (fingerprint, (index / self.bucket_size) as u64))
    }

    /// Moves fingerprints into the first of `layers` that has a free slot for them, without moving others. Returns true
    /// if this layer is empty afterwards. `vacancies` are those of `layers` if they all have the size of this layer.
    pub fn drain_into(&mut self, layers: &mut [CuckooLayer], mut vacancies: Option<&mut Vacancies>) -> bool {
        let bucket_size = self.bucket_size;
        let mut is_empty = true;
        for (index, slot) in self.slots_mut().iter_mut().enumerate().filter(|(_, slot)| **slot != FREE) {
            let entry = Entry::in_bucket(*slot, (index / bucket_size) as u64);
            let first = vacancies.as_mut().map_or(0, |vacancies| vacancies.first(entry, layers));
            if layers[first..].iter_mut().any(|layer| layer.insert(entry)) {
                *slot = FREE;
            } else {
                is_empty = false;
            }
        }
        is_empty
    }

    pub fn relocate(&mut self, mover: Mover<'_>) {
        self.slots.relocate(mover);
    }
}
