//! A history: clients, watchers and faults, and in the end the judgement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use models::history::{Action, judge};
use models::random::Random;
use testkit::server::wait_until;

use crate::client::Worker;
use crate::connection::{Client, Replication};
use crate::group::Group;
use crate::kinds::{EXPIRING, ITEMS, keys};
use crate::schedule::trouble;
use crate::watch::{Progress, synchronizations, watch};

const CLIENTS: usize = 3;

/// The pause after a command of a client.
const PAUSE: Duration = Duration::from_millis(5);

/// Lines in a log that only appear if something is wrong.
const ALARMS: [&str; 3] = ["internal error", "BUG REPORT", "panicked"];

/// Plays the history of a seed. Returns the number of items that reads had to find, or the violation.
pub(crate) fn play(seed: u64) -> Result<usize, String> {
    let mut random = Random(seed);
    let group = Group::start(&mut random, seed.is_multiple_of(10));
    for (kind, key) in group.kinds.iter().flat_map(|kind| keys(kind).into_iter().take(2).map(move |key| (kind, key))) {
        group.command(0, &kind.reserving(&key));
    }
    settle(&group);
    if panic::catch_unwind(AssertUnwindSafe(|| run_all(&group, random))).is_err() {
        group.surprise("a thread panicked, as was said above".to_owned());
    }
    decide(group, seed)
}

/// Runs the clients until all faults are over, and looks at the result.
fn run_all(group: &Group, mut random: Random) {
    let progress = &Progress::default();
    let clients_are_over = &AtomicBool::new(false);
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        // If anything panics here, all threads return.
        let clients_end = Ending(clients_are_over);
        let all_end = Ending(is_over);
        for server in 0..group.size() {
            scope.spawn(move || watch(group, progress, server, is_over));
        }
        scope.spawn(move || follow_sentinels(group, is_over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut worker = Worker::new(group, Random(random.next_u64()));
                scope.spawn(move || {
                    while !clients_are_over.load(Ordering::SeqCst) {
                        worker.step();
                        thread::sleep(PAUSE);
                    }
                })
            })
            .collect();
        trouble(group, &mut random);
        drop(clients_end);
        clients.into_iter().for_each(|client| client.join().expect("a client that does not panic"));
        finish(group, Worker::new(group, random));
        drop(all_end);
    });
}

/// Tells threads to return when it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asks Sentinels for the master again and again.
fn follow_sentinels(group: &Group, is_over: &AtomicBool) {
    while let (Some(sentinels), false) = (&group.sentinels, is_over.load(Ordering::SeqCst)) {
        let masters = sentinels.masters();
        if masters.iter().all(|master| *master == masters[0])
            && let Some(master) = group.of_port(masters[0])
        {
            group.set_master(master);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A time at which all servers have all data of one master. It is over if any of this changes.
#[derive(PartialEq)]
struct Settled {
    master: usize,
    id: String,
    synchronizations: usize,
}

/// Waits until all servers have all data of one master.
fn settle(group: &Group) -> Settled {
    let mut settled = None;
    wait_until("all servers have the same data", || {
        let states: Vec<_> = (0..group.size()).filter_map(|server| Client::new(group, server).replication()).collect();
        let Some(index) = states.iter().position(|state| state.is_master) else { return false };
        let master = &states[index];
        let follows = |state: &Replication| state.is_whole && state.is_connected && state.offset == master.offset;
        let followers = states.iter().filter(|state| !state.is_master && state.id == master.id && follows(state));
        let all_follow = followers.count() + 1 == group.size();
        let logs = (0..group.size()).map(|server| synchronizations(&group.log(server).1));
        settled = Some(Settled { master: index, id: master.id.clone(), synchronizations: logs.sum() });
        all_follow
    });
    settled.expect("a master")
}

/// Sets all clocks right, waits until all servers have the same data, and looks all items up on all of them.
fn finish(group: &Group, mut worker: Worker) {
    (0..group.size()).for_each(|server| group.turn_clock(server, 0));
    for server in 0..group.size() {
        for setting in ["rdb-key-save-delay", "key-load-delay"] {
            group.command(server, &format!("CONFIG SET {setting} 0"));
        }
    }
    if let Some(sentinels) = &group.sentinels {
        sentinels.rest();
    }
    // On a busy machine, Sentinels may leave two replicas that follow each other.
    wait_until("all servers follow the master", || group.follow_master());
    // Sentinels may still change their minds, and then it is done again.
    while !compare(group, &mut worker) {}
}

/// Compares all servers. Returns false if one of them began to synchronize, or another became the master.
fn compare(group: &Group, worker: &mut Worker) -> bool {
    let Settled { master, .. } = settle(group);
    // No key expires while digests are compared.
    let mut client = Client::new(group, master);
    if group.kinds.iter().any(|kind| client.ask(&format!("PERSIST {}", keys(kind)[EXPIRING])).is_none()) {
        return false;
    }
    let settled = settle(group);
    let invoked = group.record.now();
    // Meanwhile, the watchers record that all have caught up.
    thread::sleep(Duration::from_millis(200));
    let items: Vec<u64> = (0..ITEMS).collect();
    for server in 0..group.size() {
        for (kind, key) in group.kinds.iter().flat_map(|kind| (0..3).map(move |key| (kind, key))) {
            items.chunks(10).for_each(|items| worker.read(server, kind, key, items));
        }
    }
    let digests = (0..group.size()).map(|server| {
        let keys = group.kinds.iter().flat_map(|kind| keys(kind));
        keys.map(|key| (key.clone(), group.digest(server, &key))).collect::<BTreeMap<_, _>>()
    });
    let digests = digests.collect();
    let is_settled = settled.master == master && settle(group) == settled;
    if is_settled {
        group.record.note(master, invoked, Action::Healed { digests });
    }
    is_settled
}

/// Judges the history. If it failed, keeps its record and the servers' logs.
fn decide(group: Group, seed: u64) -> Result<usize, String> {
    let logs: Vec<String> = (0..group.size()).map(|server| group.log(server).1).collect();
    let mut violations = group.surprises();
    let alarms = logs.iter().flat_map(|log| log.lines()).filter(|line| ALARMS.iter().any(|alarm| line.contains(alarm)));
    violations.extend(alarms.map(str::to_owned));
    let size = group.size();
    let (events, lines) = group.into_record().finish();
    let judgement = judge(size, &events);
    violations.extend(judgement.clone().err());
    if violations.is_empty() {
        return judgement;
    }
    let folder = TempDir::with_prefix(format!("history-{seed}-")).expect("a temporary folder").keep();
    let mut text = lines.join("\n");
    text.push('\n');
    for (index, event) in events.iter().enumerate() {
        writeln!(text, "{index} {event:?}").expect("room");
    }
    fs::write(folder.join("history"), text).expect("a file");
    for (server, log) in logs.iter().enumerate() {
        fs::write(folder.join(format!("log-{server}")), log).expect("a file");
    }
    Err(format!("{}\nits record is in {}", violations.join("\n"), folder.display()))
}
