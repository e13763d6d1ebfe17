//! Watches a server: records how much of each master's data it has, when it may have lost some, and what its clock
//! showed while it was a master, since a master deletes keys that expire.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use models::history::Action;

use crate::connection::{Client, Replication};
use crate::group::Group;
use crate::kinds::keys;
use crate::record::Time;

/// The pause between two looks.
const PERIOD: Duration = Duration::from_millis(40);

/// The time between two records of the clock.
const TICK: Time = 250_000;

/// The offsets that masters had reached, by the ID of their data.
pub(crate) type Progress = Mutex<BTreeMap<String, Vec<Reached>>>;

/// What a master had completed before a time is not beyond this offset.
pub(crate) struct Reached {
    offset: u64,
    master: usize,
    time: Time,
}

struct Watcher<'a> {
    group: &'a Group,
    progress: &'a Progress,
    client: Client<'a>,
    server: usize,
    /// The time of the last reply, when the server had lost nothing that was not recorded.
    whole_at: Time,
    starts: usize,
    synchronizations: usize,
    /// The times up to which it was recorded as having the data of each master.
    caught_up: BTreeMap<usize, Time>,
    ticked: Time,
    /// True if the server may have been a master since then.
    may_be_master: bool,
}

pub(crate) fn watch(group: &Group, progress: &Progress, server: usize, is_over: &AtomicBool) {
    let (starts, log) = group.log(server);
    let mut watcher = Watcher {
        group,
        progress,
        client: Client::new(group, server),
        server,
        whole_at: group.record.now(),
        starts,
        synchronizations: synchronizations(&log),
        caught_up: BTreeMap::new(),
        ticked: 0,
        may_be_master: true,
    };
    while !is_over.load(Ordering::SeqCst) {
        watcher.look();
        thread::sleep(PERIOD);
    }
    // The last reads came after the last look.
    watcher.look();
    watcher.tick(group.record.now());
}

impl Watcher<'_> {
    fn look(&mut self) {
        let record = &self.group.record;
        let invoked = record.now();
        let state = self.client.replication();
        let completed = record.now();
        let is_master = state.as_ref().is_none_or(|state| state.is_master);
        self.may_be_master |= is_master;
        if completed >= self.ticked + TICK {
            self.tick(completed);
            self.may_be_master = is_master;
        }
        let Some(state) = state else { return };
        record.settle(self.server, completed);
        let (starts, log) = self.group.log(self.server);
        if starts != self.starts {
            (self.starts, self.synchronizations) = (starts, 0);
        }
        let synchronizations = synchronizations(&log);
        let lost_data = synchronizations > self.synchronizations;
        self.synchronizations = synchronizations;
        if lost_data {
            self.group.record.note(self.server, self.whole_at, Action::Lost { since: 0 });
            self.caught_up.clear();
        } else if state.is_master {
            let mut progress = self.progress.lock().expect("no thread panics");
            let reached = Reached { offset: state.offset, master: self.server, time: invoked };
            progress.entry(state.id).or_default().push(reached);
        } else if state.is_whole {
            self.catch_up(invoked..completed, &state);
        }
        self.whole_at = completed;
    }

    /// Records that it has what a master had completed before the last time at which that one's offset was not greater.
    fn catch_up(&mut self, time: Range<Time>, state: &Replication) {
        let progress = self.progress.lock().expect("no thread panics");
        let all = progress.get(&state.id).into_iter().flatten();
        let Some(last) = all.filter(|reached| reached.offset <= state.offset).max_by_key(|reached| reached.time) else {
            return;
        };
        if self.caught_up.insert(last.master, last.time) != Some(last.time) {
            let action = Action::CaughtUp { with: last.master, until: last.time };
            self.group.record.note_during(self.server, time, action);
        }
    }

    /// Records the time of a master's clock as that of an empty addition.
    fn tick(&mut self, now: Time) {
        for [_, _, key] in self.group.kinds.iter().map(|kind| keys(kind)).filter(|_| self.may_be_master) {
            let action = Action::Add { key, items: Vec::new(), copies: 1 };
            self.group.record.note_during(self.server, self.ticked..now, action);
        }
        self.ticked = now;
    }
}

/// Returns the number of full synchronizations that brought data.
pub(crate) fn synchronizations(log: &str) -> usize {
    log.matches("REPLICA sync: receiving ").count()
}
