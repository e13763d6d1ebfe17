//! The methods of a filter that the documentation hides: they are for the module and the benchmarks.

use super::Filter;
use crate::array::Mover;
use crate::batch::HashedBatch;
use crate::error::{Error, Interrupted};
use crate::hash::{Hash, Hasher};
use crate::kind::cuckoo::{CuckooFilter, CuckooSpec};
use crate::kind::valkey::{ValkeyFilter, ValkeySpec};
use crate::kind::windowed::WindowedFilter;
use crate::kind::{AnyFilter, Contained, CreateParams, Insertion, Kind, KindFilter, NativeCuckooFilter, for_each_kind};
use crate::layer::LayerInfo;
use crate::memory::Admit;
use crate::spec::{InsertOptions, Parameters};

/// The [internal interface](crate::internals), for the module and the benchmarks. Methods without a comment are those of
/// [`KindFilter`], or their names say all.
#[doc(hidden)]
impl Filter {
    #[inline]
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    #[inline]
    pub fn parameters(&self) -> Parameters {
        for_each_kind!(&self.0, filter => filter.parameters())
    }

    #[inline]
    pub fn by_kind(&self) -> &AnyFilter {
        &self.0
    }

    pub(crate) fn by_kind_mut(&mut self) -> &mut AnyFilter {
        &mut self.0
    }

    pub fn create(params: CreateParams, admit: Admit<'_>) -> Result<Filter, Error> {
        params.create(admit).map(Filter)
    }

    /// Returns an empty filter that can be merged with this one.
    pub fn empty_like(&self, admit: Admit<'_>) -> Result<Filter, Error> {
        for_each_kind!(&self.0, filter => filter.empty_copy(admit)?.into_any()).map(Filter)
    }

