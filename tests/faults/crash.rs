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

use super::recorded::RecordedAnswers;
use super::streams::BEGUN;
use models::random::Random;
use testkit::filter_model::various;
use testkit::info::info;
use testkit::keyspace_workload::KeyspaceWorkload;
use testkit::persistence::rewrite_aof;
use testkit::replication::{assert_synchronized, follow};
use testkit::server::{wait_until, with_debug};
use testkit::{Server, Setup, ask, run};

const WRITERS: u64 = 4;

/// The minimum duration of a save, a rewrite or a synchronization. The tests slow them down, so that a kill can hit
/// them while they run.
const LASTING: Duration = Duration::from_millis(400);

/// Returns `share` per cent of all rounds.
fn rounds(share: u64) -> u64 {
    let all = std::env::var("CRASH_ROUNDS").map_or(50, |rounds| rounds.parse().expect("CRASH_ROUNDS is a number"));
    (all * share).div_ceil(100)
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

fn write_some(changes: &mut [KeyspaceWorkload], random: &mut Random, client: &mut Connection) {
    for _ in 0..300 {
        let changes = &mut changes[random.below(WRITERS) as usize];
        changes.step(random, client).expect("a server that replies");
    }
}

fn writers(server: &Server) -> Vec<Connection> {
    (0..WRITERS).map(|_| server.connect()).collect()
}

/// Makes a server wait at each key, so that saving or loading all keys takes long enough.
fn slow_down(client: &mut Connection, parameter: &str, keys: u64) {
    let delay = LASTING.as_micros() as u64 / keys.max(1);
    assert_eq!(run(client, &format!("CONFIG SET {parameter} {delay}")), Ok(Value::Okay));
}

fn slow_down_saving(client: &mut Connection) {
    let keys: u64 = ask(client, "DBSIZE");
    slow_down(client, "rdb-key-save-delay", keys);
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

/// Kills a server and its children, as if the machine stopped.
fn kill(server: Server) -> TempDir {
    let orphans = Orphans::of(&server);
    let folder = server.kill();
    drop(orphans);
    folder
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
    for round in 0..rounds(60) {
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

#[test]
fn a_crash_during_a_snapshot_leaves_the_last_one_whole() {
    let mut random = Random::unpredictable();
    let mut changes = changes_of_writers();
    let mut folder = TempDir::new().unwrap();
    let mut hits = Hits::default();
    for round in 0..rounds(16) {
        let server = debuggable().on(folder).start();
        check(&mut changes, &server);
        let mut client = server.connect();
        write_some(&mut changes, &mut random, &mut client);
        run(&mut client, "SAVE").unwrap();
        let saved = changes.clone();
        write_some(&mut changes, &mut random, &mut client);
        wait_for_the_middle_of(if round % 2 == 0 { "SAVE" } else { "BGSAVE" }, &server, &mut random);
        folder = kill(server);
        let hit = !unfinished(folder.path()).is_empty();
        hits.count(hit);
        if hit {
            changes = saved;
        }
        remove_unfinished(folder.path());
    }
    check(&mut changes, &debuggable().on(folder).start());
    hits.assert_fair("a running snapshot");
}

/// The server that is killed.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Master,
    Replica,
}

#[test]
fn a_crash_during_a_full_synchronization_loses_nothing() {
    const LOADING: [&str; 2] = ["Loading DB in memory"; 2];
    const DONE: &str = "Finished with success";
    let mut random = Random::unpredictable();
    let mut changes = changes_of_writers();
    let [mut masters, mut replicas] = [(), ()].map(|()| TempDir::new().unwrap());
    let (mut recorded, mut hits) = (None, Hits::default());
    for round in 0..rounds(24) {
        let victim = [Victim::Master, Victim::Replica][round as usize % 2];
        let (diskless, load) = random.one_of(&[("no", "disabled"), ("yes", "disabled"), ("yes", "swapdb")]);
        let moment = random.one_of(&[BEGUN, LOADING]);
        let master_on = |folder| {
            let setup = debuggable().keeping_aof("yes").set("appendfsync always");
            setup.set(format!("repl-diskless-sync {diskless}")).on(folder).start()
        };
        let replica_on = |folder| debuggable().set(format!("repl-diskless-load {load}")).on(folder).start();

        let (master, replica) = (master_on(masters), replica_on(replicas));
        let mut client = master.connect();
        check(&mut changes, &master);
        let recorded: &RecordedAnswers = recorded.get_or_insert_with(|| {
            let models = various(&mut client);
            RecordedAnswers::of(models, &mut client)
        });
        recorded.check(&mut client);
        write_some(&mut changes, &mut random, &mut client);
        let keys: u64 = ask(&mut client, "DBSIZE");
        match moment {
            BEGUN => slow_down_saving(&mut client),
            _ => slow_down(&mut replica.connect(), "key-load-delay", keys),
        }
        follow(&mut replica.connect(), master.port);
        let (mut master, mut replica) = (Some(master), Some(replica));
        let clients = writers(master.as_ref().unwrap());
        let folder = while_writing(&mut changes, &mut random, clients, |random, acknowledged| {
            wait_until("the synchronization is under way", || {
                let log = replica.as_ref().unwrap().log();
                moment.iter().any(|words| log.contains(words))
            });
            wait_for_more(acknowledged, 1);
            wait_within(random);
            let killed = if victim == Victim::Master { &mut master } else { &mut replica };
            let folder = kill(killed.take().unwrap());
            let log =
                replica.as_ref().map_or_else(|| fs::read_to_string(folder.path().join("log")).unwrap(), Server::log);
            hits.count(!log.contains(DONE));
            folder
        });
        let (master, replica) = match (master, replica) {
            (Some(master), _) => (master, replica_on(folder)),
            (_, Some(replica)) => {
                let mut client = replica.connect();
                wait_until("the replica has loaded its data", || info(&mut client, "persistence", "loading") == "0");
                (master_on(folder), replica)
            }
            _ => unreachable!("one of them is killed"),
        };
        let (mut client, mut reader) = (master.connect(), replica.connect());
        recorded.check_existing(&mut reader);
        check(&mut changes, &master);
        for (client, parameter) in [(&mut client, "rdb-key-save-delay"), (&mut reader, "key-load-delay")] {
            run(client, &format!("CONFIG SET {parameter} 0")).unwrap();
        }
        follow(&mut replica.connect(), master.port);
        assert_synchronized(&mut client, &mut reader, "a synchronization after a crash");
        [&mut client, &mut reader].into_iter().for_each(|client| recorded.check(client));
        for changes in &changes {
            changes.check([&mut client, &mut reader]).unwrap_or_else(|fault| panic!("{fault}"));
        }
        if random.chance(20) {
            rewrite_aof(&mut client);
        }
        (masters, replicas) = (master.kill(), replica.kill());
        [&masters, &replicas].into_iter().for_each(|folder| remove_unfinished(folder.path()));
    }
    hits.assert_fair("a running synchronization");
}
