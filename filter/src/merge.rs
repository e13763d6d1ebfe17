//! Filters that become one: the union or the intersection of several.
//!
//! Two filters of the same shape and seed hold the same bits for the same items. So what is in one *or* the other has its bits
//! in the bitwise or of both, and what is in one *and* the other has them in the bitwise and. The or holds nothing else: it is
//! the very filter that all items would have made. The and is a superset: bits that different items left in either may
//! meet. Counters add up, or the smaller is kept.
//!
//! A filter that grew has items in several layers, and the same item may be in the second of one filter and in the third of
//! another. For a union of bits, layer by layer, that does not matter. An intersection would lose the item, and in counting
//! filters old layers must not gain anything (see [`counting`]): those want a single layer.
//!
//! How many items a union has is not known any more: somewhere between the most of one source and the sum of all. By how much
//! they overlap is estimated from the fill (Swamidass and Baldi 2007, "Mathematical Correction for Fingerprint Similarity
//! Measures to Improve Chemical Retrieval"; [`items_from_fill`](super::sizing::Shape::items_from_fill) for cache lines).
//! So it is with an intersection: what counts is how much more fits, and there the bits that met by chance take their room. Of
//! two full filters that have nothing in common they look like 0.4 times as many items.

use multiversion::multiversion;

use super::chain::{Chain, Layer};
use super::counting::MAX_COUNT;
use super::sizing::Cell;
use super::storage::{Block, ones};
use super::table::Count;
use super::{Error, Filter, blocked, classic, counting, each, with_room};

/// What becomes of several filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// What is in any of them.
    Union,
    /// What is in all of them, and some items more.
    Intersection,
}

impl Operation {
    pub fn rule(self, cell: Cell) -> Rule {
        match (self, cell) {
            (Operation::Union, Cell::Bit) => Rule::Or,
            (Operation::Intersection, Cell::Bit) => Rule::And,
            (Operation::Union, Cell::Counter) => Rule::Sum,
            (Operation::Intersection, Cell::Counter) => Rule::Minimum,
        }
    }
}

/// What filters must agree in to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    Layout,
    ErrorRate,
    /// Of the oldest layer.
    Capacity,
    Expansion,
    Seed,
    /// The sizes of the layers: of filters whose other parameters agree they may differ if different versions made them.
    Size,
}

/// Why filters cannot be merged. They are as they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They differ in this, and maybe in more.
    Differ(Parameter),
    /// Filters of several layers have no intersection.
    IntersectedLayers,
    /// Counting filters of several layers cannot be merged.
    CountingLayers,
    /// The memory was refused.
    OutOfMemory,
}

impl From<Error> for Refusal {
    fn from(_: Error) -> Refusal {
        Refusal::OutOfMemory
    }
}

impl Filter {
    /// An empty filter that may be merged with this one. `admit` is told the bytes it will take, and may refuse them.
    pub fn like(&self, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        self.emptied(1, admit)
    }

