//! Which filters can be merged, and into what.
//!
//! Two filters of the same shape and seed hold the same bits for the same items. So what is in one *or* the other has
//! its bits in the bitwise or of both, and what is in one *and* the other has them in the bitwise and. The or holds
//! nothing else: it is the filter that all items together would have made. The and is a superset: bits that different
//! items set in either filter may coincide.
//!
//! A filter that grew has items in several layers, and the same item may be in the second layer of one filter and in
//! the third of another. For a union, layer by layer, that does not matter. An intersection would lose the item: it
//! needs a single layer.
//!
//! Counting filters of any sizes are united: the counts add up. In an intersection the smaller count stays;
//! fingerprints of different lengths have no such thing, so that filters that may grow are not intersected.
//!
//! The number of items in a union lies between the most of one source and the sum of all. How far they overlap is
//! estimated from the fill (Swamidass and Baldi 2007, "Mathematical Correction for Fingerprint Similarity Measures to
//! Improve Chemical Retrieval"; [`items_from_fill`](crate::sizing::BlockShape::items_from_fill) for blocks). The same
//! estimate serves an intersection: it says how much more fits, and bits that coincide by chance take room as well. The
//! intersection of two full, disjoint filters still reports about 0.4 of their items.

use crate::chain::Chain;
use crate::counting::CountingFilter;
use crate::error::Error;
use crate::filter::{Chains, Filter, LayerKind};
use crate::layer::blocked::BlockedLayer;
use crate::layer::classic::ClassicLayer;
use crate::layer::{LayerSpec, MergeOp};
use crate::memory::{Admit, try_vec};

/// What filters must agree in to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Native, counting or classic.
    Layout,
    /// The false-positive rate that was asked for.
    ErrorRate,
    /// The capacity of the oldest layer.
    Capacity,
    /// How fast the filters grow, or that they do not.
    Expansion,
    /// The seed of the hash.
    Seed,
    /// The sizes of the layers. If all else agrees, different versions of the library created them.
    Size,
}

/// Why filters cannot be merged. They are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// They differ in this, and maybe in more.
    SourcesDiffer(Mismatch),
    /// Filters that have grown cannot be intersected.
    IntersectedLayers,
    /// Counting filters that may grow cannot be intersected.
    IntersectedGrowing,
    /// The union would be too large.
    CannotGrow,
    /// The memory cannot be allocated.
    OutOfMemory,
}

impl From<Error> for MergeError {
    fn from(error: Error) -> MergeError {
        match error {
            Error::CannotGrow => MergeError::CannotGrow,
            _ => MergeError::OutOfMemory,
        }
    }
}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MergeError::SourcesDiffer(Mismatch::Layout) => "the filters have different layouts",
            MergeError::SourcesDiffer(Mismatch::ErrorRate) => "the filters have different error rates",
            MergeError::SourcesDiffer(Mismatch::Capacity) => "the filters have different capacities",
            MergeError::SourcesDiffer(Mismatch::Expansion) => "the filters have different expansions",
            MergeError::SourcesDiffer(Mismatch::Seed) => "the filters have different seeds",
            MergeError::SourcesDiffer(Mismatch::Size) => "the filters have layers of different sizes",
            MergeError::IntersectedLayers => "filters that have grown cannot be intersected",
            MergeError::IntersectedGrowing => "counting filters that may grow cannot be intersected",
            MergeError::CannotGrow => "the union would be too large",
            MergeError::OutOfMemory => "not enough memory",
        })
    }
}

impl std::error::Error for MergeError {}

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
        self.merge_all(&[other], MergeOp::Union, &mut |_bytes| true)
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
        self.merge_all(&[other], MergeOp::Intersection, &mut |_bytes| true)
    }
}

