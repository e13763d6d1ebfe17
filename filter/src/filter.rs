//! The filter, whatever its kind.

use std::convert::Infallible;
use std::fmt;
use std::ptr::NonNull;
use std::time::Duration;

use crate::array::{relocate_box, try_box};
use crate::batch::{BATCH, HashedBatch};
use crate::classic::ClassicFilter;
use crate::counting::CountingFilter;
use crate::error::{Error, Interrupted};
use crate::hash::{Hash, Hasher};
use crate::layer::LayerInfo;
use crate::layer::classic::ClassicSpec;
use crate::memory::Admit;
use crate::native::NativeFilter;
use crate::prefetch_hint::PrefetchHint;
use crate::spec::{CreateParams, FilterKind, Layout, OwnSpec};
use crate::table::Table;
use crate::windowed::{InsertOptions, WindowedFilter};

/// A Bloom filter: a set of items, in few bits each, that can tell which items it does *not* hold.
///
/// [`contains`](Filter::contains) never returns `false` for an item that was inserted and not removed. It returns
/// `true` for other items at most at the [error rate](Filter::error_rate) that the filter was created with: these are
/// false positives. The rate holds up to the [capacity](Filter::capacity), and after any growth.
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
pub struct Filter(Content);

/// What a filter is made of.
pub enum Content {
    /// Blocks of bits, and a table.
    Native(NativeFilter),
    /// A table that counts. In a box, so that plain filters are small.
    Counting(Box<CountingFilter>),
    /// Tables that forget. In a box, as the one that counts.
    Windowed(Box<WindowedFilter>),
    /// RedisBloom's chain of layers.
    Classic(ClassicFilter),
}

/// Does the same with what a filter is made of, whatever its kind.
macro_rules! each {
    ($content:expr, $filter:ident => $body:expr) => {
        match $content {
            Content::Native($filter) => $body,
            Content::Counting($filter) => $body,
            Content::Windowed($filter) => $body,
            Content::Classic($filter) => $body,
        }
    };
}

impl From<NativeFilter> for Filter {
    fn from(filter: NativeFilter) -> Filter {
        Filter(Content::Native(filter))
    }
}

impl TryFrom<CountingFilter> for Filter {
    type Error = Error;

    fn try_from(filter: CountingFilter) -> Result<Filter, Error> {
        Ok(Filter(Content::Counting(try_box(filter)?)))
    }
}

impl TryFrom<WindowedFilter> for Filter {
    type Error = Error;

    fn try_from(filter: WindowedFilter) -> Result<Filter, Error> {
        Ok(Filter(Content::Windowed(try_box(filter)?)))
    }
}

impl From<ClassicFilter> for Filter {
    fn from(filter: ClassicFilter) -> Filter {
        Filter(Content::Classic(filter))
    }
}

/// Items, one at a time and in batches.
impl Filter {
    /// Returns true if the item may be in the filter, and false if it certainly is not.
    ///
    /// Costs one hash of the item and one or two cache misses at error rates down to 0.1 %; more below, or if the
    /// filter has grown.
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

