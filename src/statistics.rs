//! The figures of [`INFO bf`](crate::info_section): how many filters there are and what became of items, for each
//! layout, and what was rejected, and why.
//!
//! Some figures are of what there is now. They follow each value as it comes and goes, so that they are right after a
//! reload, a FLUSHALL, or an eviction, and nobody has to look at a million filters to tell. The others count since the
//! server started. An addition costs a handful of instructions for it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rejection_reason::Reason;
use crate::reply_error::Error;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::FilterKind;

/// A sum. The thread that runs commands adds to it; any thread may read it.
struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds, not in one atomic step, which would cost as much as all the rest: nobody else writes.
    #[inline]
    fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An amount of what there is now. Filters may be freed by another thread than the one that runs commands.
struct Gauge {
    added: Counter,
    removed: AtomicU64,
}

impl Gauge {
    const fn new() -> Gauge {
        Gauge { added: Counter::new(), removed: AtomicU64::new(0) }
    }

    /// Notes a change by the thread that runs commands.
    fn change(&self, from: u64, to: u64) {
        self.added.add(to.wrapping_sub(from));
    }

    /// Notes a removal by any thread.
    fn remove(&self, count: u64) {
        self.removed.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.added.get().wrapping_sub(self.removed.load(Ordering::Relaxed))
    }
}

/// The contribution of a filter to the figures.
#[derive(Clone, Copy, Default)]
pub(crate) struct Footprint {
    layers: u64,
    pub bytes: u64,
    capacity: u64,
    items: u64,
}

impl Footprint {
    pub(crate) fn of(filter: &Filter) -> Footprint {
        Footprint {
            layers: filter.num_parts() as u64,
            bytes: filter.memory_usage() as u64,
            capacity: filter.capacity(),
            items: filter.len(),
        }
    }
}

/// The figures of a layout.
struct Layout {
    name: &'static CStr,
    filters: Gauge,
    layers: Gauge,
    bytes: Gauge,
    capacity: Gauge,
    /// Items without those that [`count_additions`] counts.
    other_items: Gauge,
    items_added: Counter,
    duplicates: Counter,
    items_removed: Counter,
    items_forgotten: Counter,
    slices_ended_early: Counter,
    layers_grown: Counter,
    additions_rejected: Counter,
}

static NATIVE: Layout = Layout::new(c"native");
static COUNTING: Layout = Layout::new(c"counting");
static WINDOWED: Layout = Layout::new(c"windowed");
static CLASSIC: Layout = Layout::new(c"classic");

static LAYOUTS: [&Layout; 4] = [&NATIVE, &COUNTING, &WINDOWED, &CLASSIC];

impl Layout {
    const fn new(name: &'static CStr) -> Layout {
        Layout {
            name,
            filters: Gauge::new(),
            layers: Gauge::new(),
            bytes: Gauge::new(),
            capacity: Gauge::new(),
            other_items: Gauge::new(),
            items_added: Counter::new(),
            duplicates: Counter::new(),
            items_removed: Counter::new(),
            items_forgotten: Counter::new(),
            slices_ended_early: Counter::new(),
            layers_grown: Counter::new(),
            additions_rejected: Counter::new(),
        }
    }

    #[inline]
    fn of(filter: &Filter) -> &'static Layout {
        match filter.kind() {
            FilterKind::Native => &NATIVE,
            FilterKind::Counting => &COUNTING,
            FilterKind::Windowed => &WINDOWED,
            FilterKind::Classic => &CLASSIC,
        }
    }

    fn change(&self, from: Footprint, to: Footprint) {
        self.layers.change(from.layers, to.layers);
        self.bytes.change(from.bytes, to.bytes);
        self.capacity.change(from.capacity, to.capacity);
        self.other_items.change(from.items, to.items);
    }

    fn items(&self) -> u64 {
        self.other_items.get().wrapping_add(self.items_added.get())
    }

    fn figures(&self) -> Figures<11> {
        [
            (c"filters", self.filters.get()),
            (c"layers", self.layers.get()),
            (c"bytes", self.bytes.get()),
            (c"items", self.items()),
            (c"items_added", self.items_added.get()),
            (c"duplicates", self.duplicates.get()),
            (c"items_removed", self.items_removed.get()),
            (c"items_forgotten", self.items_forgotten.get()),
            (c"slices_ended_early", self.slices_ended_early.get()),
            (c"layers_grown", self.layers_grown.get()),
            (c"additions_refused", self.additions_rejected.get()),
        ]
    }
}

static REJECTED: [Counter; Reason::ALL.len()] = [const { Counter::new() }; Reason::ALL.len()];

/// Rejections for all reasons together: commands of the master or the append-only file, and filters in snapshots.
static REPLICATED_REJECTED: Counter = Counter::new();

static INTERNAL_ERRORS: AtomicU64 = AtomicU64::new(0);

/// Allocations that active defragmentation moved, and those that it left where they were.
static DEFRAG_HITS: Counter = Counter::new();
static DEFRAG_MISSES: Counter = Counter::new();

/// Notes that a filter became a value of the server's.
pub(crate) fn on_create(filter: &Filter) {
    let layout = Layout::of(filter);
    layout.filters.change(0, 1);
    layout.change(Footprint::default(), Footprint::of(filter));
}