    /// A new filter: what `operation` makes of `sources`, of which there is at least one. `admit` is told the bytes it will
    /// take, and may refuse them.
    pub fn merged(
        sources: &[&Filter],
        operation: Operation,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<Filter, Refusal> {
        let deepest = deepest(sources).ok_or(Refusal::OutOfMemory)?;
        deepest.check(sources, operation)?;
        let mut merged = deepest.emptied(deepest.depth(), admit)?;
        each!(&mut merged, chain => combine(chain, with_room(sources.len())?, sources, operation, true));
        Ok(merged)
    }

    /// Makes this filter what `operation` makes of it and of `sources`. Whether that changed it. `admit` is told the bytes it
    /// will take in addition, and may refuse them.
    pub fn merge(
        &mut self,
        sources: &[&Filter],
        operation: Operation,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<bool, Refusal> {
        self.check(sources, operation)?;
        each!(self, chain => {
            let (room, depth) = (with_room(sources.len())?, chain.layers().len());
            if let Some(deepest) = deepest(sources).and_then(Kind::chain) {
                chain.extend_like(deepest, deepest.layers().len(), admit)?;
            }
            let changed = combine(chain, room, sources, operation, false);
            Ok(changed || chain.layers().len() > depth)
        })
    }

    fn check(&self, sources: &[&Filter], operation: Operation) -> Result<(), Refusal> {
        // The sources may have layers that this filter does not have yet.
        let all = [self].into_iter().chain(deepest(sources));
        let mut pairs = all.flat_map(|filter| sources.iter().map(move |source| (filter, source)));
        if let Some(parameter) = pairs.find_map(|(filter, source)| filter.difference(source)) {
            return Err(Refusal::Differ(parameter));
        }
        let single = self.depth() == 1 && sources.iter().all(|source| source.depth() == 1);
        match (self, operation) {
            _ if single => Ok(()),
            (Filter::Counting(_), _) => Err(Refusal::CountingLayers),
            (_, Operation::Intersection) => Err(Refusal::IntersectedLayers),
            (_, Operation::Union) => Ok(()),
        }
    }

    /// The first parameter in which the filters differ.
    fn difference(&self, other: &Filter) -> Option<Parameter> {
        let Some(layers) = each!(self, chain => agreement(chain, other)) else { return Some(Parameter::Layout) };
        let agreements = [
            (Parameter::Layout, self.hasher().is_like(other.hasher())),
            (Parameter::ErrorRate, self.error_rate() == other.error_rate()),
            (Parameter::Capacity, layers.capacity),
            (Parameter::Expansion, self.expansion() == other.expansion()),
            (Parameter::Seed, self.seed() == other.seed()),
            (Parameter::Size, layers.sizes),
        ];
        agreements.into_iter().find(|(_, agrees)| !agrees).map(|(parameter, _)| parameter)
    }

    /// An empty filter with the first `depth` layers of this one.
    fn emptied(&self, depth: usize, admit: impl FnOnce(u64) -> bool) -> Result<Filter, Error> {
        match self {
            Filter::Native(chain) => chain.emptied(depth, admit).map(Filter::Native),
            Filter::Counting(chain) => chain.emptied(depth, admit).map(Filter::Counting),
            Filter::Classic(chain) => chain.emptied(depth, admit).map(Filter::Classic),
        }
    }
}

/// The filter with the most layers.
fn deepest<'a>(filters: &[&'a Filter]) -> Option<&'a Filter> {
    filters.iter().copied().max_by_key(|filter| filter.depth())
}

/// The layers of one kind of filters.
trait Kind: Layer {
    /// The chain of a filter, if it is of this kind.
    fn chain(filter: &Filter) -> Option<&Chain<Self>>;
}

impl Kind for blocked::Layer {
    fn chain(filter: &Filter) -> Option<&Chain<blocked::Layer>> {
        if let Filter::Native(chain) = filter { Some(chain) } else { None }
    }
}

impl Kind for counting::Layer {
    fn chain(filter: &Filter) -> Option<&Chain<counting::Layer>> {
        filter.counting()
    }
}

impl Kind for classic::Layer {
    fn chain(filter: &Filter) -> Option<&Chain<classic::Layer>> {
        if let Filter::Classic(chain) = filter { Some(chain) } else { None }
    }
}

/// What the layers of two filters agree in.
struct Agreement {
    /// The capacity of the oldest.
    capacity: bool,
    /// All that there are in both.
    sizes: bool,
}

/// `None` if the filters are of different kinds.
fn agreement<L: Kind>(one: &Chain<L>, other: &Filter) -> Option<Agreement> {
    let (one, other) = (one.layers(), L::chain(other)?.layers());
    let capacity = one.first().map(L::capacity) == other.first().map(L::capacity);
    let sizes = one.iter().zip(other).all(|(one, other)| one.design() == other.design());
    Some(Agreement { capacity, sizes })
}

/// Makes each layer of `target` what `operation` makes of those of `sources`, for which there is room in `layers`, and of itself
/// unless it `is_new`. Whether that changed any.
fn combine<'a, L: Kind + 'a>(
    target: &mut Chain<L>,
    mut layers: Vec<&'a L>,
    sources: &[&'a Filter],
    operation: Operation,
    is_new: bool,
) -> bool {
    let mut changed = false;
    for (index, target) in target.layers_mut().iter_mut().enumerate() {
        layers.clear();
        layers.extend(sources.iter().filter_map(|source| L::chain(source)?.layers().get(index)));
        changed |= target.combine(&layers, operation, is_new);
    }
    changed
}

/// How bytes are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Or,
    And,
    /// Of counters: their sum, up to the most that they hold.
    Sum,
    /// Of counters.
    Minimum,
}

