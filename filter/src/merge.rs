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
//! Native filters may differ in their number of blocks. The blocks of the larger ones are
//! [folded](crate::sizing::BlockShape::folded_by) on the way, to the number of the smallest. A filter is only folded if
//! it has not grown, and keeps its error rate: if its items fit into the smallest. The union of several may hold more
//! items than that, as with filters of the same size.
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

use std::cmp::Reverse;

use crate::error::{Error, MergeError};
use crate::filter::Filter;
use crate::item_count::MergeOp;
use crate::kind::{AnyFilter, KindFilter, for_each_kind};
use crate::memory::{Admit, try_vec};

/// Set operations on filters that agree in [all relevant parameters](crate::Mismatch).
impl Filter {
    /// Adds all items of `other` to this filter, as if they were inserted one by one. Returns true if the filter
    /// changed.
    ///
    /// In a counting filter, the counts are added. Native filters may differ in their capacity if the larger one can be
    /// [folded](Filter::fold) to the other's. If this is the larger one, it is folded.
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
    pub fn merged(sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<Filter, MergeError> {
        let sources = distinct(sources)?;
        let (first, _) = *sources.first().ok_or(MergeError::OutOfMemory)?;
        check_mergeable(first, &sources, op)?;
        let merged = for_each_kind!(first, filter => filter.merged_any(&sources, op, admit))?;
        Ok(Filter::from(merged))
    }

    /// Merges `sources` into this filter. Returns true if it changed.
    pub fn merge(&mut self, sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<bool, MergeError> {
        let sources = distinct(sources)?;
        check_mergeable(self.by_kind(), &sources, op)?;
        Ok(for_each_kind!(self.by_kind_mut(), filter => filter.merge_any(&sources, op, admit))?)
    }
}

impl Filter {
    /// Returns the bytes of this filter that are freed when `sources` are merged into it, since new memory replaces
    /// them, or the filter is folded.
    #[doc(hidden)]
    pub fn replaced_by_merge(&self, sources: &[&Filter]) -> u64 {
        // The table beside the blocks of a native filter stays as it is if no source has one.
        let is_replaced = self.num_layers() == 1 || sources.iter().any(|source| source.num_layers() > 1);
        let of_table = if is_replaced { self.table_bytes() } else { 0 };
        let blocks = |filter: &Filter| for_each_kind!(filter.by_kind(), filter => filter.size_to_fold().0);
        let smallest = sources.iter().map(|source| blocks(source)).min().unwrap_or(u64::MAX);
        of_table + blocks(self).saturating_sub(smallest)
    }

    /// Returns the bytes of this filter's tables. A merge combines tables entry by entry, which takes longer than
    /// blocks.
    #[doc(hidden)]
    pub fn table_bytes(&self) -> u64 {
        for_each_kind!(self.by_kind(), filter => filter.table_bytes()) as u64
    }
}

/// A source of a merge, and the number of times that it was given.
type Source<'a> = (&'a AnyFilter, u64);

/// Returns an error unless the sources can be merged with each other and with `target`.
fn check_mergeable(target: &AnyFilter, sources: &[Source<'_>], op: MergeOp) -> Result<(), MergeError> {
    let mut all = std::iter::once(target).chain(sources.iter().map(|(source, _)| *source));
    all.clone().find_map(|filter| filter.kind().unmerged()).map_or(Ok(()), Err)?;
    // All others must be like the smallest. It must have the layers that any filter of its size has.
    let order = |filter: &&AnyFilter| {
        for_each_kind!(*filter, filter => {
            (filter.size_to_fold(), Reverse((filter.num_layers(), filter.table_bytes() > 0)))
        })
    };
    let standard = all.clone().min_by_key(order).unwrap_or(target);
    let mismatch = all.clone().find_map(|filter| for_each_kind!(standard, standard => standard.mismatch(filter)));
    mismatch.map_or(Ok(()), |mismatch| Err(MergeError::SourcesDiffer(mismatch)))?;
    match op {
        MergeOp::Union => Ok(()),
        MergeOp::Intersection => {
            all.try_for_each(|filter| for_each_kind!(filter, filter => filter.check_intersection()))
        }
    }
}

/// Returns the different filters among `filters`, in the order in which they were first given.
fn distinct<'a>(filters: &[&'a Filter]) -> Result<Vec<Source<'a>>, Error> {
    let mut places = try_vec(filters.len())?;
    places.extend(filters.iter().enumerate().map(|(place, filter)| (std::ptr::from_ref(*filter), place, 1)));
    places.sort_unstable();
    places.dedup_by(|later, first| {
        let is_same = std::ptr::eq(later.0, first.0);
        first.2 += u64::from(is_same);
        is_same
    });
    places.sort_unstable_by_key(|&(_, place, _)| place);
    let mut sources = try_vec(places.len())?;
    sources.extend(places.into_iter().map(|(_, place, times)| (filters[place].by_kind(), times)));
    Ok(sources)
}
