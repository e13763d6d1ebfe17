//! What `INFO bf` shows: how many filters there are and what became of items, for each layout, and what was refused, and why.
//!
//! Some figures are of what there is now. They follow each value as it comes and goes, so that they are right after a reload, a
//! FLUSHALL, or an eviction, and nobody has to look at a million filters to tell. The others count since the server started.
//! An addition costs a handful of instructions for it.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use super::context::Context;
use super::edge::{OK, call, guard};
use super::error::{Error, Reason};
use super::rejection;
use oxbloom_filter::Filter;

/// A number that only grows. It is raised by one thread at a time, that which runs commands, and read by any.
struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Not one atomic step, which would cost as much as all the rest: nobody else writes.
    #[inline]
    fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An amount of what is there now. Filters may be freed by another thread than the one that runs commands.
struct Amount {
    come: Counter,
    gone: AtomicU64,
}

impl Amount {
    const fn new() -> Amount {
        Amount { come: Counter::new(), gone: AtomicU64::new(0) }
    }

    /// From the thread that runs commands.
    fn change(&self, from: u64, to: u64) {
        self.come.add(to.wrapping_sub(from));
    }

    fn leave(&self, count: u64) {
        self.gone.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.come.get().wrapping_sub(self.gone.load(Ordering::Relaxed))
    }
}

/// What a filter weighs.
#[derive(Clone, Copy, Default)]
pub struct Weight {
    layers: u64,
    pub bytes: u64,
    capacity: u64,
    items: u64,
}

impl Weight {
    pub fn of(filter: &Filter) -> Weight {
        Weight {
            layers: filter.depth() as u64,
            bytes: filter.memory_usage() as u64,
            capacity: filter.capacity(),
            items: filter.items(),
        }
    }
}

/// The filters of a layout.
struct Layout {
    name: &'static CStr,
    filters: Amount,
    layers: Amount,
    bytes: Amount,
    capacity: Amount,
    /// Without those that [`added`] counts.
    other_items: Amount,
    items_added: Counter,
    duplicates: Counter,
    items_removed: Counter,
    layers_grown: Counter,
    additions_refused: Counter,
}

static NATIVE: Layout = Layout::new(c"native");
static COUNTING: Layout = Layout::new(c"counting");
static CLASSIC: Layout = Layout::new(c"classic");

impl Layout {
    const fn new(name: &'static CStr) -> Layout {
        Layout {
            name,
            filters: Amount::new(),
            layers: Amount::new(),
            bytes: Amount::new(),
            capacity: Amount::new(),
            other_items: Amount::new(),
            items_added: Counter::new(),
            duplicates: Counter::new(),
            items_removed: Counter::new(),
            layers_grown: Counter::new(),
            additions_refused: Counter::new(),
        }
    }

    #[inline]
    fn of(filter: &Filter) -> &'static Layout {
        match filter {
            Filter::Native(_) => &NATIVE,
            Filter::Counting(_) => &COUNTING,
            Filter::Classic(_) => &CLASSIC,
        }
    }

    fn change(&self, from: Weight, to: Weight) {
        self.layers.change(from.layers, to.layers);
        self.bytes.change(from.bytes, to.bytes);
        self.capacity.change(from.capacity, to.capacity);
        self.other_items.change(from.items, to.items);
    }

    fn items(&self) -> u64 {
        self.other_items.get().wrapping_add(self.items_added.get())
    }

    fn figures(&self) -> [(&'static CStr, u64); 9] {
        [
            (c"filters", self.filters.get()),
            (c"layers", self.layers.get()),
            (c"bytes", self.bytes.get()),
            (c"items", self.items()),
            (c"items_added", self.items_added.get()),
            (c"duplicates", self.duplicates.get()),
            (c"items_removed", self.items_removed.get()),
            (c"layers_grown", self.layers_grown.get()),
            (c"additions_refused", self.additions_refused.get()),
        ]
    }
}

static REFUSED: [Counter; Reason::ALL.len()] = [const { Counter::new() }; Reason::ALL.len()];

/// Of all reasons together: commands of the master or the append-only file, and filters in snapshots.
static REPLICATED_REFUSED: Counter = Counter::new();

static INTERNAL_ERRORS: AtomicU64 = AtomicU64::new(0);

/// Allocations that active defragmentation moved, and those that it left where they were.
static DEFRAG_HITS: Counter = Counter::new();
static DEFRAG_MISSES: Counter = Counter::new();

