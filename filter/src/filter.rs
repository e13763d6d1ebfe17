//! The filter: a chain of layers, or a table.

use std::convert::Infallible;
use std::fmt;
use std::ptr::NonNull;

use crate::array::relocate_box;
use crate::batch::{BATCH, HashedBatch};
use crate::chain::Chain;
use crate::counting::{CountingFilter, OnDuplicate};
use crate::error::{Error, Interrupted};
use crate::hash::{Hash, Hasher};
use crate::layer::blocked::{BlockedLayer, BlockedSpec};
use crate::layer::classic::{self, ClassicLayer, ClassicSpec};
use crate::layer::{Layer, LayerInfo};
use crate::memory::Admit;
use crate::prefetch_hint::PrefetchHint;
use crate::spec::{CreateParams, FilterKind, Layout, OwnSpec};

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
pub struct Filter(Chains);

/// What a filter is made of.
pub enum Chains {
    /// Layers of bits, in blocks of a cache line.
    Native(Chain<BlockedLayer>),
    /// A table that counts. In a box, so that plain filters are small.
    Counting(Box<CountingFilter>),
    /// RedisBloom's layers.
    Classic(Chain<ClassicLayer>),
}

/// Does the same with what a filter is made of, whatever its kind.
macro_rules! each {
    ($chains:expr, $chain:ident => $body:expr) => {
        match $chains {
            Chains::Native($chain) => $body,
            Chains::Counting($chain) => $body,
            Chains::Classic($chain) => $body,
        }
    };
}

/// The layers of one kind of chains.
pub(crate) trait LayerKind: Layer {
    /// Returns the chain of a filter, if it is of this kind.
    fn chain(filter: &Filter) -> Option<&Chain<Self>>;
}

impl LayerKind for BlockedLayer {
    fn chain(filter: &Filter) -> Option<&Chain<BlockedLayer>> {
        if let Chains::Native(chain) = &filter.0 { Some(chain) } else { None }
    }
}

impl LayerKind for ClassicLayer {
    fn chain(filter: &Filter) -> Option<&Chain<ClassicLayer>> {
        if let Chains::Classic(chain) = &filter.0 { Some(chain) } else { None }
    }
}

impl From<Chain<BlockedLayer>> for Filter {
    fn from(chain: Chain<BlockedLayer>) -> Filter {
        Filter(Chains::Native(chain))
    }
}

impl From<CountingFilter> for Filter {
    fn from(filter: CountingFilter) -> Filter {
        Filter(Chains::Counting(Box::new(filter)))
    }
}

impl From<Chain<ClassicLayer>> for Filter {
    fn from(chain: Chain<ClassicLayer>) -> Filter {
        Filter(Chains::Classic(chain))
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
        each!(&self.0, chain => chain.contains(chain.hasher().hash(item.as_ref())))
    }

