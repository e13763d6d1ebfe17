//! Which filters can be merged, and into what.
//!
//! Two filters of the same shape and seed hold the same bits for the same items. So what is in one *or* the other has
//! its bits in the bitwise or of both, and what is in one *and* the other has them in the bitwise and. The or holds
//! nothing else: it is the filter that all items together would have made. The and is a superset: bits that different
//! items set in either filter may coincide.
//!
//! A filter that grew has further items in a table, or in further layers, and the same item may be in the blocks of one
//! filter and in the table of another. For a union, part by part, that does not matter. An intersection would lose the
//! item, so that only filters that have not grown are intersected.
//!
//! Tables of any sizes are united; in counting filters, the counts add up. In an intersection the smaller count stays;
//! fingerprints of different lengths have no such thing, so that counting filters that may grow are not intersected.
//!
//! The number of items in a union lies between the most of one source and the sum of all. How far they overlap is
//! estimated from the fill (Swamidass and Baldi 2007, "Mathematical Correction for Fingerprint Similarity Measures to
//! Improve Chemical Retrieval"; [`items_from_fill`](crate::sizing::BlockShape::items_from_fill) for blocks). The same
//! estimate serves an intersection: it says how much more fits, and bits that coincide by chance take room as well. The
//! intersection of two full, disjoint filters still reports about 0.4 of their items.

use crate::classic::ClassicFilter;
use crate::counting::CountingFilter;
use crate::error::{Error, MergeError, Mismatch};
use crate::filter::{Content, Filter};
use crate::item_count::MergeOp;
use crate::memory::{Admit, try_vec};
use crate::native::NativeFilter;

/// Set operations on filters that agree in [all that matters](Mismatch).
impl Filter {
    /// Adds all items of `other` to this filter, as if they were inserted one by one. Returns true if that changed it.
    ///
    /// In a counting filter, the counts add up.
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

    /// Keeps the items that are also in `other`. Returns true if that changed the filter.
    ///
    /// The result holds all common items, and others more often than the error rate says: up to as often as the worse
    /// of the two filters. Only filters that have not grown can be intersected.
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

/// The [door](crate::internals): merges of any number of filters, whose memory is admitted.
#[doc(hidden)]
impl Filter {
    /// Returns a new filter: the merge of `sources`, of which there is at least one.
    ///
    /// `admit` gets the bytes that it will take, and may reject them.
    pub fn merged(sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<Filter, MergeError> {
        let longest = longest(sources).ok_or(MergeError::OutOfMemory)?;
        longest.check_mergeable(sources, op)?;
        Ok(match longest.content() {
            Content::Native(_) => NativeFilter::merged(&natives(sources)?, op, admit)?.into(),
            Content::Counting(_) => {
                let filters = countings(sources)?;
                let (first, others) = filters.split_first().ok_or(Error::OutOfMemory)?;
                Filter::try_from(first.merged_with(others, op, admit)?.0)?
            }
            Content::Windowed(_) => return Err(MergeError::MergedWindows),
            Content::Classic(_) => ClassicFilter::merged(&classics(sources)?, op, admit)?.into(),
        })
    }

    /// Merges `sources` into this filter. Returns true if that changed it.
    ///
    /// `admit` gets the bytes that it will take in addition, and may reject them.
    pub fn merge(&mut self, sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<bool, MergeError> {
        self.check_mergeable(sources, op)?;
        Ok(match self.content_mut() {
            Content::Native(filter) => filter.merge(&natives(sources)?, op, admit)?,
            Content::Counting(filter) => {
                let (merged, changed) = filter.merged_with(&countings(sources)?, op, admit)?;
                **filter = merged;
                changed
            }
            Content::Windowed(_) => return Err(MergeError::MergedWindows),
            Content::Classic(filter) => filter.merge(&classics(sources)?, op, admit)?,
        })
    }
}

impl Filter {
    /// Returns the bytes of this filter that are released when `sources` are merged into it: what it asks for then takes
    /// their place.
    #[doc(hidden)]
    pub fn replaced_by_merge(&self, sources: &[&Filter]) -> u64 {
        let bytes = match self.content() {
            Content::Native(filter) if sources.iter().any(|source| source.num_parts() > 1) => filter.table_bytes(),
            Content::Counting(filter) => filter.allocated(),
            Content::Native(_) | Content::Windowed(_) | Content::Classic(_) => 0,
        };
        bytes as u64
    }

    fn check_mergeable(&self, sources: &[&Filter], op: MergeOp) -> Result<(), MergeError> {
        if self.windowed().is_some() || sources.iter().any(|source| source.windowed().is_some()) {
            return Err(MergeError::MergedWindows);
        }
        // The sources may have layers that this filter does not have yet.
        let all = [self].into_iter().chain(longest(sources));
        let mut pairs = all.flat_map(|filter| sources.iter().map(move |source| (filter, source)));
        if let Some(mismatch) = pairs.find_map(|(filter, source)| filter.mismatch(source)) {
            return Err(MergeError::SourcesDiffer(mismatch));
        }
        let single = self.num_parts() == 1 && sources.iter().all(|source| source.num_parts() == 1);
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

/// Returns the filter with the most parts.
fn longest<'a>(filters: &[&'a Filter]) -> Option<&'a Filter> {
    filters.iter().copied().max_by_key(|filter| filter.num_parts())
}

/// Returns what `filters`, which are all of one kind, are made of.
fn contents<'a, T>(filters: &[&'a Filter], content: impl Fn(&'a Content) -> Option<T>) -> Result<Vec<T>, Error> {
    let mut contents = try_vec(filters.len())?;
    contents.extend(filters.iter().filter_map(|filter| content(filter.content())));
    Ok(contents)
}

fn natives<'a>(filters: &[&'a Filter]) -> Result<Vec<&'a NativeFilter>, Error> {
    contents(filters, |content| if let Content::Native(filter) = content { Some(filter) } else { None })
}

fn countings<'a>(filters: &[&'a Filter]) -> Result<Vec<&'a CountingFilter>, Error> {
    contents(filters, |content| if let Content::Counting(filter) = content { Some(&**filter) } else { None })
}

fn classics<'a>(filters: &[&'a Filter]) -> Result<Vec<&'a ClassicFilter>, Error> {
    contents(filters, |content| if let Content::Classic(filter) = content { Some(filter) } else { None })
}
