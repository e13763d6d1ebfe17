//! Measures the library's cost per item.
//!
//! For each workload, the benchmark runs itself under callgrind, which counts only within [`measured`]. In qemu, which
//! counts all of a program, it also runs without what is measured, and subtracts these counts.

use std::fs;
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, CreateParams, ErrorRate, Growth, InsertOptions, KindParams, Window};

use super::Cost;
use super::callgrind::{self, Counts};
use super::qemu;

/// The argument that makes the benchmark run one workload. The next argument names it.
pub(crate) const WORKLOAD_FLAG: &str = "--workload";

/// The argument that makes it end where the measured part of the workload would begin.
pub(crate) const PREPARATION_FLAG: &str = "--preparation";

/// The settings that make glibc map every array of bits that the filter aligns, so that all of them must be padded. On
/// glibc's heap, some arrays happen to be aligned, and take fewer instructions.
const MAP_LARGE_ARRAYS: [(&str, &str); 2] = [("MALLOC_MMAP_THRESHOLD_", "4096"), ("MALLOC_TOP_PAD_", "0")];

const ITEMS: usize = 1 << 14;

#[derive(Clone, Copy)]
enum Operation {
    Insert,
    Hit,
    Miss,
    InsertAlone,
    HitAlone,
    MissAlone,
    Remove,
}
use Operation::*;

struct Workload {
    name: &'static str,
    operation: Operation,
    error_rate: f64,
    capacity: usize,
    kind: KindParams,
}

impl Workload {
    const fn new(name: &'static str, operation: Operation, error_rate: f64, capacity: usize) -> Workload {
        Workload { name, operation, error_rate, capacity, kind: KindParams::Native { seed: 42 } }
    }

    const fn classic(name: &'static str, operation: Operation, capacity: usize) -> Workload {
        Workload { kind: KindParams::Classic { stored_expansion: 2 }, ..Workload::new(name, operation, 0.01, capacity) }
    }

    const fn counting(name: &'static str, operation: Operation) -> Workload {
        Workload { kind: KindParams::Counting { seed: 42 }, ..Workload::new(name, operation, 0.01, 100) }
    }

    /// The window is as long as the time in which all items come, a batch each second.
    const fn windowed(name: &'static str, operation: Operation) -> Workload {
        let length = NonZeroU64::new(1000 * (ITEMS / BATCH) as u64);
        let window = Window { length, slices: 16, refresh: false, rolling: false };
        Workload { kind: KindParams::Windowed { seed: 42, window }, ..Workload::new(name, operation, 0.01, ITEMS) }
    }
}

const WORKLOADS: &[Workload] = &[
    Workload::new("insert, 1 %", Insert, 0.01, ITEMS),
    Workload::new("hit, 1 %", Hit, 0.01, ITEMS),
    Workload::new("miss, 1 %", Miss, 0.01, ITEMS),
    Workload::new("insert, 0.1 %", Insert, 0.001, ITEMS),
    Workload::new("hit, 0.1 %", Hit, 0.001, ITEMS),
    Workload::new("miss, 0.1 %", Miss, 0.001, ITEMS),
    // Grown from 100 items, with a table.
    Workload::new("insert, growing", Insert, 0.01, 100),
    Workload::new("hit, grown", Hit, 0.01, 100),
    Workload::new("miss, grown", Miss, 0.01, 100),
    Workload::classic("insert, classic", Insert, ITEMS),
    Workload::classic("hit, classic", Hit, ITEMS),
    Workload::classic("miss, classic", Miss, ITEMS),
    // Grown from 100 items.
    Workload::counting("insert, counting", Insert),
    Workload::counting("hit, counting", Hit),
    Workload::counting("miss, counting", Miss),
    Workload::counting("remove, counting", Remove),
    // Two windows of other items came before.
    Workload::windowed("insert, windowed", Insert),
    Workload::windowed("hit, windowed", Hit),
    Workload::windowed("miss, windowed", Miss),
    Workload::windowed("hit, windowed, one by one", HitAlone),
    Workload::new("insert, one by one", InsertAlone, 0.01, ITEMS),
    Workload::new("hit, one by one", HitAlone, 0.01, ITEMS),
    Workload::new("miss, one by one", MissAlone, 0.01, ITEMS),
];

/// Measures the cost per item in each workload.
pub(crate) fn costs(profiles: &Path) -> impl Iterator<Item = (&'static str, Cost)> {
    callgrind::require();
    fs::create_dir_all(profiles).expect("a folder for the profiles");
    let program = std::env::current_exe().and_then(fs::canonicalize).expect("the path of this program");
    WORKLOADS.iter().map(move |&Workload { name, .. }| {
        let profile = callgrind::profile_of(name, profiles);
        let prefix = callgrind::prefix("--toggle-collect=*::library::measured*", &profile);
        run_under(&prefix, &program, WORKLOAD_FLAG, name);
        let profile = fs::read_to_string(profile).expect("a profile");
        (name, Cost::of_each(Counts::parse(&profile, &program), ITEMS))
    })
}

