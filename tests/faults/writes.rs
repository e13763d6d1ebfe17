//! Each system call that writes a file fails: the n-th of a save, of a rewrite, of additions, and of a start, for all n.
//! The server reports it, or it did no harm. The server keeps all that it has acknowledged, and never takes half a file
//! for a whole one.
//!
//! `WRITES` is the number of calls of each operation that fail (default: all). They are evenly spaced, and the last
//! ones, each of which has another part in making a file permanent, are always among them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use redis::Connection;
use tempfile::TempDir;

use testkit::command::try_many;
use testkit::failing_writes::{FailingWrites, Fault};
use testkit::filter_model::{FilterModel, various};
use testkit::info::info;
use testkit::persistence::{aof_files, aof_rewrite_succeeds, bgsave_succeeds, rewrite_aof};
use testkit::server::{wait_until, with_aof, with_debug};
use testkit::{Setup, ask, copy_of, error, run};

/// The number of calls at the end of an operation that always fail.
const LAST: u64 = 8;

/// Returns the numbers of the calls that fail, of all calls of an operation.
fn chosen(calls: u64) -> BTreeSet<u64> {
    assert!(calls > 0, "no call was counted");
    let most = std::env::var("WRITES").map_or(calls, |most| most.parse().expect("WRITES is a number"));
    let step = calls.div_ceil(most.max(1)) as usize;
    let last = calls.saturating_sub(LAST) + 1..=calls;
    (1..=calls).step_by(step).chain(last).collect()
}

/// An operation in which a call may fail.
struct Attempt<'a> {
    writes: &'a FailingWrites,
    /// The number of the call, or 0 if none fails.
    number: u64,
    fault: Fault,
    calls: Cell<u64>,
    failed: Cell<bool>,
}

impl Attempt<'_> {
    /// Runs the operation. After that, nothing fails any more.
    fn run<T>(&self, operate: impl FnOnce() -> T) -> T {
        self.writes.plan(self.number, self.fault);
        let result = operate();
        self.calls.set(self.writes.calls());
        self.failed.set(self.writes.failed() > 0);
        self.writes.clear();
        result
    }
}

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}, {:?}", self.number, self.fault)
    }
}

/// Makes attempts without a failure, and with each failure: as long as there are calls that can fail.
fn for_each_failure(writes: &FailingWrites, mut attempt: impl FnMut(&Attempt)) {
    let mut attempts = 0;
    let mut failures = 0;
    for fault in Fault::ALL {
        let mut make = |number| {
            let made = Attempt { writes, number, fault, calls: Cell::default(), failed: Cell::default() };
            attempt(&made);
            attempts += 1;
            failures += u64::from(made.failed.get());
            made
        };
        let calls = make(0).calls.get();
        for number in chosen(calls).into_iter().chain(calls + 1..) {
            if !make(number).failed.get() && number >= calls {
                break;
            }
        }
    }
    println!("calls failed in {failures} of {attempts} attempts");
    assert!(failures * 2 > attempts, "calls failed in only {failures} of {attempts} attempts");
}

/// The files of a server. Any write to them can fail.
struct Disk {
    folder: TempDir,
    writes: FailingWrites,
}