    #[inline]
    pub fn hasher(&self) -> Hasher<'_> {
        for_each_kind!(&self.0, filter => filter.hasher())
    }

    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        self.hasher().hash(item)
    }

    /// Hashes up to [`BATCH`] items.
    #[inline]
    pub fn hash_batch<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> HashedBatch {
        HashedBatch::new(self.hasher(), items)
    }

    /// Hashes up to [`BATCH`] items, and prefetches the memory that any operation on them reads first.
    #[inline]
    pub fn prepare_batch<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> HashedBatch {
        let batch = self.hash_batch(items);
        for_each_kind!(&self.0, filter => filter.prefetch(batch.hashes()));
        batch
    }

    /// Returns true if the item may be in the filter at the time `now`, in milliseconds since 1970. Only a filter that
    /// forgets uses `now`; 0 means the time of its last change.
    #[inline]
    pub fn contains_at(&self, item: &[u8], now: u64) -> bool {
        for_each_kind!(&self.0, filter => filter.contains_at(filter.hasher().hash(item), now))
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` may be in the filter at the time `now`, as for
    /// [`contains_at`](Self::contains_at). Fastest in [batches](HashedBatch). These need not be
    /// [prepared](Filter::prepare_batch), since this prefetches by itself.
    #[inline]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], now: u64) {
        debug_assert!(found.len() >= hashes.len(), "a result for each item");
        for_each_kind!(&self.0, filter => filter.contains_hashes(hashes, found, now));
    }

    /// Inserts the items of `hashes` in order, and sets `new[i]` to whether item `i` was new. Unless `renewed` is
    /// empty, sets `renewed[i]` if item `i` was present and its time was restarted. Fastest in [batches](HashedBatch).
    ///
    /// # Errors
    ///
    /// [`Interrupted`] at the first item that does not fit.
    #[inline(always)]
    pub fn insert_hashes(
        &mut self,
        hashes: &[Hash],
        new: &mut [bool],
        renewed: &mut [bool],
        options: &InsertOptions,
        admit: Admit<'_>,
    ) -> Result<(), Interrupted> {
        debug_assert!(new.len() >= hashes.len(), "a result for each item");
        debug_assert!(renewed.is_empty() || renewed.len() >= hashes.len(), "a result for each item");
        for_each_kind!(&mut self.0, filter => filter.insert_hashes(Insertion { hashes, new, renewed, options }, admit))
    }

    #[inline]
    pub fn counts(&self) -> bool {
        self.kind().counts()
    }

    /// Sets `counts[i]` to the [`count`](Self::count) of the item of `hashes[i]`.
    ///
    /// # Errors
    ///
    /// [`Error::NotCounting`].
    #[inline]
    pub fn count_hashes(&self, hashes: &[Hash], counts: &mut [u64]) -> Result<(), Error> {
        debug_assert!(counts.len() >= hashes.len(), "a result for each item");
        for_each_kind!(&self.0, filter => filter.count_hashes(hashes, counts))
    }

    /// [Removes](Self::remove) one occurrence of the item of each hash. Sets `removed[i]` to whether item `i` had one.
    ///
    /// # Errors
    ///
    /// [`Error::NotCounting`].
    #[inline]
    pub fn remove_hashes(&mut self, hashes: &[Hash], removed: &mut [bool]) -> Result<(), Error> {
        debug_assert!(removed.len() >= hashes.len(), "a result for each item");
        for_each_kind!(&mut self.0, filter => filter.remove_hashes(hashes, removed))
    }

    pub fn grows_in_small_steps(&self) -> bool {
        for_each_kind!(&self.0, filter => filter.grows_in_small_steps())
    }

    pub fn grows_by_layers(&self) -> bool {
        for_each_kind!(&self.0, filter => filter.grows_by_layers())
    }

    pub fn cuckoo(&self) -> Option<&CuckooFilter> {
        CuckooFilter::of(&self.0)
    }

    /// Returns the filter, if it is a counting filter that stands for a cuckoo filter.
    pub fn native_cuckoo(&self) -> Option<&NativeCuckooFilter> {
        NativeCuckooFilter::of(&self.0)
    }

    pub fn valkey(&self) -> Option<&ValkeyFilter> {
        ValkeyFilter::of(&self.0)
    }

    pub fn valkey_spec(&self) -> Option<&ValkeySpec> {
        self.valkey().map(ValkeyFilter::spec)
    }

    /// Returns the parameters of the cuckoo filter, if it is one or stands for one.
    pub fn cuckoo_spec(&self) -> Option<&CuckooSpec> {
        match &self.0 {
            AnyFilter::Cuckoo(filter) => Some(filter.spec()),
            AnyFilter::NativeCuckoo(filter) => Some(&filter.figures().spec),
            _ => None,
        }
    }

    /// Returns the filter as a counting filter that stands for it, if it is a cuckoo filter: see
    /// [`NativeCuckooFilter::converted`].
    pub fn converted(&self, admit: Admit<'_>) -> Result<Option<Filter>, Error> {
        let convert = |filter| NativeCuckooFilter::converted(filter, admit)?.into_any().map(Filter);
        self.cuckoo().map(convert).transpose()
    }

    /// Compacts the filter, if it is a cuckoo filter: see [`CuckooFilter::compact`].
    pub fn compact(&mut self) {
        if let AnyFilter::Cuckoo(filter) = &mut self.0 {
            filter.compact(true);
        }
    }

    #[inline]
    pub fn windowed(&self) -> Option<&WindowedFilter> {
        WindowedFilter::of(&self.0)
    }

    #[inline]
    pub fn forgets(&self) -> bool {
        self.windowed().is_some()
    }

    /// Returns true if the filter needs the current time.
    #[inline]
    pub fn needs_time(&self) -> bool {
        self.windowed().is_some_and(|filter| filter.slices().window().length.is_some())
    }

    /// Returns the time of the last change, in milliseconds since 1970, if the filter [needs the
    /// time](Self::needs_time).
    pub fn time_of_change(&self) -> u64 {
        self.windowed().map_or(0, |filter| filter.slices().latest())
    }

    /// Returns the number of items at the time `now`, as for [`contains_at`](Self::contains_at).
    pub fn len_at(&self, now: u64) -> u64 {
        for_each_kind!(&self.0, filter => filter.items_at(now))
    }

    pub fn false_positive_rate_at(&self, now: u64) -> f64 {
        for_each_kind!(&self.0, filter => filter.false_positive_rate_at(now))
    }

    pub fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        for_each_kind!(&self.0, filter => filter.layers())
    }

    pub fn is_estimate(&self) -> Option<bool> {
        for_each_kind!(&self.0, filter => filter.is_estimate())
    }

    /// Returns the number of layers, the size in bytes, the capacity, and the number of items.
    #[inline]
    pub fn footprint(&self) -> [u64; 4] {
        for_each_kind!(&self.0, filter =>
            [filter.num_layers() as u64, filter.memory_usage() as u64, filter.capacity(), filter.items()])
    }

    /// Hashes an item, and prefetches the memory that a look-up of the item reads. Waits for no large part of it.
    pub fn look_ahead(&self, item: &[u8]) -> Hash {
        for_each_kind!(&self.0, filter => {
            let hash = filter.hasher().hash(item);
            filter.look_ahead(hash);
            hash
        })
    }

    pub fn num_allocations(&self) -> usize {
        for_each_kind!(&self.0, filter => filter.num_allocations())
    }

    /// Lets a mover move the filter's allocations, from `start` on, until `should_stop` returns true. Returns where to
    /// continue, or `None` if all allocations were visited. The first `start` is 0. Only a table can stop before the
    /// end.
    pub fn relocate(&mut self, start: u64, mover: Mover<'_>, mut should_stop: impl FnMut() -> bool) -> Option<u64> {
        if start == 0 {
            self.0.relocate_holder(mover);
        }
        for_each_kind!(&mut self.0, filter => filter.relocate(start, mover, &mut should_stop))
    }
}