    /// Inserts an item, and grows the filter if needed. Returns true if the item was new, false if it was present
    /// before, or seemed to be.
    ///
    /// In a counting filter, each insertion of an item counts. In one that forgets, it is remembered from the time that
    /// [`advance_to`](Filter::advance_to) was told last.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the item is new, and the filter is full and does not grow; [`Error::OutOfMemory`] or
    /// [`Error::CannotGrow`] if it needs room, and cannot have it. The filter is unchanged.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// assert!(filter.insert("apple")?);
    /// assert!(!filter.insert("apple")?);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn insert(&mut self, item: impl AsRef<[u8]>) -> Result<bool, Error> {
        let (hashes, mut new) = ([self.hash(item.as_ref())], [false]);
        let inserted = self.insert_hashes(&hashes, &mut new, &mut [], &InsertOptions::default(), &mut |_bytes| true);
        inserted.map(|()| new[0]).map_err(|interrupted| interrupted.error)
    }

    /// Returns for each item whether it may be in the filter.
    ///
    /// Several times faster than asking for one item at a time if the filter is larger than the processor's cache: the
    /// cache misses of 32 items overlap.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert_batch(["apple", "pear"])?;
    /// assert_eq!(filter.contains_batch(["apple", "pear"]), [true, true]);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn contains_batch<T: AsRef<[u8]>>(&self, items: impl IntoIterator<Item = T>) -> Vec<bool> {
        let (mut all, mut found) = (Vec::new(), [false; BATCH]);
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
    /// As for [`insert`](Filter::insert). The items before the one that failed are in the filter.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// assert_eq!(filter.insert_batch(["apple", "pear", "apple"])?, [true, true, false]);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn insert_batch<T: AsRef<[u8]>>(&mut self, items: impl IntoIterator<Item = T>) -> Result<Vec<bool>, Error> {
        let (mut all, mut new) = (Vec::new(), [false; BATCH]);
        in_batches(items, |items| {
            let batch = self.prepare_batch(items.iter().map(AsRef::as_ref));
            let new = &mut new[..items.len()];
            let inserted =
                self.insert_hashes(batch.hashes(), new, &mut [], &InsertOptions::default(), &mut |_bytes| true);
            all.extend_from_slice(new);
            inserted.map_err(|interrupted| interrupted.error)
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
        let hash = self.hash(item.as_ref());
        Ok(self.counting_mut().ok_or(Error::NotCounting)?.remove(hash))
    }

    /// Returns how often an item is in a counting filter: as often as it was inserted and not removed, and more at the
    /// error rate. Counts end at `2^48`.
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
        let hash = self.hash(item.as_ref());
        Ok(self.counting().ok_or(Error::NotCounting)?.count(hash))
    }
}

/// Time, for filters that forget.
impl Filter {
    /// Tells a filter that [forgets](crate::FilterBuilder::window) what time it is, since 1970 or any other moment: what its
    /// window is over for is forgotten. Time does not go back: what is earlier than before changes nothing. Other filters do
    /// not care.
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
        if let Content::Windowed(filter) = &mut self.0 {
            filter.advance_to(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

/// Sizes, rates and copies.
impl Filter {
    /// Returns the false-positive rate that the filter was created for. Of a classic filter, only the rate of the first
    /// layer is known: this follows from it.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.error_rate(), 0.01);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn error_rate(&self) -> f64 {
        match &self.0 {
            Content::Native(filter) => filter.spec().error_rate.get(),
            Content::Counting(filter) => filter.spec().error_rate.get(),
            Content::Windowed(filter) => filter.spec().error_rate.get(),
            Content::Classic(filter) => filter.error_rate(),
        }
    }

    /// Returns the number of distinct items that fit before the filter grows any further, or is full.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.capacity(), 1000);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn capacity(&self) -> u64 {
        each!(&self.0, filter => filter.capacity())
    }

    /// Returns the number of items that were new when they were inserted, and were not removed since. False positives
    /// are not counted. After a merge it is an estimate.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert_batch(["apple", "pear", "apple"])?;
    /// assert_eq!(filter.len(), 2);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn len(&self) -> u64 {
        each!(&self.0, filter => filter.items())
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

    /// Returns the expansion that the filter was created with, or `None` if it does not grow. Only classic filters have
    /// further layers, so many times as large.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.expansion(), None);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn expansion(&self) -> Option<u32> {
        match &self.0 {
            Content::Native(filter) => filter.spec().expansion(),
            Content::Counting(filter) => filter.spec().expansion(),
            Content::Windowed(filter) => filter.spec().expansion(),
            Content::Classic(filter) => filter.spec().expansion(),
        }
    }

