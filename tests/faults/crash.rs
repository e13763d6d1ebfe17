//! Kills servers at random times, and restarts them with the same files. All acknowledged changes must be present.
//!
//! `CRASH_ROUNDS` is the total number of kills (default: 50). `make test-crash ROUNDS=1000` sets it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Connection, Value};
use tempfile::TempDir;

use models::random::Random;
use testkit::keyspace_workload::KeyspaceWorkload;
use testkit::persistence::rewrite_aof;
use testkit::server::{wait_until, with_debug};
use testkit::{Server, Setup, ask, run};

const WRITERS: u64 = 4;

/// The minimum duration of a save or a rewrite. The test slows them down, so that a kill can hit them while they run.
const LASTING: Duration = Duration::from_millis(400);

/// Returns the number of kills.
fn rounds() -> u64 {
    std::env::var("CRASH_ROUNDS").map_or(50, |rounds| rounds.parse().expect("CRASH_ROUNDS is a number"))
}

/// Returns the changes of each writer, which knows what was acknowledged.
fn changes_of_writers() -> Vec<KeyspaceWorkload> {
    (0..WRITERS).map(|writer| KeyspaceWorkload::new(&format!("{writer}-"))).collect()
}

/// Returns a setup that lets tests slow the server down.
fn debuggable() -> Setup {
    with_debug(Setup::oxbloom()).set("repl-diskless-sync-delay 0")
}

/// Panics unless a server has all acknowledged changes.
fn check(changes: &mut [KeyspaceWorkload], server: &Server) {
    let (mut client, mut same) = (server.connect(), server.connect());
    for changes in changes {
        changes.forget_doubtful(&mut client).expect("a server that replies");
        changes.check([&mut client, &mut same]).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// Runs a closure while all clients write. It may kill the server, and gets the number of acknowledged commands.
fn while_writing<T>(
    changes: &mut [KeyspaceWorkload],
    random: &mut Random,
    clients: Vec<Connection>,
    act: impl FnOnce(&mut Random, &AtomicU64) -> T,
) -> T {
    let (acknowledged, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for (changes, mut client) in changes.iter_mut().zip(clients) {
            let mut random = Random(random.next_u64());
            let (acknowledged, over) = (&acknowledged, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) && changes.step(&mut random, &mut client).is_ok() {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _over = StopOnDrop(&over);
        act(random, &acknowledged)
    })
}

/// Stops the writers when it is dropped, even after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until `more` further commands are acknowledged.
fn wait_for_more(acknowledged: &AtomicU64, more: u64) {
    let before = acknowledged.load(Ordering::Relaxed);
    wait_until("more commands are acknowledged", || acknowledged.load(Ordering::Relaxed) >= before + more);
}

fn writers(server: &Server) -> Vec<Connection> {
    (0..WRITERS).map(|_| server.connect()).collect()
}

/// Makes a server wait at each key that it saves, so that saving all keys takes long enough.
fn slow_down_saving(client: &mut Connection) {
    let keys: u64 = ask(client, "DBSIZE");
    let delay = LASTING.as_micros() as u64 / keys.max(1);
    assert_eq!(run(client, &format!("CONFIG SET rdb-key-save-delay {delay}")), Ok(Value::Okay));
}

/// Waits for a random time, at most half of [`LASTING`]. The other half is a reserve for busy machines.
fn wait_within(random: &mut Random) {
    thread::sleep(Duration::from_micros(random.below(LASTING.as_micros() as u64 / 2)));
}

/// Returns the files of saves and rewrites that were not completed.
fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("temp-")).collect()
}

fn remove_unfinished(folder: &Path) {
    unfinished(folder).into_iter().for_each(|file| fs::remove_file(file).unwrap());
}

/// Starts a slow save or rewrite, and waits for a random time while it runs. The command has its own thread, since SAVE
/// only replies at its end.
fn wait_for_the_middle_of(command: &'static str, server: &Server, random: &mut Random) {
    let mut client = server.connect();
    slow_down_saving(&mut client);
    thread::spawn(move || run(&mut client, command));
    wait_until("the save or rewrite has begun", || !unfinished(server.folder()).is_empty());
    wait_within(random);
}

/// Child processes that can outlive their server. Dropping this value kills them.
struct Orphans(Vec<Orphan>);

struct Orphan {
    pid: i32,
    folder: PathBuf,
}

impl Orphans {
    fn none() -> Orphans {
        Orphans(Vec::new())
    }

    fn of(server: &Server) -> Orphans {
        let pid = server.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let pids = children.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
        Orphans(pids.map(|pid| Orphan { pid, folder: server.folder().to_owned() }).collect())
    }
}

impl Orphan {
    /// Returns true if the process is alive. By now, its PID may belong to a process with another folder; a zombie has
    /// no folder.
    fn lives(&self) -> bool {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).is_ok_and(|folder| folder == self.folder)
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        for orphan in self.0.iter().filter(|orphan| orphan.lives()) {
            // SAFETY: the call touches no memory. The process is a child of a server that the test has killed.
            unsafe { libc::kill(orphan.pid, libc::SIGKILL) };
            wait_until("an orphan has exited", || !orphan.lives());
        }
    }
}