/// Notes that a value is about to be freed, by any thread.
pub(crate) fn on_free(filter: &Filter) {
    let (layout, footprint) = (Layout::of(filter), Footprint::of(filter));
    layout.filters.remove(1);
    layout.layers.remove(footprint.layers);
    layout.bytes.remove(footprint.bytes);
    layout.capacity.remove(footprint.capacity);
    layout.other_items.remove(footprint.items);
}

/// Counts items that were added to the filter of a key: those that were new, and those that were not.
#[inline]
pub(crate) fn count_additions(filter: &Filter, new: u64, duplicates: u64) {
    let layout = Layout::of(filter);
    layout.items_added.add(new);
    layout.duplicates.add(duplicates);
}

/// Counts occurrences of items that were removed from the filter of a key.
pub(crate) fn count_removals(filter: &Filter, count: u64) {
    Layout::of(filter).items_removed.add(count);
}

/// What a filter has remembered and forgotten, to tell how much it forgets.
#[derive(Clone, Copy)]
pub(crate) struct Forgetting {
    items: u64,
    ended_early: u64,
}

impl Forgetting {
    pub(crate) fn of(filter: &Filter) -> Forgetting {
        let ended_early = filter.windowed().map_or(0, |filter| filter.slices().ended_early());
        Forgetting { items: if filter.windowed().is_some() { filter.len() } else { 0 }, ended_early }
    }
}

/// Counts what the filter of a key forgot while `added` items were added to it. Returns true if that were any.
pub(crate) fn count_forgotten(filter: &Filter, before: Forgetting, added: u64) -> bool {
    if filter.windowed().is_none() {
        return false;
    }
    let (layout, after) = (Layout::of(filter), Forgetting::of(filter));
    let forgotten = (before.items + added).saturating_sub(after.items);
    layout.other_items.change(forgotten, 0);
    layout.items_forgotten.add(forgotten);
    layout.slices_ended_early.add(after.ended_early - before.ended_early);
    forgotten > 0
}

/// Notes that the filter of a key changed, other than by additions to its newest layer.
pub(crate) fn on_change(filter: &Filter, before: Footprint) {
    Layout::of(filter).change(before, Footprint::of(filter));
}

/// Notes how the filter of a key grew, if it did, while items were added to it, which [`count_additions`] counts; or that it
/// could not.
pub(crate) fn on_insert(filter: &Filter, before: Footprint, could: bool) {
    let (layout, after) = (Layout::of(filter), Footprint::of(filter));
    layout.change(before, Footprint { items: before.items, ..after });
    layout.layers_grown.add(after.layers.saturating_sub(before.layers));
    layout.additions_rejected.add(u64::from(!could));
}

/// Counts what was rejected, for any layout.
pub(crate) fn count_rejection(error: Error) {
    if let Some(reason) = error.reason() {
        REJECTED[reason as usize].add(1);
    }
}

/// Counts a rejected command of the master or a file: this server lacks data that the other has.
pub(crate) fn count_replicated_rejection() {
    REPLICATED_REJECTED.add(1);
}

/// Counts an allocation that active defragmentation moved, or left where it was.
pub(crate) fn count_defragmentation(moved: bool) {
    if moved { &DEFRAG_HITS } else { &DEFRAG_MISSES }.add(1);
}

/// Counts a panic that was caught, in any thread.
pub(crate) fn count_panic() {
    INTERNAL_ERRORS.fetch_add(1, Ordering::Relaxed);
}

/// Figures by name.
pub(crate) type Figures<const N: usize> = [(&'static CStr, u64); N];

/// Returns the figures of each layout.
pub(crate) fn by_layout() -> [(&'static CStr, Figures<11>); LAYOUTS.len()] {
    LAYOUTS.map(|layout| (layout.name, layout.figures()))
}

/// Returns the figures of all layouts together.
pub(crate) fn totals() -> Figures<11> {
    let [first, others @ ..] = LAYOUTS.map(Layout::figures);
    let mut totals = first;
    for (index, (_, total)) in totals.iter_mut().enumerate() {
        *total = others.iter().fold(*total, |sum, others| sum.wrapping_add(others[index].1));
    }
    totals
}

/// Returns how much was rejected for each reason.
pub(crate) fn rejections() -> Figures<{ Reason::ALL.len() }> {
    Reason::ALL.map(|reason| (reason.name(), REJECTED[reason as usize].get()))
}

/// Returns the figures of the whole module.
pub(crate) fn module_figures() -> Figures<2> {
    [(c"refused_replicated", REPLICATED_REJECTED.get()), (c"internal_errors", INTERNAL_ERRORS.load(Ordering::Relaxed))]
}

/// Returns figures under the names that redis_exporter has metrics for without a script: valkey-bloom's.
pub(crate) fn exporter_figures() -> Figures<7> {
    let sum = |figure: fn(&Layout) -> u64| LAYOUTS.iter().fold(0, |sum, layout| figure(layout).wrapping_add(sum));
    [
        (c"bloom_total_memory_bytes", sum(|layout| layout.bytes.get())),
        (c"bloom_num_objects", sum(|layout| layout.filters.get())),
        (c"bloom_num_filters_across_objects", sum(|layout| layout.layers.get())),
        (c"bloom_num_items_across_objects", sum(Layout::items)),
        (c"bloom_capacity_across_objects", sum(|layout| layout.capacity.get())),
        (c"bloom_defrag_hits", DEFRAG_HITS.get()),
        (c"bloom_defrag_misses", DEFRAG_MISSES.get()),
    ]
}