    /// Returns the seed of the hash, or `None` for a classic filter: all of those share one, which is no secret.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let filter = Filter::builder().error_rate(0.01).capacity(1000).seed(42).build()?;
    /// assert_eq!(filter.seed(), Some(42));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn seed(&self) -> Option<u64> {
        match &self.0 {
            Content::Native(filter) => Some(filter.spec().seed),
            Content::Counting(filter) => Some(filter.spec().seed),
            Content::Windowed(filter) => Some(filter.spec().seed),
            Content::Classic(_) => None,
        }
    }

    /// Returns the number of parts that the filter consists of (RedisBloom calls them sub-filters): 1 until it grows, then
    /// 2, or more for a classic filter. A counting filter has always one; one that forgets has one again when it has
    /// forgotten enough.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.num_parts(), 1);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn num_parts(&self) -> usize {
        match &self.0 {
            Content::Native(filter) => 1 + usize::from(filter.table().is_some()),
            Content::Counting(_) => 1,
            Content::Windowed(filter) => 1 + usize::from(filter.tables().1.is_some()),
            Content::Classic(filter) => filter.layers().len(),
        }
    }

    /// Returns the bytes requested of the allocator, this value included. For a classic filter, returns what RedisBloom
    /// reports, which is a few bytes less.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let filter = Filter::new(0.01, 1_000_000)?;
    /// assert_eq!(filter.memory_usage(), 1_210_192);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn memory_usage(&self) -> usize {
        match &self.0 {
            Content::Native(filter) => size_of::<Filter>() + filter.allocated(),
            Content::Counting(filter) => size_of::<Filter>() + filter.allocated(),
            Content::Windowed(filter) => size_of::<Filter>() + filter.allocated(),
            Content::Classic(filter) => filter.memory_usage(),
        }
    }

    /// Returns the share of bits that are set, or of slots that are filled: from 0 to 1.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.fill(), 0.0);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn fill(&self) -> f64 {
        each!(&self.0, filter => filter.fill())
    }

    /// Returns the estimated false-positive rate at the present fill. Takes some 20 microseconds a layer.
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
        match &self.0 {
            Content::Native(filter) => filter.try_clone().map(Filter::from),
            Content::Counting(filter) => filter.try_clone().and_then(Filter::try_from),
            Content::Windowed(filter) => filter.try_clone().and_then(Filter::try_from),
            Content::Classic(filter) => filter.try_clone().map(Filter::from),
        }
    }
}

impl Clone for Filter {
    /// Returns a copy that shares nothing.
    ///
    /// Ends the process if there is no memory for it, as other collections do.
    fn clone(&self) -> Filter {
        self.try_clone().unwrap_or_else(|_| {
            let size = std::alloc::Layout::array::<u8>(self.memory_usage()).unwrap_or(std::alloc::Layout::new::<u8>());
            std::alloc::handle_alloc_error(size)
        })
    }
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
            .field("num_parts", &self.num_parts())
            .field("memory_usage", &self.memory_usage())
            .finish_non_exhaustive()
    }
}

/// The [door](crate::internals) for the module and the benchmarks.
#[doc(hidden)]
impl Filter {
    /// Returns the kind of the filter.
    #[inline]
    pub fn kind(&self) -> FilterKind {
        match &self.0 {
            Content::Native(_) => FilterKind::Native,
            Content::Counting(_) => FilterKind::Counting,
            Content::Windowed(_) => FilterKind::Windowed,
            Content::Classic(_) => FilterKind::Classic,
        }
    }

    /// Returns what the filter is made of.
    #[inline]
    pub fn content(&self) -> &Content {
        &self.0
    }

    pub(crate) fn content_mut(&mut self) -> &mut Content {
        &mut self.0
    }

    /// Creates an empty filter. `admit` gets the bytes that it will take, and may reject them.
    pub fn create(params: CreateParams, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        let CreateParams { error_rate, capacity, growth, layout } = params;
        match layout {
            Layout::Native { seed } => {
                let spec = OwnSpec { seed, error_rate, growth };
                NativeFilter::new(spec, capacity.get(), admit).map(Filter::from)
            }
            Layout::Counting { seed } => {
                let spec = OwnSpec { seed, error_rate, growth };
                let filter = CountingFilter::new(spec, capacity.get())?;
                Filter::admitted(filter.allocated(), filter, admit)
            }
            Layout::Windowed { seed, window } => {
                let spec = OwnSpec { seed, error_rate, growth };
                let filter = WindowedFilter::new(spec, capacity.get(), window)?;
                Filter::admitted(filter.allocated(), filter, admit)
            }
            Layout::Classic { stored_expansion } => {
                let spec = ClassicSpec::new(growth, stored_expansion);
                let first = spec.first(capacity.get(), error_rate.get())?;
                ClassicFilter::new(spec, first, admit).map(Filter::from)
            }
        }
    }

