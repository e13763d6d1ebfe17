//! Creates filters.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use crate::error::{Error, InvalidWindow};
use crate::filter::Filter;
use crate::kind::{CreateParams, KindParams};
use crate::prediction::Prediction;
use crate::spec::{DEFAULT_STORED_EXPANSION, ErrorRate, Growth};
use crate::window::{DEFAULT_SLICES, MAX_LENGTH, SLICES, Window};

/// The options of a new filter. See [`Filter::builder`].
///
/// ```
/// use oxbloom_filter::Filter;
///
/// let filter = Filter::builder().error_rate(0.001).capacity(10_000).growing(2).build()?;
/// assert_eq!(filter.expansion(), Some(2));
/// # Ok::<(), oxbloom_filter::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FilterBuilder {
    error_rate: f64,
    capacity: u64,
    expansion: Option<u32>,
    seed: HiddenSeed,
    counting: bool,
    classic: bool,
    rolling: bool,
    window: Option<Duration>,
    slices: Option<u8>,
    refresh: bool,
}

impl Filter {
    /// Creates a filter for `capacity` distinct items (at least 1) with a false-positive rate of at most `error_rate`
    /// (above 0 and below 1). It does not grow, and has a random seed. [`builder`](Filter::builder) has all options.
    ///
    /// Takes 9.7 bits an item at 1 % and 14.6 at 0.1 %: at most about `1.02 * ln(1/error_rate) / ln²2`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidErrorRate`], [`Error::InvalidCapacity`] or [`Error::OutOfMemory`].
    ///
    /// ```
    /// use oxbloom_filter::{Error, Filter};
    ///
    /// let filter = Filter::new(0.01, 1000)?;
    /// assert_eq!(Filter::new(1.0, 1000).err(), Some(Error::InvalidErrorRate));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(error_rate: f64, capacity: u64) -> Result<Filter, Error> {
        Filter::builder().error_rate(error_rate).capacity(capacity).build()
    }

    /// Returns the options of a new filter. The defaults are 100 items at 1 %, no growth, and a random seed.
    ///
    /// Filters on a server grow by default, since any client may create them. A program mostly knows its number of
    /// items, and a filter that does not grow takes 8 % less memory at 1 %.
    ///
    /// ```
    /// use oxbloom_filter::Filter;
    ///
    /// let filter = Filter::builder().error_rate(0.01).capacity(1000).seed(42).build()?;
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn builder() -> FilterBuilder {
        FilterBuilder {
            error_rate: 0.01,
            capacity: 100,
            expansion: None,
            seed: HiddenSeed(None),
            counting: false,
            classic: false,
            rolling: false,
            window: None,
            slices: None,
            refresh: false,
        }
    }
}

