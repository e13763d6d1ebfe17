//! Unions and intersections of filters.
//!
//! Two filters with the same shape and seed have the same bits for the same items. So the bits of an item in either
//! filter are in the bitwise OR of both, and the bits of an item in both filters are in the bitwise AND. The OR is
//! exactly the filter with all items of both. The AND may have more bits than the filter with the common items:
//! different items may set the same bit in the two filters.
//!
//! A filter that has grown has more items in a table or in further layers. The same item may be in the blocks of one
//! filter and in the table of another. A union, layer by layer, still contains the item, but an intersection would lose
//! it. So only filters that have not grown can be intersected.
//!
//! A union accepts tables of any sizes. In counting filters, the union adds the counts, and the intersection keeps the
//! smaller count. Fingerprints of different lengths cannot be intersected, so counting filters that may grow are
//! rejected.
//!
//! The number of items in a union is at least the maximum of its sources, and at most their sum. It is estimated from
//! the fill (Swamidass and Baldi 2007, "Mathematical Correction for Fingerprint Similarity Measures to Improve Chemical
//! Retrieval"; [`items_from_fill`](crate::sizing::BlockShape::items_from_fill) for blocks). The same estimate is used
//! for an intersection: bits that coincide by chance take space too, and the estimate says how many more items fit. The
//! intersection of two full, disjoint filters still reports about 0.4 of their items.

use crate::error::{Error, MergeError, Mismatch};
use crate::filter::{Content, Filter};
use crate::item_count::MergeOp;
use crate::kind::classic::ClassicFilter;
use crate::kind::counting::CountingFilter;
use crate::kind::native::NativeFilter;
use crate::memory::{Admit, try_vec};

/// Set operations on filters that agree in [all relevant parameters](Mismatch).
impl Filter {
    /// Adds all items of `other` to this filter, as if they were inserted one by one. Returns true if the filter
    /// changed.
    ///
    /// In a counting filter, the counts are added.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the filters cannot be merged. This filter is unchanged.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let builder = Filter::builder().error_rate(0.01).capacity(1000).seed(42);
    /// let (mut monday, mut tuesday) = (builder.build()?, builder.build()?);
    /// monday.insert("alice")?;
    /// tuesday.insert("bob")?;
    /// monday.union_with(&tuesday)?;
    /// assert!(monday.contains("alice") && monday.contains("bob"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn union_with(&mut self, other: &Filter) -> Result<bool, MergeError> {
        self.merge(&[other], MergeOp::Union, &mut |_bytes| true)
    }

    /// Keeps the items that are also in `other`. Returns true if the filter changed.
    ///
    /// The result contains all common items. It has more false positives than a new filter with the same items, but at
    /// most the rate of the worse of the two filters. Only filters that have not grown can be intersected.
    ///
    /// # Errors
    ///
    /// [`MergeError`] if the filters cannot be intersected. This filter is unchanged.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let builder = Filter::builder().error_rate(0.01).capacity(1000).seed(42);
    /// let (mut monday, mut tuesday) = (builder.build()?, builder.build()?);
    /// monday.insert_batch(["alice", "bob"])?;
    /// tuesday.insert_batch(["bob", "carol"])?;
    /// monday.intersect_with(&tuesday)?;
    /// assert!(monday.contains("bob"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn intersect_with(&mut self, other: &Filter) -> Result<bool, MergeError> {
        self.merge(&[other], MergeOp::Intersection, &mut |_bytes| true)
    }
}

