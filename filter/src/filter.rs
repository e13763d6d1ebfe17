//! The public filter type, for all kinds of filters.

mod hidden;

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use crate::batch::BATCH;
use crate::error::{Error, Interrupted};
use crate::kind::{AnyFilter, Contained, KindFilter, for_each_kind};
use crate::spec::InsertOptions;

/// A Bloom filter: a set of items, stored in a few bits each.
///
/// There are no false negatives: [`contains`](Filter::contains) never returns `false` for an item that was inserted and
/// not removed. There are false positives: it returns `true` for other items at most at the [error
/// rate](Filter::error_rate) that the filter was created with. The rate holds up to the [capacity](Filter::capacity),
/// and after any growth.
///
/// ```
/// use oxbloom_filter::Filter;
///
/// let mut seen = Filter::new(0.01, 1000)?;
/// assert!(seen.insert("https://example.com/")?);
/// assert!(!seen.insert("https://example.com/")?);
/// assert!(seen.contains("https://example.com/"));
/// # Ok::<(), oxbloom_filter::Error>(())
/// ```
pub struct Filter(AnyFilter);

impl From<AnyFilter> for Filter {
    fn from(filter: AnyFilter) -> Filter {
        Filter(filter)
    }
}

/// Items, one at a time and in batches.
impl Filter {
    /// Returns true if the item may be in the filter, and false if it certainly is not.
    ///
    /// Costs one hash of the item, and one or two cache misses at error rates down to 0.1 %. Lower error rates cost
    /// more, and so does a filter that has grown.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert("apple")?;
    /// assert!(filter.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn contains(&self, item: impl AsRef<[u8]>) -> bool {
        self.contains_at(item.as_ref(), 0)
    }

    /// Inserts an item, and grows the filter if needed. Returns true if the item was new, false if it was already
    /// present or a false positive.
    ///
    /// A counting filter counts each insertion. A filter that forgets remembers the item from the time that
    /// [`advance_to`](Filter::advance_to) last set.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the item is new, and the filter is full and does not grow; [`Error::OutOfMemory`] or
    /// [`Error::CannotGrow`] if the filter must grow and cannot. The filter is unchanged.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// assert!(filter.insert("apple")?);
    /// assert!(!filter.insert("apple")?);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn insert(&mut self, item: impl AsRef<[u8]>) -> Result<bool, Error> {
        let hashes = [self.hash(item.as_ref())];
        let mut new = [false];
        let inserted = self.insert_hashes(&hashes, &mut new, &mut [], &InsertOptions::default(), &mut |_bytes| true);
        inserted.map(|()| new[0]).map_err(|interrupted| interrupted.error)
    }

    /// Returns for each item whether it may be in the filter.
    ///
    /// Several times faster than one item at a time if the filter is larger than the processor's cache, since the cache
    /// misses of some twenty items overlap.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert_batch(["apple", "pear"])?;
    /// assert_eq!(filter.contains_batch(["apple", "pear"]), [true, true]);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn contains_batch<T: AsRef<[u8]>>(&self, items: impl IntoIterator<Item = T>) -> Vec<bool> {
        let mut all = Vec::new();
        let mut found = [false; BATCH];
        let Ok(()) = in_batches(items, |items| {
            let batch = self.hash_batch(items.iter().map(AsRef::as_ref));
            let found = &mut found[..items.len()];
            self.contains_hashes(batch.hashes(), found, 0);
            all.extend_from_slice(found);
            Ok::<(), Infallible>(())
        });
        all
    }

    /// Inserts items in order. Returns for each whether it was new.
    ///
    /// Faster than one item at a time, as for [`contains_batch`](Filter::contains_batch).
    ///
    /// # Errors
    ///
    /// [`Interrupted`] at the first item that fails, with an error as for [`insert`](Filter::insert). It says how many
    /// items before it are in the filter.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// assert_eq!(filter.insert_batch(["apple", "pear", "apple"])?, [true, true, false]);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn insert_batch<T: AsRef<[u8]>>(
        &mut self,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Vec<bool>, Interrupted> {
        let mut all = Vec::new();
        let mut new = [false; BATCH];
        in_batches(items, |items| {
            let batch = self.prepare_batch(items.iter().map(AsRef::as_ref));
            let new = &mut new[..items.len()];
            let inserted =
                self.insert_hashes(batch.hashes(), new, &mut [], &InsertOptions::default(), &mut |_bytes| true);
            let before = all.len();
            all.extend_from_slice(new);
            inserted.map_err(|Interrupted { handled, error }| Interrupted { handled: before + handled, error })
        })?;
        Ok(all)
    }

    /// Removes one occurrence of an item from a counting filter. Returns false if the item is not in the filter.
    ///
    /// Never remove an item that was not inserted. If it is a false positive, another item disappears.
    ///
    /// # Errors
    ///
    /// [`Error::NotCounting`] if the filter does not support removal.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::builder().error_rate(0.01).capacity(1000).counting().build()?;
    /// filter.insert("apple")?;
    /// assert!(filter.remove("apple")?);
    /// assert!(!filter.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn remove(&mut self, item: impl AsRef<[u8]>) -> Result<bool, Error> {
        let mut removed = [false];
        self.remove_hashes(&[self.look_ahead(item.as_ref())], &mut removed)?;
        Ok(removed[0])
    }

    /// Returns the count of an item in a counting filter: its insertions minus its removals. At the error rate, the
    /// count is higher. The maximum is `2^48`.
    ///
    /// # Errors
    ///
    /// [`Error::NotCounting`] if the filter does not count.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::builder().error_rate(0.01).capacity(1000).counting().build()?;
    /// filter.insert("apple")?;
    /// filter.insert("apple")?;
    /// assert_eq!(filter.count("apple")?, 2);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn count(&self, item: impl AsRef<[u8]>) -> Result<u64, Error> {
        let mut counts = [0];
        self.count_hashes(&[self.hash(item.as_ref())], &mut counts)?;
        Ok(counts[0])
    }
}