    /// Makes a filter of one that takes so many bytes, if `admit` does not reject them.
    fn admitted<T>(bytes: usize, filter: T, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error>
    where
        Filter: TryFrom<T, Error = Error>,
    {
        if admit(bytes as u64) { Filter::try_from(filter) } else { Err(Error::OutOfMemory) }
    }

    /// Returns an empty filter that can be merged with this one. `admit` as for [`create`](Self::create).
    pub fn empty_like(&self, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        match &self.0 {
            Content::Native(filter) => filter.empty_copy(admit).map(Filter::from),
            Content::Counting(filter) => {
                let copy = filter.empty_copy()?;
                Filter::admitted(copy.allocated(), copy, admit)
            }
            Content::Windowed(filter) => {
                let copy = filter.empty_copy()?;
                Filter::admitted(copy.allocated(), copy, admit)
            }
            Content::Classic(filter) => filter.empty_copy(1, admit).map(Filter::from),
        }
    }

    /// Returns how the filter hashes its items.
    #[inline]
    pub fn hasher(&self) -> Hasher {
        each!(&self.0, filter => filter.hasher())
    }

    /// Returns the hash of an item.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        self.hasher().hash(item)
    }

    /// Hashes the next items, as many as there are and fit.
    #[inline]
    pub fn hash_batch<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> HashedBatch {
        HashedBatch::new(self.hasher(), items)
    }

    /// As [`hash_batch`](Filter::hash_batch), and prefetches the memory that any operation on the items reads first.
    #[inline]
    pub fn prepare_batch<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> HashedBatch {
        let batch = self.hash_batch(items);
        each!(&self.0, filter => filter.prefetch(batch.hashes()));
        batch
    }

