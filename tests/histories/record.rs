//! The record of a history: what clients and servers did, and when, by a clock of the test that never jumps. It also
//! knows how far the clock of each server is off.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use models::history::{Action, Event, UNKNOWN};

/// The greatest difference between the time that a server shows and the one computed here, in milliseconds. The
/// server reads its clock once in each turn of its loop.
const SLACK: u64 = 200;

/// A time since the start of the history, in microseconds.
pub(crate) type Time = u64;

pub(crate) struct Record {
    began: Instant,
    /// The system's clock at that time, in milliseconds since 1970.
    began_at: u64,
    state: Mutex<State>,
}

struct State {
    events: Vec<Event>,
    /// The operations without an outcome, by their index, and the time at which the client gave up.
    unknown: Vec<(usize, Time)>,
    servers: Vec<ServerTimes>,
    /// Lines for a reader, with the faults.
    lines: Vec<String>,
}

struct ServerTimes {
    offsets: Vec<Offset>,
    /// Times at which the server had executed, or would never execute, what it had got.
    settled: Vec<Time>,
}

/// An offset of a server's clock.
struct Offset {
    milliseconds: i64,
    /// The time during which it may have been in force.
    in_force: Range<Time>,
}

impl Record {
    pub(crate) fn new(servers: usize) -> Record {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
        let right = || Offset { milliseconds: 0, in_force: 0..UNKNOWN };
        let servers = (0..servers).map(|_| ServerTimes { offsets: vec![right()], settled: Vec::new() }).collect();
        let state = State { events: Vec::new(), unknown: Vec::new(), servers, lines: Vec::new() };
        Record { began: Instant::now(), began_at: since_1970.as_millis() as u64, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    pub(crate) fn now(&self) -> Time {
        self.began.elapsed().as_micros() as Time
    }

    /// Adds what began at a time and ended just now.
    pub(crate) fn note(&self, server: usize, invoked: Time, action: Action) {
        self.note_during(server, invoked..self.now(), action);
    }

    pub(crate) fn note_during(&self, server: usize, time: Range<Time>, action: Action) {
        let clock = self.latest_clock(server, &time);
        self.state().events.push(Event { server, invoked: time.start, completed: time.end, clock, action });
    }

    /// Adds what may have happened, or may still happen.
    pub(crate) fn note_unknown(&self, server: usize, invoked: Time, action: Action) {
        let gave_up = self.now();
        let mut state = self.state();
        let index = state.events.len();
        state.unknown.push((index, gave_up));
        state.events.push(Event { server, invoked, completed: UNKNOWN, clock: 0, action });
    }

    /// Adds a line for a reader.
    pub(crate) fn say(&self, line: &str) {
        let time = self.now();
        self.state().lines.push(format!("{time} {line}"));
    }

    /// Notes that by a time the server had executed all that it had got before, or was dead.
    pub(crate) fn settle(&self, server: usize, time: Time) {
        self.state().servers[server].settled.push(time);
    }

    /// Sets the clock of a server with `change`.
    pub(crate) fn turn_clock(&self, server: usize, offset: i64, change: impl FnOnce()) {
        let from = self.now();
        self.state().servers[server].offsets.push(Offset { milliseconds: offset, in_force: from..UNKNOWN });
        change();
        let until = self.now();
        let mut state = self.state();
        let previous = state.servers[server].offsets.iter_mut().nth_back(1).expect("the first offset, at least");
        previous.in_force.end = until;
    }

    /// Returns the earliest time that a server's clock can have shown since a time, in milliseconds since 1970.
    pub(crate) fn earliest_clock(&self, server: usize, since: Time) -> u64 {
        let offset = self.offsets(server, &(since..self.now())).into_iter().min();
        self.system_clock(since).saturating_add_signed(offset.expect("an offset at any time")) - SLACK
    }

    /// Returns the latest time that a server's clock can have shown during a time, likewise.
    fn latest_clock(&self, server: usize, time: &Range<Time>) -> u64 {
        let offset = self.offsets(server, time).into_iter().max();
        self.system_clock(time.end).saturating_add_signed(offset.expect("an offset at any time")) + SLACK
    }

    fn offsets(&self, server: usize, time: &Range<Time>) -> Vec<i64> {
        let state = self.state();
        let may_be_in_force = |offset: &&Offset| offset.in_force.start <= time.end && time.start <= offset.in_force.end;
        state.servers[server].offsets.iter().filter(may_be_in_force).map(|offset| offset.milliseconds).collect()
    }

    fn system_clock(&self, time: Time) -> u64 {
        self.began_at + time / 1000
    }

    /// Returns the events and the lines. An operation without an outcome ends when the server had certainly executed
    /// it, or would never do so.
    pub(crate) fn finish(self) -> (Vec<Event>, Vec<String>) {
        let now = self.now();
        let unknown = std::mem::take(&mut self.state().unknown);
        for (index, gave_up) in unknown {
            let Event { server, invoked, .. } = self.state().events[index];
            // The server may have been in the middle of a turn of its loop at the first of these times.
            let settled = self.state().servers[server].settled.iter().filter(|&&time| time > gave_up).nth(1).copied();
            let completed = settled.unwrap_or(now);
            let clock = self.latest_clock(server, &(invoked..completed));
            let event = &mut self.state().events[index];
            event.completed = completed;
            event.clock = clock;
        }
        let state = self.state.into_inner().expect("no thread panics while it holds the lock");
        (state.events, state.lines)
    }
}