/// The [door](crate::internals): merges of any number of filters, whose memory is admitted.
#[doc(hidden)]
impl Filter {
    /// Returns a new filter: the merge of `sources`, of which there is at least one.
    ///
    /// `admit` gets the bytes that it will take, and may reject them.
    pub fn merge_new(sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<Filter, MergeError> {
        let longest = longest(sources).ok_or(MergeError::OutOfMemory)?;
        longest.check_mergeable(sources, op)?;
        match longest.chains() {
            Chains::Native(_) => merged_chain::<BlockedLayer>(sources, op, admit),
            Chains::Counting(_) => {
                let tables = tables_of(sources)?;
                let (first, others) = tables.split_first().ok_or(Error::OutOfMemory)?;
                Ok(Filter::from(first.merged(others, op, admit)?.0))
            }
            Chains::Classic(_) => merged_chain::<ClassicLayer>(sources, op, admit),
        }
    }

    /// Merges `sources` into this filter. Returns true if that changed it.
    ///
    /// `admit` gets the bytes that it will take in addition, and may reject them.
    pub fn merge_all(&mut self, sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<bool, MergeError> {
        self.check_mergeable(sources, op)?;
        Ok(match self.chains_mut() {
            Chains::Native(chain) => chain.merge(&chains_of(sources)?, op, admit)?,
            Chains::Counting(filter) => {
                let (merged, changed) = filter.merged(&tables_of(sources)?, op, admit)?;
                **filter = merged;
                changed
            }
            Chains::Classic(chain) => chain.merge(&chains_of(sources)?, op, admit)?,
        })
    }
}

impl Filter {
    fn check_mergeable(&self, sources: &[&Filter], op: MergeOp) -> Result<(), MergeError> {
        // The sources may have layers that this filter does not have yet.
        let all = [self].into_iter().chain(longest(sources));
        let mut pairs = all.flat_map(|filter| sources.iter().map(move |source| (filter, source)));
        if let Some(mismatch) = pairs.find_map(|(filter, source)| filter.mismatch(source)) {
            return Err(MergeError::SourcesDiffer(mismatch));
        }
        let single = self.num_layers() == 1 && sources.iter().all(|source| source.num_layers() == 1);
        match (op, self.counting()) {
            (MergeOp::Union, _) => Ok(()),
            (MergeOp::Intersection, Some(filter)) if !filter.is_fixed() => Err(MergeError::IntersectedGrowing),
            (MergeOp::Intersection, _) if single => Ok(()),
            (MergeOp::Intersection, _) => Err(MergeError::IntersectedLayers),
        }
    }

    /// Returns the first parameter in which the filters differ.
    fn mismatch(&self, other: &Filter) -> Option<Mismatch> {
        let agreement = match (self.chains(), other.chains()) {
            (Chains::Native(one), Chains::Native(other)) => agreement(one, other),
            (Chains::Classic(one), Chains::Classic(other)) => agreement(one, other),
            (Chains::Counting(one), Chains::Counting(other)) => {
                Agreement { capacity: one.reserved() == other.reserved(), sizes: one.is_addressed_like(other) }
            }
            _ => return Some(Mismatch::Layout),
        };
        let agreements = [
            (Mismatch::Layout, self.hasher().is_like(other.hasher())),
            (Mismatch::ErrorRate, self.error_rate() == other.error_rate()),
            (Mismatch::Capacity, agreement.capacity),
            (Mismatch::Expansion, self.expansion() == other.expansion()),
            (Mismatch::Seed, self.seed() == other.seed()),
            (Mismatch::Size, agreement.sizes),
        ];
        agreements.into_iter().find(|(_, agrees)| !agrees).map(|(mismatch, _)| mismatch)
    }
}

/// Returns the filter with the most layers.
fn longest<'a>(filters: &[&'a Filter]) -> Option<&'a Filter> {
    filters.iter().copied().max_by_key(|filter| filter.num_layers())
}

/// Returns a new filter: the merge of chains of one kind.
fn merged_chain<L: LayerKind>(sources: &[&Filter], op: MergeOp, admit: Admit<'_>) -> Result<Filter, MergeError>
where
    Filter: From<Chain<L>>,
{
    Ok(Filter::from(Chain::merged(&chains_of::<L>(sources)?, op, admit)?))
}

/// Returns the chains of `filters`, which are all of one kind.
fn chains_of<'a, L: LayerKind>(filters: &[&'a Filter]) -> Result<Vec<&'a Chain<L>>, Error> {
    let mut chains = try_vec(filters.len())?;
    chains.extend(filters.iter().filter_map(|filter| L::chain(filter)));
    Ok(chains)
}

/// Returns the counting filters among `filters`, which are all of that kind.
fn tables_of<'a>(filters: &[&'a Filter]) -> Result<Vec<&'a CountingFilter>, Error> {
    let mut tables = try_vec(filters.len())?;
    tables.extend(filters.iter().filter_map(|filter| filter.counting()));
    Ok(tables)
}

/// Whether two filters of one kind agree.
struct Agreement {
    /// In the capacity that they were created for.
    capacity: bool,
    /// In the shapes of all that both have.
    sizes: bool,
}

/// Compares the layers of two chains.
fn agreement<L: LayerKind>(one: &Chain<L>, other: &Chain<L>) -> Agreement {
    let (one, other) = (one.layers(), other.layers());
    let capacity = |layers: &[L]| layers.first().map(|layer| layer.spec().capacity());
    let sizes = one.iter().zip(other).all(|(one, other)| one.spec() == other.spec());
    Agreement { capacity: capacity(one) == capacity(other), sizes }
}