/// Bytes that are combined before the next: all that is needed of them stays in the processor's first cache meanwhile.
const PART: usize = 4 << 10;

/// Combines `target` and `sources`, which are as long, by `rule`; but if `target` `is_new`, as it is zeroed, the `sources` only.
/// Each part of the result is shown to `see`. Whether `target` changed.
///
/// All memory is gone through once. What stays zero is not written: the pages of a sparse filter stay untouched.
pub fn combine_bytes<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    rule: Rule,
    is_new: bool,
    mut see: impl FnMut(&[u8]),
) -> bool {
    let mut changed = false;
    for (index, part) in target.chunks_mut(PART).enumerate() {
        let mut sources = sources.clone().filter_map(|source| source.chunks(PART).nth(index));
        // What is not read before it is written costs one page fault a page instead of two.
        let first = if is_new { sources.next() } else { None };
        if let Some(first) = first.filter(|first| first.iter().any(|&byte| byte != 0)) {
            part.copy_from_slice(first);
            changed = true;
        }
        for source in sources {
            changed |= apply(part, source, rule);
        }
        see(part);
    }
    changed
}

/// As [`combine_bytes`], of bits. Whether `target` changed, and how many bits of it are set.
pub fn combine_bits<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    operation: Operation,
    is_new: bool,
) -> (bool, u64) {
    let mut ones = 0;
    let rule = operation.rule(Cell::Bit);
    let changed = combine_bytes(target, sources, rule, is_new, |part| ones += marked(part));
    (changed, ones)
}

/// Combines `target` with `source`. Whether it changed.
///
/// Compiled twice, for any processor and for one with AVX2, which is chosen when the program runs.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn apply(target: &mut [u8], source: &[u8], rule: Rule) -> bool {
    match rule {
        Rule::Or => in_blocks(target, source, |one, other| one | other),
        Rule::And => in_blocks(target, source, |one, other| one & other),
        Rule::Sum => {
            in_blocks(target, source, |one, other| halves(one, other, |one, other| (one + other).min(MAX_COUNT)))
        }
        Rule::Minimum => in_blocks(target, source, |one, other| halves(one, other, u8::min)),
    }
}

#[inline(always)]
fn in_blocks(target: &mut [u8], source: &[u8], rule: impl Fn(u8, u8) -> u8) -> bool {
    const BLOCK: usize = size_of::<Block>();
    let ((blocks, rest), (sources, others)) = (target.as_chunks_mut::<BLOCK>(), source.as_chunks::<BLOCK>());
    let mut changed = false;
    for (target, source) in blocks.iter_mut().zip(sources) {
        let combined: Block = std::array::from_fn(|byte| rule(target[byte], source[byte]));
        if combined != *target {
            *target = combined;
            changed = true;
        }
    }
    for (target, &source) in rest.iter_mut().zip(others) {
        let combined = rule(*target, source);
        changed |= combined != *target;
        *target = combined;
    }
    changed
}

/// The two counters of a byte.
#[inline(always)]
fn halves(one: u8, other: u8, rule: impl Fn(u8, u8) -> u8) -> u8 {
    rule(one & MAX_COUNT, other & MAX_COUNT) | rule(one >> 4, other >> 4) << 4
}

/// How many bits are set; compiled as [`apply`].
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn marked(part: &[u8]) -> u64 {
    ones(part)
}

/// How many items there are in what `operation` made of `operands`, by an estimate from its fill, as far as that can be. Of one
/// operand, or of some of which all but one are empty, it is known.
pub fn items(operation: Operation, operands: impl Iterator<Item = Count>, estimate: f64) -> Count {
    let (mut number, mut least, mut most, mut sum, mut is_estimate) = (0, u64::MAX, 0, 0u64, false);
    for count in operands {
        least = least.min(count.items());
        most = most.max(count.items());
        sum = sum.saturating_add(count.items());
        is_estimate |= count.is_estimate();
        number += 1;
    }
    let (low, high) = match operation {
        Operation::Union => (most, sum),
        Operation::Intersection if number == 1 => (least, least),
        Operation::Intersection => (0, least),
    };
    Count::new((estimate.round() as u64).clamp(low, high), is_estimate || low < high)
}