impl FilterBuilder {
    /// Sets the false-positive rate of the whole filter, above 0 and below 1. Rates below `2^-64` are treated as
    /// `2^-64`.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::builder().error_rate(0.001).build()?.error_rate(), 0.001);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn error_rate(self, error_rate: f64) -> FilterBuilder {
        FilterBuilder { error_rate, ..self }
    }

    /// Sets the number of distinct items, at least 1, that fit before the filter grows or is full.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::builder().capacity(5000).build()?.capacity(), 5000);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn capacity(self, capacity: u64) -> FilterBuilder {
        FilterBuilder { capacity, ..self }
    }

    /// Makes the filter grow when it is full, in small steps and as far as memory allows. The error rate holds however
    /// far it grows. At 1 %, the filter takes 15 to 20 bits for each item beyond the capacity.
    ///
    /// The expansion, at least 1, is the ratio of the sizes of successive layers of a [classic](Self::classic) filter.
    /// Other filters only store it.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::builder().capacity(100).growing(2).build()?;
    /// filter.insert_batch((0..1000u32).map(u32::to_le_bytes))?;
    /// assert!(filter.capacity() >= 1000);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn growing(self, expansion: u32) -> FilterBuilder {
        FilterBuilder { expansion: Some(expansion), ..self }
    }

    /// Sets the seed of the hash, which is random by default.
    ///
    /// A random seed is from the system's random numbers. If these fail, it is from the keys of the standard library's
    /// hash maps, which may be easier to guess, and repeat in a forked process. Set a seed on a system without random
    /// numbers.
    ///
    /// Filters with equal options and seeds have the same bits for the same items, and can be merged. Anyone who knows
    /// the seed can craft items that collide.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::builder().seed(42).build()?.seed(), Some(42));
    /// assert_ne!(Filter::builder().build()?.seed(), Filter::builder().build()?.seed());
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn seed(self, seed: u64) -> FilterBuilder {
        FilterBuilder { seed: HiddenSeed(Some(seed)), ..self }
    }

    /// Creates a counting filter, which supports [`remove`](Filter::remove) and [`count`](Filter::count). It takes
    /// about as much memory as other filters: at 1 %, 10.1 to 10.7 bits an item if it does not grow, and 14 to 18 if it
    /// does. It allocates memory when items are inserted, and frees it when they are removed.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::builder().counting().build()?;
    /// filter.insert("apple")?;
    /// assert!(filter.remove("apple")?);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn counting(self) -> FilterBuilder {
        FilterBuilder { counting: true, ..self }
    }

    /// Creates a filter that forgets. It remembers an item at least for the window, and at most for a 15th of the
    /// window longer. The window is from 1 millisecond to 100 years. The filter has no clock: the caller sets the time
    /// with [`advance_to`](Filter::advance_to).
    ///
    /// The capacity is the number of distinct items in a window. The filter takes about 16 bits for each item at 1 %,
    /// and 20 at 0.1 %.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use oxbloom_filter::Filter;
    /// let mut today = Filter::builder().capacity(10_000).window(Duration::from_secs(24 * 3600)).build()?;
    /// assert!(today.insert("apple")?);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn window(self, window: Duration) -> FilterBuilder {
        FilterBuilder { window: Some(window), ..self }
    }

    /// Creates a filter that remembers the last items, as many as its capacity. It forgets the oldest items beyond
    /// those, a 15th of the capacity at a time. With a [window](Self::window), this only happens if more items than
    /// the capacity come in one window.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut last = Filter::builder().capacity(1000).rolling().seed(42).build()?;
    /// last.insert_batch((0..5000u32).map(u32::to_le_bytes))?;
    /// assert!(last.contains(4000u32.to_le_bytes()));
    /// assert!(last.len() < 1067);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn rolling(self) -> FilterBuilder {
        FilterBuilder { rolling: true, ..self }
    }

    /// Divides the window into this many slices, from 2 to 64, instead of 15. The filter forgets a slice at a time.
    /// Choose one less than a power of two, which uses the bits of a slice's number best.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use oxbloom_filter::Filter;
    /// let filter = Filter::builder().window(Duration::from_secs(60)).slices(2).build()?;
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn slices(self, slices: u8) -> FilterBuilder {
        FilterBuilder { slices: Some(slices), ..self }
    }

    /// Makes each insertion of an item restart its time in the [window](Self::window), not only the first.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::builder().window(Duration::from_secs(60)).refresh().build()?;
    /// filter.insert("apple")?;
    /// filter.advance_to(Duration::from_secs(50));
    /// assert!(!filter.insert("apple")?);
    /// filter.advance_to(Duration::from_secs(100));
    /// assert!(filter.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn refresh(self) -> FilterBuilder {
        FilterBuilder { refresh: true, ..self }
    }

    /// Creates a filter with RedisBloom's layout, bit for bit. It has no secret seed, and look-ups take more cache
    /// misses.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// assert_eq!(Filter::builder().classic().build()?.seed(), None);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn classic(self) -> FilterBuilder {
        FilterBuilder { classic: true, ..self }
    }

    /// Creates the filter. The system zeroes its memory when it is first used.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidErrorRate`], [`Error::InvalidCapacity`], [`Error::InvalidExpansion`] or [`Error::InvalidWindow`]
    /// if an option is out of range or lacks another; [`Error::Contradiction`] if two options exclude each other;
    /// [`Error::OutOfMemory`] if the memory cannot be allocated or addressed; [`Error::CannotGrow`] if a classic filter
    /// cannot have these options.
    ///
    /// ```
    /// # use oxbloom_filter::{Error, Filter};
    /// assert_eq!(Filter::builder().capacity(0).build().err(), Some(Error::InvalidCapacity));
    /// ```
    pub fn build(self) -> Result<Filter, Error> {
        Filter::create(self.params()?, &mut |_bytes| true)
    }

    /// Predicts the filter with `items` distinct items, without allocating it. With a [window](Self::window), that many
    /// items come in each window, in a steady stream.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build); [`Error::Full`] if the filter does not grow and has no room for the items.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let builder = Filter::builder().error_rate(0.01).capacity(1_000_000);
    /// assert_eq!(builder.predict(1_000_000)?.memory, builder.build()?.memory_usage() as u64);
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    pub fn predict(self, items: u64) -> Result<Prediction, Error> {
        self.params()?.predict(items)
    }

    /// Returns the parameters that these options stand for.
    fn params(self) -> Result<CreateParams, Error> {
        let growth = match self.expansion {
            None => Growth::Fixed,
            Some(expansion) => Growth::By(NonZeroU32::new(expansion).ok_or(Error::InvalidExpansion)?),
        };
        let error_rate = ErrorRate::new(self.error_rate).ok_or(Error::InvalidErrorRate)?;
        let capacity = NonZeroU64::new(self.capacity).ok_or(Error::InvalidCapacity)?;
        self.check_contradictions()?;
        let window = self.checked_window()?;
        let seed = self.seed.0.unwrap_or_else(random_seed);
        let kind = match (self.counting, self.classic, window) {
            (_, _, Some(window)) => KindParams::Windowed { seed, window },
            (true, _, None) => KindParams::Counting { seed },
            (_, true, None) => KindParams::Classic { stored_expansion: DEFAULT_STORED_EXPANSION },
            (false, false, None) => KindParams::Native { seed },
        };
        Ok(CreateParams { error_rate, capacity, growth, kind })
    }

    /// Rejects pairs of options that exclude each other.
    fn check_contradictions(&self) -> Result<(), Error> {
        let FilterBuilder { counting, classic, rolling, .. } = *self;
        let [window, seed, growing] = [self.window.is_some(), self.seed.0.is_some(), self.expansion.is_some()];
        let pairs = [
            (counting && classic, "counting", "classic"),
            (counting && window, "counting", "window"),
            (counting && rolling, "counting", "rolling"),
            (classic && window, "classic", "window"),
            (classic && rolling, "classic", "rolling"),
            (classic && seed, "classic", "seed"),
            (rolling && growing, "rolling", "growing"),
        ];
        let given = pairs.into_iter().find(|(are_given, ..)| *are_given);
        given.map_or(Ok(()), |(_, one, other)| Err(Error::Contradiction(one, other)))
    }

    /// Returns the window, or `None` if the filter does not forget.
    fn checked_window(&self) -> Result<Option<Window>, Error> {
        let invalid = |reason| Err(Error::InvalidWindow(reason));
        if self.window.is_some_and(|window| window > Duration::from_millis(MAX_LENGTH)) {
            return invalid(InvalidWindow::TooLong);
        }
        let length = self.window.and_then(|window| NonZeroU64::new(window.as_millis() as u64));
        if self.window.is_some() && length.is_none() {
            return invalid(InvalidWindow::TooShort);
        }
        let slices = self.slices.unwrap_or(DEFAULT_SLICES);
        if !SLICES.contains(&slices) {
            return invalid(InvalidWindow::Slices);
        }
        if self.refresh && length.is_none() {
            return invalid(InvalidWindow::RefreshAlone);
        }
        if length.is_none() && !self.rolling {
            return if self.slices.is_some() { invalid(InvalidWindow::SlicesAlone) } else { Ok(None) };
        }
        Ok(Some(Window { length, slices, refresh: self.refresh, rolling: self.rolling }))
    }
}

/// A seed that stays out of logs: anyone who knows it can craft collisions.
#[derive(Clone, Copy)]
struct HiddenSeed(Option<u64>);

impl fmt::Debug for HiddenSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Returns an unpredictable seed from the system's random numbers: those of the standard library would repeat after a
/// fork. If the system's fail, falls back to the standard library, as [`seed`](FilterBuilder::seed) says.
fn random_seed() -> u64 {
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(0))
}