/// The same in qemu.
pub(crate) fn costs_in_qemu(profiles: &Path) -> impl Iterator<Item = (&'static str, Cost)> {
    fs::create_dir_all(profiles).expect("a folder for the profiles");
    let program = std::env::current_exe().and_then(fs::canonicalize).expect("the path of this program");
    WORKLOADS.iter().map(move |&Workload { name, .. }| {
        let profile = callgrind::profile_of(name, profiles);
        let [before, all] = [PREPARATION_FLAG, WORKLOAD_FLAG].map(|flag| {
            run_under(&qemu::prefix(&program, &profile), &program, flag, name);
            qemu::counts(&profile)
        });
        (name, Cost::of_each(all - before, ITEMS))
    })
}

/// Runs this program for a workload, with a prefix that counts.
fn run_under(prefix: &[String], program: &Path, flag: &str, workload: &str) {
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).arg(program).args([flag, workload]).envs(MAP_LARGE_ARRAYS);
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", prefix[0]));
    assert!(output.status.success(), "{workload}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a workload, or only its preparation.
pub(crate) fn run(flag: &str, name: &str) {
    let workload = WORKLOADS.iter().find(|workload| workload.name == name).expect("one of the workloads");
    let params = CreateParams {
        error_rate: ErrorRate::new(workload.error_rate).expect("an error rate"),
        capacity: (workload.capacity as u64).try_into().expect("a capacity"),
        growth: Growth::By(2.try_into().expect("not 0")),
        kind: workload.kind,
    };
    // It is never dropped: in qemu, this would also be counted, and takes longer for a filter with more items.
    let mut filter = ManuallyDrop::new(Filter::create(params, &mut |_| true).expect("memory"));
    let (present, absent) = (items(0), items(ITEMS));
    if let KindParams::Windowed { .. } = workload.kind {
        [2, 3].iter().for_each(|window| insert(&mut filter, &items(window * ITEMS)));
    }
    if !matches!(workload.operation, Insert | InsertAlone) {
        insert(&mut filter, &present);
    }
    if flag == PREPARATION_FLAG {
        return;
    }
    match workload.operation {
        Insert => measured(|| insert(&mut filter, &present)),
        // In a window, a false positive is forgotten with the item that it was taken for.
        Hit => assert!(measured(|| count(&filter, &present)) > ITEMS - ITEMS / 50),
        Miss => assert!(measured(|| count(&filter, &absent)) < ITEMS / 50),
        InsertAlone => measured(|| present.iter().for_each(|item| _ = black_box(filter.insert(item)))),
        HitAlone => assert!(measured(|| count_alone(&filter, &present)) > ITEMS - ITEMS / 50),
        MissAlone => assert!(measured(|| count_alone(&filter, &absent)) < ITEMS / 50),
        Remove => assert!(measured(|| present.iter().all(|item| filter.remove(item) == Ok(true)))),
    }
}

#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    work()
}

type Item = [u8; 27];

/// Returns items, numbered from `from` on.
fn items(from: usize) -> Vec<Item> {
    let url = |number| format!("https://example.com/{number:07}").into_bytes().try_into().expect("an item of 27 bytes");
    (from..from + ITEMS).map(url).collect()
}

/// Inserts items, each batch a second later than the one before.
fn insert(filter: &mut Filter, items: &[Item]) {
    let mut options = InsertOptions { now: filter.time_of_change(), ..InsertOptions::default() };
    for items in items.as_chunks::<BATCH>().0 {
        options.now += 1000;
        let batch = filter.prepare_batch(items.iter().map(|item| &item[..]));
        let (hashes, mut new) = (batch.hashes(), [false; BATCH]);
        filter.insert_hashes(hashes, &mut new, &mut [], &options, &mut |_bytes| true).expect("memory");
        black_box(new);
    }
}

/// Returns the number of items that are in the filter.
fn count(filter: &Filter, items: &[Item]) -> usize {
    let count_batch = |items: &[Item; BATCH]| {
        let batch = filter.hash_batch(items.iter().map(|item| &item[..]));
        let mut found = [false; BATCH];
        filter.contains_hashes(batch.hashes(), &mut found, 0);
        found.iter().filter(|found| **found).count()
    };
    items.as_chunks::<BATCH>().0.iter().map(count_batch).sum()
}

fn count_alone(filter: &Filter, items: &[Item]) -> usize {
    items.iter().filter(|item| filter.contains(&item[..])).count()
}