impl Disk {
    fn new() -> Disk {
        Disk { folder: TempDir::new().unwrap(), writes: FailingWrites::create() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a server keep its files here.
    fn of(&self, setup: Setup) -> Setup {
        setup.set(format!("dir {}", self.path().display())).under(self.writes.prefix(self.path()))
    }

    /// Panics unless another server that starts with these files has all items.
    fn check(&self, setup: Setup, filters: &Filters) {
        let server = setup.on(copy_of(self.path())).start();
        filters.check(&mut server.connect());
    }

    /// Panics if a save or a rewrite that failed left a file behind.
    fn assert_no_leftovers(&self, attempt: &Attempt) {
        let entries = fs::read_dir(self.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let leftovers: Vec<_> = names.filter(|name| name.starts_with("temp-")).collect();
        assert!(leftovers.is_empty(), "{leftovers:?} after {attempt}");
    }
}

/// Filters, and the last number of an item that was added to one of them.
#[derive(Clone)]
struct Filters {
    models: Vec<FilterModel>,
    number: u64,
}

impl Filters {
    /// Creates filters of all kinds except the large ones, so that servers start fast.
    fn create(client: &mut Connection) -> Filters {
        let is_large = |model: &FilterModel| model.key.ends_with("large");
        let (large, models): (Vec<_>, Vec<_>) = various(client).into_iter().partition(is_large);
        large.iter().for_each(|model| assert_eq!(ask::<u64>(client, &format!("DEL {}", model.key)), 1));
        Filters { models, number: 100_000 }
    }

    /// Adds a new item to each filter that is not full. Returns false if the server rejects one, or exits.
    fn add(&mut self, client: &mut Connection) -> bool {
        self.models.iter_mut().filter(|model| !model.is_fixed()).all(|model| {
            self.number += 1;
            let is_added = try_many(client, model.adding(), &model.key, &[self.number]).is_ok();
            if is_added {
                model.items.insert(self.number);
            }
            is_added
        })
    }

    /// Panics unless the server has all items.
    fn check(&self, client: &mut Connection) {
        self.models.iter().for_each(|model| drop(model.observe(client)));
    }
}

/// Saves all data. Returns true if the server reports success.
fn save(command: &str, client: &mut Connection) -> bool {
    let is_done = run(client, command).is_ok();
    is_done && (command != "BGSAVE" || bgsave_succeeds(client))
}

#[test]
fn a_save_that_fails_at_any_write_leaves_a_whole_snapshot() {
    for command in ["SAVE", "BGSAVE", "DEBUG RELOAD"] {
        let disk = Disk::new();
        let server = disk.of(with_debug(Setup::oxbloom())).start();
        let mut client = server.connect();
        let mut filters = Filters::create(&mut client);
        let mut last = Vec::new();
        for_each_failure(&disk.writes, |attempt| {
            assert!(filters.add(&mut client));
            let is_saved = attempt.run(|| save(command, &mut client));
            assert!(is_saved || attempt.failed.get(), "{command}: {attempt}");
            let snapshot = fs::read(disk.path().join("dump.rdb")).unwrap();
            // A save also fails if its file is complete, but the folder cannot be synchronized.
            if is_saved || snapshot != last {
                disk.check(Setup::oxbloom(), &filters);
            }
            last = snapshot;
            disk.assert_no_leftovers(attempt);
        });
        filters.check(&mut client);
    }
}

#[test]
fn a_rewrite_that_fails_at_any_write_leaves_a_whole_log() {
    // If the folder cannot be synchronized after the manifest was replaced, servers from 7.0 on delete the new files
    // that this manifest names. They cannot start with the others, until a rewrite succeeds.
    const DAMAGED: &str = "Fail to fsync AOF directory";
    for preamble in ["yes", "no"] {
        let disk = Disk::new();
        let server = disk.of(with_aof(preamble)).start();
        let mut client = server.connect();
        let mut filters = Filters::create(&mut client);
        let mut damaged = 0;
        for_each_failure(&disk.writes, |attempt| {
            let is_rewritten = attempt.run(|| aof_rewrite_succeeds(&mut client));
            assert!(is_rewritten || attempt.failed.get(), "{preamble}: {attempt}");
            let times = server.log().matches(DAMAGED).count();
            if times > damaged {
                damaged = times;
                rewrite_aof(&mut client);
            }
            // If the old log could not be synchronized, the server rejects all writes until a rewrite succeeds.
            wait_until("the server accepts writes", || {
                let is_accepted = filters.add(&mut client);
                if !is_accepted {
                    rewrite_aof(&mut client);
                }
                is_accepted
            });
            disk.check(with_aof(preamble), &filters);
            disk.assert_no_leftovers(attempt);
        });
        filters.check(&mut client);
    }
}

/// With this setting, a server that cannot write its log exits, since it cannot take back what a command changed.
#[test]
fn an_acknowledged_addition_is_in_the_log_whichever_write_fails() {
    let disk = Disk::new();
    let start = || disk.of(with_aof("yes").set("appendfsync always")).start();
    let mut filters = Filters::create(&mut start().connect());
    for_each_failure(&disk.writes, |attempt| {
        let server = start();
        let mut client = server.connect();
        filters.check(&mut client);
        let are_added = attempt.run(|| filters.add(&mut client));
        assert!(are_added || attempt.failed.get(), "{attempt}");
    });
    filters.check(&mut start().connect());
}

/// The first write is short, so half of a command is in the file.
#[test]
fn while_the_disk_is_full_all_items_stay_in_memory_and_then_they_are_logged() {
    let disk = Disk::new();
    let server = disk.of(with_aof("yes")).start();
    let mut client = server.connect();
    let mut filters = Filters::create(&mut client);
    let written = filters.clone();
    disk.writes.plan(1, Fault::FULL_DISK);
    wait_until("an addition is rejected", || !filters.add(&mut client));
    assert!(error(&mut client, "BF.ADD doubled item").starts_with("MISCONF"));
    assert_eq!(info(&mut client, "persistence", "aof_last_write_status"), "err");
    assert!(server.log().contains("No space left on device"), "{}", server.log());
    filters.check(&mut client);
    disk.check(with_aof("yes"), &written);

    disk.writes.clear();
    wait_until("the log is written", || info(&mut client, "persistence", "aof_last_write_status") == "ok");
    assert!(filters.add(&mut client));
    filters.check(&mut client);
    disk.check(with_aof("yes"), &filters);
}

#[test]
fn a_start_that_fails_at_any_write_loses_nothing() {
    let whole = TempDir::new().unwrap();
    let on = |folder: &TempDir| with_aof("no").set(format!("dir {}", folder.path().display()));
    let filters = Filters::create(&mut on(&whole).start().connect());
    // The server truncates an incomplete command.
    let log = aof_files(whole.path()).pop().unwrap();
    let mut log = fs::OpenOptions::new().append(true).open(log).unwrap();
    log.write_all(b"*2\r\n$3\r\nDEL\r\n$7\r\ndou").unwrap();
    let writes = FailingWrites::create();
    for_each_failure(&writes, |attempt| {
        let folder = copy_of(whole.path());
        let started = attempt.run(|| on(&folder).under(writes.prefix(folder.path())).try_start());
        assert!(started.is_ok() || attempt.failed.get(), "{attempt}");
        let mut filters = filters.clone();
        if let Ok(server) = started {
            let mut client = server.connect();
            filters.check(&mut client);
            // The server must not append this to half a command.
            assert!(filters.add(&mut client), "{attempt}");
        }
        filters.check(&mut on(&folder).start().connect());
    });
}