/// Inserts all items, as [`insert_batch`](Filter::insert_batch) does.
///
/// ```
/// # use oxbloom_filter::Filter;
/// let mut filter = Filter::new(0.01, 1000)?;
/// filter.extend(["apple", "pear"]);
/// assert!(filter.contains("apple") && filter.contains("pear"));
/// # Ok::<(), oxbloom_filter::Error>(())
/// ```
///
/// # Panics
///
/// If an item cannot be inserted: the filter is full, or there is no memory. Use `insert_batch` to handle that.
impl<T: AsRef<[u8]>> Extend<T> for Filter {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        if let Err(interrupted) = self.insert_batch(items) {
            panic!("{interrupted}");
        }
    }
}

impl Filter {
    /// Removes all items. The filter is then as it was when it was created, with the same options and the same seed.
    /// It keeps the time that [`advance_to`](Filter::advance_to) has set.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the empty filter cannot be allocated. The filter is unchanged.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert("apple")?;
    /// filter.clear()?;
    /// assert!(filter.is_empty() && !filter.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut empty = self.empty_like(&mut |_bytes| true)?;
        empty.advance_to(Duration::from_millis(self.time_of_change()));
        *self = empty;
        Ok(())
    }
}

/// Folding, for filters that were created too large.
impl Filter {
    /// Shrinks a filter that was created too large, without its items. Returns the factor by which it is smaller, or 1
    /// if it is unchanged.
    ///
    /// The filter is then as if it was created with room for `capacity` items, or for those that it has if these are
    /// more: [`capacity`](Filter::capacity) is at least that. It keeps its items and its [error
    /// rate](Filter::error_rate), at which it now is when it has that many. The factor is the largest one that divides
    /// its number of blocks and keeps the rate. At a low rate, an item has several blocks, and then 8 KiB remain. A
    /// filter that has grown is full, and stays unchanged.
    ///
    /// The bits stay in place, and the memory behind them is freed. If the allocator cannot do that, they are copied:
    /// memory for the smaller filter is allocated in any case.
    ///
    /// # Errors
    ///
    /// [`Error::CannotFold`] if the filter is not a native one: if it counts, forgets, or has another layout;
    /// [`Error::OutOfMemory`] if the smaller filter cannot be allocated. The filter is unchanged.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1_000_000)?;
    /// filter.insert_batch(["apple", "pear"])?;
    /// assert_eq!(filter.fold(100_000)?, 8);
    /// assert!(filter.contains("apple"));
    /// assert_eq!((filter.capacity(), filter.memory_usage()), (125_000, 151_376));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn fold(&mut self, capacity: u64) -> Result<u64, Error> {
        for_each_kind!(&mut self.0, filter => filter.fold(capacity))
    }
}

/// Time, for filters that forget.
impl Filter {
    /// Sets the time of a filter that [forgets](crate::FilterBuilder::window), counted from 1970 or any other moment.
    /// The filter forgets all items whose window is over. A time earlier than before changes nothing. Other filters
    /// ignore the time.
    ///
    /// The time of a new filter is 0. If you count from 1970, set the time before the first insertion: the first call
    /// advances the filter by half a century, and it forgets everything that was inserted before.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::builder().window(Duration::from_secs(60)).build()?;
    /// filter.insert("apple")?;
    /// filter.advance_to(Duration::from_secs(59));
    /// assert!(filter.contains("apple"));
    /// filter.advance_to(Duration::from_secs(68));
    /// assert!(!filter.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn advance_to(&mut self, time: Duration) {
        if let AnyFilter::Windowed(filter) = &mut self.0 {
            filter.advance_to(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

/// Sizes, rates and copies.
impl Filter {
    /// Returns the false-positive rate that the filter was created for. For a classic filter, it is computed from the
    /// rate of the first layer, since only that is stored.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.error_rate(), 0.01);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn error_rate(&self) -> f64 {
        self.parameters().error_rate
    }

    /// Returns the number of distinct items that fit before the filter grows again, or is full.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.capacity(), 1000);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn capacity(&self) -> u64 {
        let of_layers = self.layers().fold(0, |capacity, layer| layer.capacity.saturating_add(capacity));
        // A window may hold more items than the layers have room for.
        if self.forgets() { of_layers.max(self.len()) } else { of_layers }
    }

    /// Returns the number of items that were new when they were inserted, without the removed ones. Items that were
    /// false positives when they were inserted are not counted. After a merge, the number is an estimate.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert_batch(["apple", "pear", "apple"])?;
    /// assert_eq!(filter.len(), 2);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        for_each_kind!(&self.0, filter => filter.items())
    }