    /// Inserts an item, and grows the filter if needed. Returns true if the item was new, false if it was present
    /// before, or seemed to be.
    ///
    /// In a counting filter, each insertion of an item counts.
    ///
    /// # Errors
    ///
    /// If the item is new and the filter is full: [`Error::Full`] if it does not grow, [`Error::OutOfMemory`] or
    /// [`Error::CannotGrow`] if it cannot. The filter is unchanged.
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
        if self.insert_hashes(&hashes, &mut new, OnDuplicate::Count) == 0 {
            let inserted = self.insert_growing(&hashes, &mut new, OnDuplicate::Count, &mut |_bytes| true);
            inserted.map_err(|interrupted| interrupted.error)?;
        }
        Ok(new[0])
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
            let batch = self.prepare_batch(items.iter().map(AsRef::as_ref));
            let found = &mut found[..items.len()];
            self.contains_hashes(batch.hashes(), found);
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
            let inserted = self.insert_growing(batch.hashes(), new, OnDuplicate::Count, &mut |_bytes| true);
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
            Chains::Native(chain) => chain.spec().error_rate.get(),
            Chains::Counting(chain) => chain.spec().error_rate.get(),
            Chains::Classic(chain) => {
                let first = chain.layers().first().map_or(0.0, |layer| layer.spec().error_rate);
                if chain.spec().options.is_fixed() { first } else { 2.0 * first }
            }
        }
    }

    /// Returns the number of distinct items that the layers together are created for. It increases when the filter
    /// grows.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.capacity(), 1000);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn capacity(&self) -> u64 {
        each!(&self.0, chain => chain.capacity())
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
        each!(&self.0, chain => chain.items())
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

    /// Returns how many times as large each further layer is, or `None` if the filter does not grow.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.expansion(), None);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn expansion(&self) -> Option<u32> {
        match &self.0 {
            Chains::Native(chain) => chain.spec().expansion(),
            Chains::Counting(chain) => chain.spec().expansion(),
            Chains::Classic(chain) => chain.spec().expansion(),
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
            Chains::Native(chain) => Some(chain.spec().seed),
            Chains::Counting(chain) => Some(chain.spec().seed),
            Chains::Classic(_) => None,
        }
    }

    /// Returns the number of layers (RedisBloom calls them sub-filters). It is 1 until the filter grows.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::new(0.01, 1000)?.num_layers(), 1);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn num_layers(&self) -> usize {
        match &self.0 {
            Chains::Native(chain) => chain.layers().len(),
            Chains::Counting(_) => 1,
            Chains::Classic(chain) => chain.layers().len(),
        }
    }

    /// Returns the bytes requested of the allocator, this value included. For a classic filter, returns what RedisBloom
    /// reports, which is a few bytes less.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let filter = Filter::new(0.01, 1_000_000)?;
    /// assert_eq!(filter.memory_usage(), 1_210_208);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn memory_usage(&self) -> usize {
        match &self.0 {
            Chains::Native(chain) => size_of::<Filter>() + chain.allocated(),
            Chains::Counting(filter) => size_of::<Filter>() + filter.allocated(),
            Chains::Classic(chain) => {
                let bits: usize = chain.layers().iter().map(|layer| layer.bytes().len()).sum();
                classic::FILTER_BYTES + classic::LAYER_BYTES * chain.layers().len() + bits
            }
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
        each!(&self.0, chain => chain.fill())
    }

    /// Returns the estimated false-positive rate at the present fill. Takes some 20 microseconds a layer.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// assert_eq!(filter.false_positive_rate(), 0.0);
    /// filter.insert_batch((0..1000u32).map(u32::to_le_bytes))?;
    /// assert!((0.005..0.0101).contains(&filter.false_positive_rate()));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn false_positive_rate(&self) -> f64 {
        each!(&self.0, chain => chain.false_positive_rate())
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
            Chains::Native(chain) => chain.try_clone().map(Filter::from),
            Chains::Counting(filter) => filter.try_clone().map(Filter::from),
            Chains::Classic(chain) => chain.try_clone().map(Filter::from),
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
            .field("num_layers", &self.num_layers())
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
            Chains::Native(_) => FilterKind::Native,
            Chains::Counting(_) => FilterKind::Counting,
            Chains::Classic(_) => FilterKind::Classic,
        }
    }

    /// Returns the chain of the filter.
    #[inline]
    pub fn chains(&self) -> &Chains {
        &self.0
    }

    pub(crate) fn chains_mut(&mut self) -> &mut Chains {
        &mut self.0
    }

    /// Creates an empty filter. `admit` gets the bytes that it will take, and may reject them.
    pub fn create(params: CreateParams, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        let CreateParams { error_rate, capacity, growth, layout } = params;
        match layout {
            Layout::Native { seed } => {
                let spec = OwnSpec { seed, error_rate, growth };
                let first = BlockedSpec::new(&spec, 0, capacity.get())?;
                Chain::<BlockedLayer>::new(spec, first, admit).map(Filter::from)
            }
            Layout::Counting { seed } => {
                let spec = OwnSpec { seed, error_rate, growth };
                let filter = CountingFilter::new(spec, capacity.get())?;
                if admit(filter.allocated() as u64) { Ok(Filter::from(filter)) } else { Err(Error::OutOfMemory) }
            }
            Layout::Classic { stored_expansion } => {
                let spec = ClassicSpec::new(growth, stored_expansion);
                let first = spec.first(capacity.get(), error_rate.get())?;
                Chain::<ClassicLayer>::new(spec, first, admit).map(Filter::from)
            }
        }
    }

    /// Adds a layer to a full filter. `admit` gets the bytes that it will take, and may reject them.
    pub fn grow(&mut self, admit: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        match &mut self.0 {
            Chains::Native(chain) => chain.grow(admit),
            Chains::Counting(_) => Err(Error::CannotGrow),
            Chains::Classic(chain) => chain.grow(admit),
        }
    }

    /// Returns an empty filter that can be merged with this one. `admit` as for [`create`](Self::create).
    pub fn empty_like(&self, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        match &self.0 {
            Chains::Native(chain) => chain.empty_copy(1, admit).map(Filter::from),
            Chains::Counting(filter) => {
                let copy = filter.empty_copy()?;
                if admit(copy.allocated() as u64) { Ok(Filter::from(copy)) } else { Err(Error::OutOfMemory) }
            }
            Chains::Classic(chain) => chain.empty_copy(1, admit).map(Filter::from),
        }
    }

    /// Returns how the filter hashes its items.
    #[inline]
    pub fn hasher(&self) -> Hasher {
        each!(&self.0, chain => chain.hasher())
    }

    /// Returns the hash of an item.
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        self.hasher().hash(item)
    }

    /// Hashes the next items, as many as there are and fit, and prefetches the memory that any operation on them reads
    /// first.
    #[inline]
    pub fn prepare_batch<'a>(&self, items: impl Iterator<Item = &'a [u8]>) -> HashedBatch {
        let batch = HashedBatch::new(self.hasher(), items);
        each!(&self.0, chain => chain.prefetch(batch.hashes()));
        batch
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` is in the filter. Fastest in [batches](HashedBatch).
    #[inline]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool]) {
        each!(&self.0, chain => chain.contains_hashes(hashes, found))
    }

    /// Inserts the items of `hashes` in order until the filter would have to grow. Sets `new[i]` to whether the item
    /// was new.
    ///
    /// Returns how many were handled. For the rest, call [`insert_growing`](Self::insert_growing). Fastest in
    /// [batches](HashedBatch).
    #[inline]
    pub fn insert_hashes(&mut self, hashes: &[Hash], new: &mut [bool], on_duplicate: OnDuplicate) -> usize {
        match &mut self.0 {
            Chains::Native(chain) => chain.insert_all(hashes, new),
            Chains::Counting(filter) => {
                let inserted = filter.insert_all(hashes, new, on_duplicate, &mut |_bytes| false);
                inserted.map_or_else(|interrupted| interrupted.handled, |()| hashes.len())
            }
            Chains::Classic(chain) => chain.insert_all(hashes, new),
        }
    }

    /// As [`insert_hashes`](Self::insert_hashes), and grows the filter if needed. `admit` gets the bytes that it will
    /// take in addition, and may reject them.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] at the first item that does not fit.
    #[inline(never)]
    pub fn insert_growing(
        &mut self,
        hashes: &[Hash],
        new: &mut [bool],
        on_duplicate: OnDuplicate,
        admit: Admit<'_>,
    ) -> Result<(), Interrupted> {
        match &mut self.0 {
            Chains::Native(chain) => chain.insert_growing(hashes, new, admit),
            Chains::Counting(filter) => filter.insert_all(hashes, new, on_duplicate, admit),
            Chains::Classic(chain) => chain.insert_growing(hashes, new, admit),
        }
    }

    /// Returns the filter, if it counts.
    pub fn counting(&self) -> Option<&CountingFilter> {
        if let Chains::Counting(filter) = &self.0 { Some(filter) } else { None }
    }

    /// As [`counting`](Self::counting), to remove items.
    pub fn counting_mut(&mut self) -> Option<&mut CountingFilter> {
        if let Chains::Counting(filter) = &mut self.0 { Some(filter) } else { None }
    }

    /// Returns what is known of each layer, oldest first.
    pub fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        match &self.0 {
            Chains::Native(chain) => Box::new(chain.info()),
            Chains::Counting(filter) => Box::new(std::iter::once(filter.info())),
            Chains::Classic(chain) => Box::new(chain.info()),
        }
    }

    /// Returns whether [`len`](Self::len) is an estimate, as after a merge. A classic filter does not record it.
    pub fn is_estimate(&self) -> Option<bool> {
        match &self.0 {
            Chains::Native(chain) => Some(chain.layers().iter().any(|layer| layer.count().is_estimate())),
            Chains::Counting(filter) => Some(filter.item_count().is_estimate()),
            Chains::Classic(_) => None,
        }
    }

    /// Returns where items are looked up first, if the newest layer has at least `min_bytes`. A table has no such
    /// place.
    #[inline]
    pub fn prefetch_hint(&self, min_bytes: u64) -> Option<PrefetchHint> {
        match &self.0 {
            Chains::Native(chain) => PrefetchHint::of_blocked(chain, min_bytes),
            Chains::Counting(_) => None,
            Chains::Classic(chain) => PrefetchHint::of_classic(chain, min_bytes),
        }
    }

    /// Returns about how many allocations the filter has.
    pub fn num_allocations(&self) -> usize {
        match &self.0 {
            Chains::Counting(filter) => filter.table().segments() as usize,
            Chains::Native(_) | Chains::Classic(_) => self.num_layers(),
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
                Chains::Native(chain) => chain.relocate(relocate),
                Chains::Counting(filter) => {
                    if start == 0 {
                        relocate_box(filter, &relocate);
                    }
                    return filter.table_mut().relocate(start, relocate, should_stop);
                }
                Chains::Classic(chain) => chain.relocate(relocate),
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