    /// Returns true if the item may be in the filter at a time, in milliseconds since 1970. Only a filter that forgets looks
    /// at it; 0 stands for that of its last change.
    #[inline]
    pub fn contains_at(&self, item: &[u8], now: u64) -> bool {
        match &self.0 {
            Content::Native(filter) => filter.contains(filter.hasher().hash(item)),
            Content::Counting(filter) => filter.contains(filter.hasher().hash(item)),
            Content::Windowed(filter) => filter.contains(filter.hasher().hash(item), now),
            Content::Classic(filter) => filter.contains(filter.hasher().hash(item)),
        }
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` is in the filter at a time, as for
    /// [`contains_at`](Self::contains_at). Fastest in [batches](HashedBatch), which need not be
    /// [prepared](Filter::prepare_batch): it prefetches what it reads.
    #[inline]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], now: u64) {
        match &self.0 {
            Content::Native(filter) => filter.contains_hashes(hashes, found),
            Content::Counting(filter) => filter.contains_hashes(hashes, found),
            Content::Windowed(filter) => filter.contains_hashes(hashes, found, now),
            Content::Classic(filter) => filter.contains_hashes(hashes, found),
        }
    }

    /// Inserts the items of `hashes` in order, and sets `new[i]` to whether the item was new. `renewed` may have no elements;
    /// otherwise `renewed[i]` is set if the item was there and is remembered anew. `admit` gets the bytes that the filter
    /// will take in addition, and may reject them. Fastest in [batches](HashedBatch).
    ///
    /// # Errors
    ///
    /// [`Interrupted`] at the first item that does not fit.
    #[inline]
    pub fn insert_hashes(
        &mut self,
        hashes: &[Hash],
        new: &mut [bool],
        renewed: &mut [bool],
        options: &InsertOptions,
        admit: Admit<'_>,
    ) -> Result<(), Interrupted> {
        match &mut self.0 {
            Content::Native(filter) => filter.insert_all(hashes, new, admit),
            Content::Counting(filter) => filter.insert_all(hashes, new, options.on_duplicate, admit),
            Content::Windowed(filter) => filter.insert_all(hashes, new, renewed, options, admit),
            Content::Classic(filter) => filter.insert_all(hashes, new, admit),
        }
    }

    /// Returns true if the filter asks for a little memory with many of its additions, instead of for much with few.
    pub fn grows_in_small_steps(&self) -> bool {
        match &self.0 {
            Content::Native(filter) => filter.table().is_some(),
            Content::Counting(_) | Content::Windowed(_) => true,
            Content::Classic(_) => false,
        }
    }

    /// Returns the filter, if it counts.
    pub fn counting(&self) -> Option<&CountingFilter> {
        if let Content::Counting(filter) = &self.0 { Some(filter) } else { None }
    }

    /// As [`counting`](Self::counting), to remove items.
    pub fn counting_mut(&mut self) -> Option<&mut CountingFilter> {
        if let Content::Counting(filter) = &mut self.0 { Some(filter) } else { None }
    }

    /// Returns the filter, if it forgets.
    #[inline]
    pub fn windowed(&self) -> Option<&WindowedFilter> {
        if let Content::Windowed(filter) = &self.0 { Some(filter) } else { None }
    }

    /// Returns true if the filter looks at the time.
    #[inline]
    pub fn needs_time(&self) -> bool {
        self.windowed().is_some_and(|filter| filter.slices().window().length.is_some())
    }

    /// Returns when the filter was last changed, in milliseconds since 1970, if it [looks at the time](Self::needs_time).
    pub fn time_of_change(&self) -> u64 {
        self.windowed().map_or(0, |filter| filter.slices().latest())
    }

    /// Returns the number of items at a time, as for [`contains_at`](Self::contains_at).
    pub fn len_at(&self, now: u64) -> u64 {
        self.windowed().map_or_else(|| self.len(), |filter| filter.items_at(now))
    }

    /// Returns the estimated false-positive rate at a time, as for [`contains_at`](Self::contains_at).
    pub fn false_positive_rate_at(&self, now: u64) -> f64 {
        match &self.0 {
            Content::Native(filter) => filter.false_positive_rate(),
            Content::Counting(filter) => filter.false_positive_rate(),
            Content::Windowed(filter) => filter.false_positive_rate_at(now),
            Content::Classic(filter) => filter.false_positive_rate(),
        }
    }

    /// Returns what is known of each part, oldest first.
    pub fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        match &self.0 {
            Content::Native(filter) => Box::new(filter.info()),
            Content::Counting(filter) => Box::new(std::iter::once(filter.info())),
            Content::Windowed(filter) => Box::new(filter.info()),
            Content::Classic(filter) => Box::new(filter.info()),
        }
    }

    /// Returns whether [`len`](Self::len) is an estimate, as after a merge. A classic filter does not record it.
    pub fn is_estimate(&self) -> Option<bool> {
        match &self.0 {
            Content::Native(filter) => Some(filter.is_estimate()),
            Content::Counting(filter) => Some(filter.table().item_count().is_estimate()),
            Content::Windowed(_) => Some(false),
            Content::Classic(_) => None,
        }
    }

    /// Returns where items are looked up first, if that has at least `min_bytes`: the blocks of a native filter, the newest
    /// layer of a classic one. A table has no such place.
    #[inline]
    pub fn prefetch_hint(&self, min_bytes: u64) -> Option<PrefetchHint> {
        match &self.0 {
            Content::Native(filter) => PrefetchHint::of_native(filter, min_bytes),
            Content::Counting(_) | Content::Windowed(_) => None,
            Content::Classic(filter) => PrefetchHint::of_classic(filter, min_bytes),
        }
    }

    /// Returns about how many allocations the filter has.
    pub fn num_allocations(&self) -> usize {
        match &self.0 {
            Content::Native(filter) => 1 + filter.table().map_or(0, |table| table.segments() as usize),
            Content::Counting(filter) => filter.table().segments() as usize,
            Content::Windowed(filter) => {
                let (expected, beyond) = filter.tables();
                (expected.segments() + beyond.map_or(0, Table::segments)) as usize
            }
            Content::Classic(_) => self.num_parts(),
        }
    }

    /// Lets `relocate` move the filter's allocations: all of them, or those of a table from `start` on until
    /// `should_stop`. Returns where to start the next time, unless all were offered. The first time, `start` is 0.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(
        &mut self,
        start: u64,
        relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>,
        should_stop: impl FnMut() -> bool,
    ) -> Option<u64> {
        // SAFETY: as promised by the caller.
        unsafe {
            match &mut self.0 {
                Content::Native(filter) => return filter.relocate(start, relocate, should_stop),
                Content::Counting(filter) => {
                    if start == 0 {
                        relocate_box(filter, &relocate);
                    }
                    return filter.table_mut().relocate(start, relocate, should_stop);
                }
                Content::Windowed(filter) => {
                    if start == 0 {
                        relocate_box(filter, &relocate);
                    }
                    return filter.relocate(start, relocate, should_stop);
                }
                Content::Classic(filter) => filter.relocate(relocate),
            }
        }
        None
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