    /// Returns true if the filter holds no item.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert!(Filter::new(0.01, 1000)?.is_empty());
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the expansion that the filter was created with, or `None` if it does not grow. Only classic filters use
    /// it, as the ratio of the sizes of successive layers.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.expansion(), None);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn expansion(&self) -> Option<u32> {
        self.parameters().expansion
    }

    /// Returns the seed of the hash, or `None` for a filter with another project's layout.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let filter = Filter::builder().error_rate(0.01).capacity(1000).seed(42).build()?;
    /// assert_eq!(filter.seed(), Some(42));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn seed(&self) -> Option<u64> {
        self.parameters().seed
    }

    /// Returns the number of layers, which RedisBloom calls sub-filters: 1 until the filter grows, then 2, or more for
    /// a classic filter. The table by which a filter grows is a layer. A counting filter always has one layer. A filter
    /// that forgets has one layer again after it has forgotten enough items.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.num_layers(), 1);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn num_layers(&self) -> usize {
        for_each_kind!(&self.0, filter => filter.num_layers())
    }

    /// Returns the bytes requested from the allocator, this value included. For a classic filter, returns the number
    /// that RedisBloom reports, which is a few bytes less.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let filter = Filter::new(0.01, 1_000_000)?;
    /// assert_eq!(filter.memory_usage(), 1_210_448);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    #[inline]
    pub fn memory_usage(&self) -> usize {
        for_each_kind!(&self.0, filter => filter.memory_usage())
    }

    /// Returns the fraction of bits that are set, or of slots that are filled, from 0 to 1.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.fill(), 0.0);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn fill(&self) -> f64 {
        for_each_kind!(&self.0, filter => filter.fill())
    }

    /// Returns the estimated false-positive rate at the current fill. Takes about 20 microseconds a layer.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// assert_eq!(filter.false_positive_rate(), 0.0);
    /// filter.insert_batch((0..1000u32).map(u32::to_le_bytes))?;
    /// assert!((0.005..0.012).contains(&filter.false_positive_rate()));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn false_positive_rate(&self) -> f64 {
        self.false_positive_rate_at(0)
    }

    /// Returns a copy that shares nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the copy cannot be allocated, where [`clone`](Clone::clone) aborts.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert("apple")?;
    /// assert!(filter.try_clone()?.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn try_clone(&self) -> Result<Filter, Error> {
        for_each_kind!(&self.0, filter => filter.try_clone()?.into_any()).map(Filter)
    }
}

impl Clone for Filter {
    /// Returns a copy that shares nothing.
    ///
    /// Aborts the process if there is no memory for it, as other collections do.
    fn clone(&self) -> Filter {
        or_abort(self.try_clone(), self.memory_usage())
    }
}

/// Returns the value, or aborts the process, as other collections do, if there was no memory for its `bytes`.
pub(crate) fn or_abort<T>(value: Result<T, Error>, bytes: usize) -> T {
    value.unwrap_or_else(|_| {
        let size = std::alloc::Layout::array::<u8>(bytes).unwrap_or(std::alloc::Layout::new::<u8>());
        std::alloc::handle_alloc_error(size)
    })
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seed stays out of logs: anyone who knows it can craft collisions.
        f.debug_struct("Filter")
            .field("kind", &self.kind())
            .field("error_rate", &self.error_rate())
            .field("capacity", &self.capacity())
            .field("expansion", &self.expansion())
            .field("len", &self.len())
            .field("num_layers", &self.num_layers())
            .field("memory_usage", &self.memory_usage())
            .finish_non_exhaustive()
    }
}

/// Hands items to `handle`, at most [`BATCH`] at a time.
fn in_batches<T, E>(
    items: impl IntoIterator<Item = T>,
    mut handle: impl FnMut(&[T]) -> Result<(), E>,
) -> Result<(), E> {
    let mut items = items.into_iter();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        batch.extend(items.by_ref().take(BATCH));
        if batch.is_empty() {
            return Ok(());
        }
        handle(&batch)?;
    }
}