/// The [internal interface](crate::internals): merges of any number of filters, with admission of their memory.
#[doc(hidden)]
impl Filter {
    /// Merges `sources`, at least one, into a new filter.
    ///
    /// Calls `admit` with the bytes that it will take; `admit` may reject them.
    pub fn merged(sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<Filter, MergeError> {
        let sources = distinct(sources)?;
        let longest = longest(&sources).ok_or(MergeError::OutOfMemory)?;
        longest.check_mergeable(&sources, op)?;
        Ok(match longest.content() {
            Content::Native(_) => NativeFilter::merged(&native_filters(&sources)?, op, admit)?.into(),
            Content::Counting(_) => {
                let filters = counting_filters(&sources)?;
                let (&(first, times), others) = filters.split_first().ok_or(Error::OutOfMemory)?;
                Filter::try_from(first.merged_with(times, others, op, admit)?.0)?
            }
            Content::Windowed(_) => return Err(MergeError::MergedWindows),
            Content::Classic(_) => ClassicFilter::merged(&classic_filters(&sources)?, op, admit)?.into(),
        })
    }

    /// Merges `sources` into this filter. Returns true if it changed.
    ///
    /// Calls `admit` with the bytes that it will take in addition; `admit` may reject them.
    pub fn merge(&mut self, sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<bool, MergeError> {
        let sources = distinct(sources)?;
        self.check_mergeable(&sources, op)?;
        Ok(match self.content_mut() {
            Content::Native(filter) => filter.merge(&native_filters(&sources)?, op, admit)?,
            Content::Counting(filter) => {
                let (merged, changed) = filter.merged_with(1, &counting_filters(&sources)?, op, admit)?;
                **filter = merged;
                changed
            }
            Content::Windowed(_) => return Err(MergeError::MergedWindows),
            Content::Classic(filter) => filter.merge(&classic_filters(&sources)?, op, admit)?,
        })
    }
}

impl Filter {
    /// Returns the bytes of this filter that are freed when `sources` are merged into it, since new memory replaces
    /// them.
    #[doc(hidden)]
    pub fn replaced_by_merge(&self, sources: &[&Filter]) -> u64 {
        let bytes = match self.content() {
            Content::Native(filter) if sources.iter().any(|source| source.num_layers() > 1) => filter.table_bytes(),
            Content::Counting(filter) => filter.allocated(),
            Content::Native(_) | Content::Windowed(_) | Content::Classic(_) => 0,
        };
        bytes as u64
    }

    fn check_mergeable(&self, sources: &[Source<'_>], op: MergeOp) -> Result<(), MergeError> {
        if self.windowed().is_some() || sources.iter().any(|source| source.filter.windowed().is_some()) {
            return Err(MergeError::MergedWindows);
        }
        // The sources may have layers that this filter lacks, and must agree in these too.
        let all = [self].into_iter().chain(longest(sources));
        let mut pairs = all.flat_map(|filter| sources.iter().map(move |source| (filter, source.filter)));
        if let Some(mismatch) = pairs.find_map(|(filter, source)| filter.mismatch(source)) {
            return Err(MergeError::SourcesDiffer(mismatch));
        }
        let single = self.num_layers() == 1 && sources.iter().all(|source| source.filter.num_layers() == 1);
        match (op, self.counting()) {
            (MergeOp::Union, _) => Ok(()),
            (MergeOp::Intersection, Some(filter)) if !filter.is_fixed() => Err(MergeError::IntersectedGrowing),
            (MergeOp::Intersection, _) if single => Ok(()),
            (MergeOp::Intersection, _) => Err(MergeError::IntersectedLayers),
        }
    }

    /// Returns the first parameter in which the filters differ.
    fn mismatch(&self, other: &Filter) -> Option<Mismatch> {
        let (has_capacity, has_shape) = match (self.content(), other.content()) {
            (Content::Native(one), Content::Native(other)) => {
                (one.initial_capacity() == other.initial_capacity(), one.is_shaped_like(other))
            }
            (Content::Counting(one), Content::Counting(other)) => {
                (one.initial_capacity() == other.initial_capacity(), one.is_shaped_like(other))
            }
            (Content::Classic(one), Content::Classic(other)) => {
                (one.initial_capacity() == other.initial_capacity(), one.is_shaped_like(other))
            }
            _ => return Some(Mismatch::Layout),
        };
        let grows_alike = match self.content() {
            Content::Classic(_) => self.expansion() == other.expansion(),
            Content::Native(_) | Content::Counting(_) | Content::Windowed(_) => {
                self.expansion().is_some() == other.expansion().is_some()
            }
        };
        let agreements = [
            (Mismatch::Layout, self.hasher().is_like(other.hasher())),
            (Mismatch::ErrorRate, self.error_rate() == other.error_rate()),
            (Mismatch::Capacity, has_capacity),
            (Mismatch::Expansion, grows_alike),
            (Mismatch::Seed, self.seed() == other.seed()),
            (Mismatch::Size, has_shape),
        ];
        agreements.into_iter().find(|(_, agrees)| !agrees).map(|(mismatch, _)| mismatch)
    }
}

/// A source of a merge.
#[derive(Clone, Copy)]
struct Source<'a> {
    filter: &'a Filter,
    /// The number of times that it was given.
    times: u64,
}

/// Returns the different filters among `filters`, in the order in which they were first given.
fn distinct<'a>(filters: &[&'a Filter]) -> Result<Vec<Source<'a>>, Error> {
    let mut places = try_vec(filters.len())?;
    places.extend(filters.iter().enumerate().map(|(place, filter)| (std::ptr::from_ref(*filter), place)));
    places.sort_unstable();
    let mut firsts = try_vec(filters.len())?;
    let alike = places.chunk_by(|one, other| std::ptr::eq(one.0, other.0));
    firsts.extend(alike.map(|alike| (alike[0].1, alike.len() as u64)));
    firsts.sort_unstable();
    let mut sources = try_vec(firsts.len())?;
    sources.extend(firsts.into_iter().map(|(place, times)| Source { filter: filters[place], times }));
    Ok(sources)
}

/// Returns the filter with the most layers.
fn longest<'a>(sources: &[Source<'a>]) -> Option<&'a Filter> {
    sources.iter().map(|source| source.filter).max_by_key(|filter| filter.num_layers())
}

/// Returns the contents of `sources`, which are all of the same kind.
fn contents<'a, T>(sources: &[Source<'a>], content: impl Fn(&'a Content, u64) -> Option<T>) -> Result<Vec<T>, Error> {
    let mut contents = try_vec(sources.len())?;
    contents.extend(sources.iter().filter_map(|source| content(source.filter.content(), source.times)));
    Ok(contents)
}

fn native_filters<'a>(sources: &[Source<'a>]) -> Result<Vec<&'a NativeFilter>, Error> {
    contents(sources, |content, _| if let Content::Native(filter) = content { Some(filter) } else { None })
}

/// Returns the filters, each with the number of times that it was given.
fn counting_filters<'a>(sources: &[Source<'a>]) -> Result<Vec<(&'a CountingFilter, u64)>, Error> {
    contents(
        sources,
        |content, times| if let Content::Counting(filter) = content { Some((&**filter, times)) } else { None },
    )
}

fn classic_filters<'a>(sources: &[Source<'a>]) -> Result<Vec<&'a ClassicFilter>, Error> {
    contents(sources, |content, _| if let Content::Classic(filter) = content { Some(filter) } else { None })
}