/// A filter became a value of the server's.
pub fn entered(filter: &Filter) {
    let layout = Layout::of(filter);
    layout.filters.change(0, 1);
    layout.change(Weight::default(), Weight::of(filter));
}

/// A value is about to be freed, by whatever thread.
pub fn left(filter: &Filter) {
    let (layout, weight) = (Layout::of(filter), Weight::of(filter));
    layout.filters.leave(1);
    layout.layers.leave(weight.layers);
    layout.bytes.leave(weight.bytes);
    layout.capacity.leave(weight.capacity);
    layout.other_items.leave(weight.items);
}

/// Items were added to the filter of a key: so many that were new, and so many that were not.
#[inline]
pub fn added(filter: &Filter, new: u64, duplicates: u64) {
    let layout = Layout::of(filter);
    layout.items_added.add(new);
    layout.duplicates.add(duplicates);
}

/// Occurrences of items were removed from the filter of a key.
pub fn removed(filter: &Filter, count: u64) {
    Layout::of(filter).items_removed.add(count);
}

/// The filter of a key was changed, other than by additions to its newest layer.
pub fn changed(filter: &Filter, before: Weight) {
    Layout::of(filter).change(before, Weight::of(filter));
}

/// The filter of a key got another layer for new items, or could not.
pub fn grown(filter: &Filter, could: bool) {
    let layout = Layout::of(filter);
    if could { &layout.layers_grown } else { &layout.additions_refused }.add(1);
}

/// Something was refused, of whatever layout.
pub fn refused(error: Error) {
    if let Some(reason) = error.reason() {
        REFUSED[reason as usize].add(1);
    }
}

/// Counts a rejected command of the master or a file: this server lacks data that the other has.
pub fn replicated_refused() {
    REPLICATED_REFUSED.add(1);
}

/// Active defragmentation looked at an allocation, and maybe moved it.
pub fn defragmented(moved: bool) {
    if moved { &DEFRAG_HITS } else { &DEFRAG_MISSES }.add(1);
}

/// A panic was caught, in whatever thread.
pub fn panicked() {
    INTERNAL_ERRORS.fetch_add(1, Ordering::Relaxed);
}

/// The names that redis_exporter has metrics for without a script: valkey-bloom's.
fn exporter_figures(layouts: &[&Layout]) -> [(&'static CStr, u64); 7] {
    let sum = |figure: fn(&Layout) -> u64| layouts.iter().fold(0, |sum, layout| figure(layout).wrapping_add(sum));
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

/// Our version, for INFO.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"unknown",
};

/// Registers the section of INFO. `false` if the server refuses.
pub fn register(ctx: &Context) -> bool {
    call!(RedisModule_RegisterInfoFunc(ctx.as_raw(), Some(show))) == OK
}

/// Writes the section. The server asks for it in crash reports as well, where memory may be in any state: nothing is
/// allocated, and no filter is looked at.
extern "C" fn show(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    guard(c"info", (), || {
        if call!(RedisModule_InfoAddSection(info, c"".as_ptr())) != OK {
            return;
        }
        call!(RedisModule_InfoAddFieldCString(info, c"version".as_ptr(), VERSION.as_ptr()));
        let number = |name: &CStr, number| {
            call!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), number));
        };
        let layouts = [&NATIVE, &COUNTING, &CLASSIC];
        let [native, others @ ..] = layouts.map(Layout::figures);
        for (index, (name, figure)) in native.into_iter().enumerate() {
            number(name, others.iter().fold(figure, |sum, others| sum.wrapping_add(others[index].1)));
        }
        for (reason, count) in Reason::ALL.iter().zip(&REFUSED) {
            number(reason.name(), count.get());
        }
        number(c"refused_replicated", REPLICATED_REFUSED.get());
        number(c"internal_errors", INTERNAL_ERRORS.load(Ordering::Relaxed));
        rejection::last(|rejection| {
            call!(RedisModule_InfoAddFieldCString(info, c"last_rejection".as_ptr(), rejection.as_ptr()));
        });
        for (name, figure) in exporter_figures(&layouts) {
            number(name, figure);
        }
        for layout in layouts {
            call!(RedisModule_InfoBeginDictField(info, layout.name.as_ptr()));
            layout.figures().into_iter().for_each(|(name, figure)| number(name, figure));
            call!(RedisModule_InfoEndDictField(info));
        }
    });
}