/// The operation that runs when the server is killed.
#[derive(Clone, Copy)]
enum Running {
    Nothing,
    Snapshot,
    Rewrite,
}

/// The number of kills, and how many of them hit a running operation.
#[derive(Default)]
struct Hits {
    tries: u64,
    hits: u64,
}

impl Hits {
    fn count(&mut self, hit: bool) {
        self.tries += 1;
        self.hits += u64::from(hit);
    }

    fn assert_fair(&self, what: &str) {
        println!("{} of {} kills hit {what}", self.hits, self.tries);
        assert!(self.hits * 4 >= self.tries, "only {} of {} kills hit {what}", self.hits, self.tries);
    }
}

#[test]
fn acknowledged_changes_are_present_after_any_crash() {
    let mut random = Random::unpredictable();
    let mut changes = changes_of_writers();
    let (mut folder, mut orphans) = (TempDir::new().unwrap(), Orphans::none());
    let (mut snapshots, mut rewrites) = (Hits::default(), Hits::default());
    for round in 0..rounds() {
        let running = [Running::Nothing, Running::Snapshot, Running::Rewrite][round as usize % 3];
        let setup = debuggable().keeping_aof(random.one_of(&["yes", "no"])).set("appendfsync always");
        let server = setup.on(folder).start();
        check(&mut changes, &server);
        drop(orphans);
        remove_unfinished(server.folder());
        let hit;
        (folder, orphans, hit) = while_writing(&mut changes, &mut random, writers(&server), |random, acknowledged| {
            wait_for_more(acknowledged, 1 + random.below(400));
            match running {
                Running::Nothing if random.chance(50) => {}
                Running::Nothing => {
                    rewrite_aof(&mut server.connect());
                    wait_for_more(acknowledged, 1 + random.below(100));
                }
                Running::Snapshot => wait_for_the_middle_of("BGSAVE", &server, random),
                Running::Rewrite => wait_for_the_middle_of("BGREWRITEAOF", &server, random),
            }
            let hit = !unfinished(server.folder()).is_empty();
            let orphans = Orphans::of(&server);
            (server.kill(), if random.chance(50) { orphans } else { Orphans::none() }, hit)
        });
        match running {
            Running::Nothing => assert!(!hit),
            Running::Snapshot => snapshots.count(hit),
            Running::Rewrite => rewrites.count(hit),
        }
    }
    check(&mut changes, &debuggable().keeping_aof("yes").on(folder).start());
    snapshots.assert_fair("a running snapshot");
    rewrites.assert_fair("a running rewrite");
}
