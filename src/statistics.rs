//! The figures of [`INFO bf`](crate::info_section): filters and items for each kind, and rejections for each reason.
//!
//! Gauges describe the filters that exist now. They change whenever a value is created, changed or freed, so they stay
//! right after a reload, a FLUSHALL or an eviction, and INFO need not read every filter. All other figures count events
//! since the server started. The figures cost a handful of instructions per addition.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::reply_error::{Error, Reason};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::Kind;

/// A number of events, or a quantity that goes up and down. Only the thread that runs commands adds to it. Any thread
/// may free a filter, and read.
struct Gauge {
    added: AtomicU64,
    removed: AtomicU64,
}

impl Gauge {
    const fn new() -> Gauge {
        Gauge { added: AtomicU64::new(0), removed: AtomicU64::new(0) }
    }

    /// Adds without an atomic addition, which would cost as much as all other figures together: no other thread adds.
    #[inline]
    fn add(&self, count: u64) {
        self.added.store(self.added.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    fn change(&self, from: u64, to: u64) {
        self.add(to.wrapping_sub(from));
    }

    /// Records a removal by any thread.
    fn remove(&self, count: u64) {
        self.removed.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.added.load(Ordering::Relaxed).wrapping_sub(self.removed.load(Ordering::Relaxed))
    }
}

/// Declares the figures of a kind, with their names in INFO, in its order.
macro_rules! figures {
    ($($(#[$doc:meta])* $figure:ident = $name:literal;)*) => {
        #[derive(Clone, Copy)]
        enum Figure {
            $($(#[$doc])* $figure,)*
        }

        const NAMES: [&CStr; [$($name),*].len()] = [$($name),*];
    };
}

figures! {
    Filters = c"filters";
    Layers = c"layers";
    Bytes = c"bytes";
    Items = c"items";
    ItemsAdded = c"items_added";
    Duplicates = c"duplicates";
    ItemsRemoved = c"items_removed";
    ItemsForgotten = c"items_forgotten";
    SlicesEndedEarly = c"slices_ended_early";
    LayersGrown = c"layers_grown";
    AdditionsRejected = c"additions_rejected";
    /// Only shown in total, under [another name](exporter_figures).
    Capacity = c"capacity";
}

/// The number of figures that are shown for each kind. The others follow them.
const SHOWN: usize = NAMES.len() - 1;

/// The contribution of a filter to the gauges.
#[derive(Clone, Copy, Default)]
pub(crate) struct Footprint {
    layers: u64,
    pub bytes: u64,
    capacity: u64,
    items: u64,
}

impl Footprint {
    pub(crate) fn of(filter: &Filter) -> Footprint {
        let [layers, bytes, capacity, items] = filter.footprint();
        Footprint { layers, bytes, capacity, items }
    }

    fn figures(self) -> [(Figure, u64); 4] {
        let Footprint { layers, bytes, capacity, items } = self;
        [(Figure::Layers, layers), (Figure::Bytes, bytes), (Figure::Capacity, capacity), (Figure::Items, items)]
    }
}

/// The figures of a kind, by [`Figure`]. Most are only ever added to.
struct KindFigures([Gauge; NAMES.len()]);

/// The figures by [`Kind`].
static KINDS: [KindFigures; Kind::ALL.len()] =
    [const { KindFigures([const { Gauge::new() }; NAMES.len()]) }; Kind::ALL.len()];

impl KindFigures {
    #[inline]
    fn of(filter: &Filter) -> &'static KindFigures {
        &KINDS[filter.kind() as usize]
    }

    /// Adds to a figure, on the thread that runs commands.
    #[inline]
    fn add(&self, figure: Figure, count: u64) {
        self.0[figure as usize].add(count);
    }

    fn change(&self, from: Footprint, to: Footprint) {
        for ((figure, from), (_, to)) in from.figures().into_iter().zip(to.figures()) {
            self.0[figure as usize].change(from, to);
        }
    }

    fn shown(&self) -> Figures<SHOWN> {
        std::array::from_fn(|index| (NAMES[index], self.0[index].get()))
    }
}

static REJECTED: [Gauge; Reason::ALL.len()] = [const { Gauge::new() }; Reason::ALL.len()];

/// Rejected commands from the master or the append-only file, and rejected filters of snapshots, for any reason.
static REPLICATED_REJECTED: Gauge = Gauge::new();

static INTERNAL_ERRORS: AtomicU64 = AtomicU64::new(0);

/// The allocations that active defragmentation moved, and those that it left in place.
static DEFRAG_HITS: Gauge = Gauge::new();
static DEFRAG_MISSES: Gauge = Gauge::new();

/// Records that a filter became a value of the server.
pub(crate) fn on_create(filter: &Filter) {
    let kind = KindFigures::of(filter);
    kind.add(Figure::Filters, 1);
    kind.change(Footprint::default(), Footprint::of(filter));
}

/// Records that a value is about to be freed, by any thread.
pub(crate) fn on_free(filter: &Filter) {
    let kind = KindFigures::of(filter);
    let freed = Footprint::of(filter).figures().into_iter().chain([(Figure::Filters, 1)]);
    freed.for_each(|(figure, count)| kind.0[figure as usize].remove(count));
}

/// Counts items that were added to the filter of a key: new ones and duplicates.
#[inline]
pub(crate) fn count_additions(filter: &Filter, new: u64, duplicates: u64) {
    let kind = KindFigures::of(filter);
    kind.add(Figure::Items, new);
    kind.add(Figure::ItemsAdded, new);
    kind.add(Figure::Duplicates, duplicates);
}

/// Counts occurrences of items that were removed from the filter of a key.
pub(crate) fn count_removals(filter: &Filter, count: u64) {
    KindFigures::of(filter).add(Figure::ItemsRemoved, count);
}

/// A snapshot of a filter that forgets, to compute how much it forgot.
#[derive(Clone, Copy)]
pub(crate) struct Forgetting {
    items: u64,
    ended_early: u64,
}

impl Forgetting {
    pub(crate) fn of(filter: &Filter) -> Forgetting {
        let ended_early = filter.windowed().map_or(0, |filter| filter.slices().ended_early());
        Forgetting { items: if filter.forgets() { filter.len() } else { 0 }, ended_early }
    }
}

/// Counts the items that the filter of a key forgot while `added` items were added. Returns true if it forgot any.
pub(crate) fn count_forgotten(filter: &Filter, before: Forgetting, added: u64) -> bool {
    if !filter.forgets() {
        return false;
    }
    let (kind, after) = (KindFigures::of(filter), Forgetting::of(filter));
    let counted = before.items + added;
    let forgotten = counted.saturating_sub(after.items);
    // The items of a forged slice can be more than the slice said, so that renewing one adds to the number.
    kind.0[Figure::Items as usize].change(counted, after.items);
    kind.add(Figure::ItemsForgotten, forgotten);
    kind.add(Figure::SlicesEndedEarly, after.ended_early - before.ended_early);
    forgotten > 0
}

/// Records that the filter of a key changed, other than by additions.
pub(crate) fn on_change(filter: &Filter, before: Footprint) {
    KindFigures::of(filter).change(before, Footprint::of(filter));
}

/// Records the growth of a filter while items were added, and whether all of them fit. [`count_additions`] counts the
/// items.
pub(crate) fn on_insert(filter: &Filter, before: Footprint, all_fit: bool) {
    let (kind, after) = (KindFigures::of(filter), Footprint::of(filter));
    kind.change(before, Footprint { items: before.items, ..after });
    kind.add(Figure::LayersGrown, after.layers.saturating_sub(before.layers));
    kind.add(Figure::AdditionsRejected, u64::from(!all_fit));
}

/// Counts a rejection by its reason, and whether it was replicated: this server may lack data that the master or a file
/// has.
pub(crate) fn count_rejection(error: Error, is_replicated: bool) {
    if let Some(reason) = error.reason() {
        REJECTED[reason as usize].add(1);
    }
    REPLICATED_REJECTED.add(is_replicated.into());
}

/// Counts an allocation that active defragmentation moved or left in place.
pub(crate) fn count_defragmentation(moved: bool) {
    if moved { &DEFRAG_HITS } else { &DEFRAG_MISSES }.add(1);
}

/// Counts a caught panic, in any thread.
pub(crate) fn count_panic() {
    INTERNAL_ERRORS.fetch_add(1, Ordering::Relaxed);
}

pub(crate) type Figures<const N: usize> = [(&'static CStr, u64); N];

pub(crate) fn by_kind() -> [(&'static CStr, Figures<SHOWN>); KINDS.len()] {
    std::array::from_fn(|kind| (Kind::ALL[kind].name(), KINDS[kind].shown()))
}

pub(crate) fn totals() -> Figures<SHOWN> {
    std::array::from_fn(|index| (NAMES[index], total(index)))
}

pub(crate) fn has_filters() -> bool {
    total(Figure::Filters as usize) > 0
}

fn total(figure: usize) -> u64 {
    KINDS.iter().fold(0, |sum, kind| sum.wrapping_add(kind.0[figure].get()))
}

pub(crate) fn rejections() -> Figures<{ Reason::ALL.len() }> {
    Reason::ALL.map(|reason| (reason.figure(), REJECTED[reason as usize].get()))
}

pub(crate) fn module_figures() -> Figures<2> {
    [(c"rejected_replicated", REPLICATED_REJECTED.get()), (c"internal_errors", INTERNAL_ERRORS.load(Ordering::Relaxed))]
}

/// Returns figures under valkey-bloom's names, which redis_exporter knows and exports without a script.
pub(crate) fn exporter_figures() -> Figures<7> {
    let total = |figure| total(figure as usize);
    [
        (c"bloom_total_memory_bytes", total(Figure::Bytes)),
        (c"bloom_num_objects", total(Figure::Filters)),
        (c"bloom_num_filters_across_objects", total(Figure::Layers)),
        (c"bloom_num_items_across_objects", total(Figure::Items)),
        (c"bloom_capacity_across_objects", total(Figure::Capacity)),
        (c"bloom_defrag_hits", DEFRAG_HITS.get()),
        (c"bloom_defrag_misses", DEFRAG_MISSES.get()),
    ]
}
