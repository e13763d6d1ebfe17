//! A checker of histories: it judges what clients of several servers saw, without a server and without a clock.
//!
//! A history has the operations of clients, and what happened to the servers. For each read, the checker computes the
//! least number of times that the server must have the item: once for each addition that the server certainly has and
//! that nothing may have undone, less the removals that may have come in between. A read that found less is a violation,
//! and so is an addition that reported a present item as new. It finds:
//!
//! - an acknowledged addition that is missing on its server, on a server that caught up with it, or after the promotion
//!   of a replica by a majority, if WAIT reported a majority;
//! - a count that is below what was added and not removed;
//! - an item that is forgotten before its time, by the clocks of the masters that wrote to the filter and of the reader;
//! - filters that differ after all servers were healed.
//!
//! Operations overlap as their times say. One without a known outcome may have happened, at any later time, or not. So
//! whatever may have been deleted, replaced or expired is no longer required.
//!
//! It cannot find items that are present and should not be, such as false positives, repeated additions, and items that
//! are remembered for too long; only digests show these. It does not know the capacity of a filter: additions that the
//! filter need not remember, as in a rolling filter, must not be in the history.

use std::collections::BTreeMap;

/// The completion of an operation whose outcome is unknown.
pub const UNKNOWN: u64 = u64::MAX;

/// The time until which an item is remembered that has no end.
pub const FOREVER: u64 = u64::MAX;

/// The count of an item in a reply that only says that it is present.
pub const PRESENT: u64 = u64::MAX;

/// An operation of a client, or what happened to a server.
#[derive(Clone, Debug)]
pub struct Event {
    pub server: usize,
    /// The times of the client's request and of the reply, by a clock of the test that never jumps. The reply to an
    /// addition with WAIT is that to WAIT.
    pub invoked: u64,
    pub completed: u64,
    /// The latest time that the server's own clock showed during the event, in milliseconds.
    pub clock: u64,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    /// The items that were added. `copies` is the number of servers that have them according to WAIT, the master
    /// included; 1 without WAIT.
    Add { key: String, items: Vec<Added>, copies: usize },
    /// The items of which one occurrence was removed, or may have been.
    Remove { key: String, items: Vec<u64> },
    /// The key was created, deleted or overwritten, or has expired.
    Clear { key: String },
    /// The key expires at this time of the clock.
    Expire { key: String, at: u64 },
    /// The result of `rule` for the filters of `sources`. COPY, RENAME and chunks that are loaded are of this kind, too.
    Merge { to: String, sources: Vec<String>, rule: Rule },
    /// The items that were looked up, each with its count; 0 for an absent one.
    Read { key: String, found: Vec<(u64, u64)> },
    /// The server now has all that `with` had completed by the time `until`.
    CaughtUp { with: usize, until: u64 },
    /// The server became a master. `by_majority` says that it was the most advanced one of a majority of all servers.
    Promoted { by_majority: bool },
    /// The server lost what came after the time `since`: it restarted from a file, or, with 0, began to synchronise.
    Lost { since: u64 },
    /// The digests of the keys of each server, when all of them had been connected again and had caught up.
    Healed { digests: Vec<BTreeMap<String, u64>> },
}

/// An item that was added.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    pub item: u64,
    /// True if the reply said that the item was absent.
    pub was_absent: bool,
    /// The time of the server's clock until which the filter must remember the item.
    pub until: u64,
}

/// How a filter is made from others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The sources are added to the filter.
    Union,
    /// The filter is replaced by the union of the sources.
    Replace,
    /// The filter is replaced by the intersection of the sources.
    Intersect,
    /// The filter is replaced by the only source, which is deleted.
    Move,
}

/// Judges a history with a number of servers. Returns the number of items that reads had to find, or the violation.
pub fn judge(servers: usize, history: &[Event]) -> Result<usize, String> {
    let mut judge = Judge { servers, history, ..Judge::default() };
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|&index| history[index].invoked);
    order.iter().for_each(|&index| judge.note(index));
    // What is required shrinks as soon as a loss begins, and grows when an operation is complete.
    order.sort_by_key(|&index| match history[index] {
        Event { invoked, action: Action::Lost { .. }, .. } => invoked,
        Event { completed, .. } => completed,
    });
    for index in order {
        let Event { server, completed, clock, .. } = history[index];
        judge.apply(index).map_err(|violation| {
            format!("event {index} on server {server} at {completed}, when its clock was {clock}: {violation}")
        })?;
    }
    Ok(judge.required)
}

/// Occurrences of an item that servers must have.
#[derive(Clone, Debug)]
struct Addition {
    /// The event, by its index.
    event: usize,
    count: u64,
    until: u64,
    copies: usize,
    /// The servers that certainly have it, and since when.
    held: BTreeMap<usize, u64>,
}

#[derive(Default)]
struct Judge<'a> {
    servers: usize,
    history: &'a [Event],
    /// The events that may have emptied a key.
    clears: BTreeMap<&'a str, Vec<usize>>,
    /// The times at which a key expires, with their events.
    expiries: BTreeMap<&'a str, Vec<(usize, u64)>>,
    removals: BTreeMap<(&'a str, u64), Vec<usize>>,
    /// The start of each write to a key, and the latest time of the clock in any write up to it.
    clocks: BTreeMap<&'a str, Vec<(u64, u64)>>,
    losses: Vec<usize>,
    additions: BTreeMap<&'a str, BTreeMap<u64, Vec<Addition>>>,
    required: usize,
}

impl<'a> Judge<'a> {
    /// Notes what may undo additions. Called for all events first, since they may overlap with later ones.
    fn note(&mut self, index: usize) {
        match &self.history[index].action {
            Action::Add { key, .. } => self.note_write(index, key, &[]),
            Action::Remove { key, items } => {
                items.iter().for_each(|&item| self.removals.entry((key, item)).or_default().push(index));
            }
            Action::Clear { key } => self.clears.entry(key).or_default().push(index),
            Action::Expire { key, at } => self.expiries.entry(key).or_default().push((index, *at)),
            Action::Merge { to, sources, rule } => {
                self.note_write(index, to, sources);
                if *rule != Rule::Union {
                    self.clears.entry(to).or_default().push(index);
                }
                if *rule == Rule::Move {
                    sources.iter().for_each(|from| self.clears.entry(from).or_default().push(index));
                }
            }
            Action::Lost { .. } => self.losses.push(index),
            Action::Read { .. } | Action::CaughtUp { .. } | Action::Promoted { .. } | Action::Healed { .. } => {}
        }
    }

    fn note_write(&mut self, index: usize, key: &'a str, sources: &[String]) {
        let Event { invoked, clock, .. } = self.history[index];
        let latest = |key: &str| self.clocks.get(key).and_then(|clocks| clocks.last()).map_or(0, |&(_, clock)| clock);
        let clock = sources.iter().map(|source| latest(source)).fold(clock.max(latest(key)), u64::max);
        self.clocks.entry(key).or_default().push((invoked, clock));
    }

    fn apply(&mut self, index: usize) -> Result<(), String> {
        let event = &self.history[index];
        match &event.action {
            Action::Add { key, items, copies } => {
                for added in items.iter().filter(|added| added.was_absent) {
                    self.check(index, key, added.item, 0)?;
                }
                for added in items {
                    self.put(index, key, added.item, (1, added.until), *copies);
                }
            }
            Action::Merge { to, sources, rule } if event.completed != UNKNOWN => self.merge(index, to, sources, *rule),
            Action::Read { key, found } => {
                for &(item, count) in found {
                    self.check(index, key, item, count)?;
                }
            }
            Action::CaughtUp { with, until } => self.each_addition(|history, addition| {
                let has_with = addition.held.get(with).is_some_and(|&since| since <= event.invoked);
                if has_with && history[addition.event].completed <= *until {
                    addition.held.entry(event.server).or_insert(event.completed);
                }
            }),
            Action::Promoted { by_majority: true } => {
                let servers = self.servers;
                self.each_addition(|history, addition| {
                    if addition.copies * 2 > servers && history[addition.event].completed <= event.invoked {
                        addition.held.entry(event.server).or_insert(event.completed);
                    }
                });
            }
            Action::Lost { since } => self.each_addition(|history, addition| {
                if history[addition.event].completed > *since {
                    addition.held.remove(&event.server);
                    // It may be one of those that WAIT counted.
                    addition.copies = addition.copies.saturating_sub(1);
                }
            }),
            Action::Healed { digests } => {
                for (other, theirs) in digests.iter().enumerate() {
                    let mut keys = digests[0].keys().chain(theirs.keys());
                    if let Some(key) = keys.find(|key| digests[0].get(*key) != theirs.get(*key)) {
                        return Err(format!("{key} differs on servers 0 and {other}"));
                    }
                }
            }
            Action::Merge { .. }
            | Action::Remove { .. }
            | Action::Clear { .. }
            | Action::Expire { .. }
            | Action::Promoted { by_majority: false } => {}
        }
        Ok(())
    }

    fn each_addition(&mut self, mut change: impl FnMut(&[Event], &mut Addition)) {
        let additions = self.additions.values_mut().flat_map(BTreeMap::values_mut).flatten();
        additions.for_each(|addition| change(self.history, addition));
    }

    /// Requires an item from now on, `count` times, until a time of the clock.
    fn put(&mut self, index: usize, key: &'a str, item: u64, (count, until): (u64, u64), copies: usize) {
        let event = &self.history[index];
        let overlaps = |loss: &Event| loss.invoked <= event.completed && event.invoked <= loss.completed;
        let is_lost = |&loss: &usize| self.history[loss].server == event.server && overlaps(&self.history[loss]);
        if event.completed == UNKNOWN || count == 0 || self.losses.iter().any(is_lost) {
            return;
        }
        let held = BTreeMap::from([(event.server, event.completed)]);
        let addition = Addition { event: index, count, until, copies, held };
        self.additions.entry(key).or_default().entry(item).or_default().push(addition);
    }

    fn merge(&mut self, index: usize, to: &'a str, sources: &'a [String], rule: Rule) {
        let items_of =
            |source: &String| self.additions.get(source.as_str()).into_iter().flat_map(BTreeMap::keys).copied();
        let mut items: Vec<u64> = sources.iter().flat_map(items_of).collect();
        items.sort_unstable();
        items.dedup();
        for item in items {
            let least = sources.iter().map(|source| self.least(index, source, item));
            let merged = if rule == Rule::Intersect {
                least.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
            } else {
                least.reduce(|a, b| (a.0 + b.0, a.1.max(b.1)))
            };
            self.put(index, to, item, merged.unwrap_or_default(), 1);
        }
    }

    /// Returns an error unless `count` of an item is possible.
    fn check(&mut self, index: usize, key: &'a str, item: u64, count: u64) -> Result<(), String> {
        let (least, _) = self.least(index, key, item);
        self.required += usize::from(least > 0);
        if count >= least {
            return Ok(());
        }
        Err(format!("item {item} of {key} has count {count}, and must have {least}: {:?}", self.additions[key][&item]))
    }

    /// Returns the least count of an item that a reader must find, and the time until which it is remembered.
    fn least(&mut self, reader: usize, key: &'a str, item: u64) -> (u64, u64) {
        let Some(additions) = self.additions.get_mut(key).and_then(|items| items.get_mut(&item)) else { return (0, 0) };
        let (history, read) = (self.history, &self.history[reader]);
        let clears: &[usize] = self.clears.get(key).map_or(&[], Vec::as_slice);
        // Readers come in the order of their completion, so an addition that was cleared for one is for all later ones.
        additions.retain(|addition| {
            let added = &history[addition.event];
            !clears.iter().any(|&clear| {
                let is_own = clear == addition.event || clear == reader;
                !is_own && history[clear].completed >= added.invoked && history[clear].invoked <= read.completed
            })
        });
        let writes = self.clocks.get(key).map_or(&[][..], Vec::as_slice);
        let before = writes.partition_point(|&(invoked, _)| invoked <= read.completed);
        let clock = writes[..before].last().map_or(0, |&(_, clock)| clock).max(read.clock);
        // An addition to another server, or to one that lost the deletion, may be to a key that still expires.
        let had_cleared = |clear: usize, added: &Event| {
            let between = |loss: &Event| history[clear].invoked <= loss.completed && loss.invoked <= added.completed;
            let is_lost = |&loss: &usize| history[loss].server == added.server && between(&history[loss]);
            history[clear].server == added.server && !self.losses.iter().any(is_lost)
        };
        let expiries: &[(usize, u64)] = self.expiries.get(key).map_or(&[], Vec::as_slice);
        let required = additions.iter().filter(|addition| {
            let added = &history[addition.event];
            let is_held = addition.held.get(&read.server).is_some_and(|&since| since <= read.invoked);
            let may_have_expired = expiries.iter().any(|&(expiry, at)| {
                let separates = |&clear: &usize| {
                    history[expiry].completed < history[clear].invoked
                        && history[clear].completed < added.invoked
                        && had_cleared(clear, added)
                };
                history[expiry].invoked <= read.completed && at <= clock && !clears.iter().any(separates)
            });
            is_held && addition.until > clock && !may_have_expired
        });
        let (mut count, mut until, mut first) = (0u64, 0, u64::MAX);
        for addition in required {
            count = count.saturating_add(addition.count);
            until = until.max(addition.until);
            first = first.min(history[addition.event].invoked);
        }
        let removals = self.removals.get(&(key, item)).into_iter().flatten();
        let removed = removals
            .filter(|&&removal| history[removal].invoked <= read.completed && history[removal].completed >= first);
        (count.saturating_sub(removed.count() as u64), until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: usize = 3;

    /// Returns an event that takes no time, on a server whose clock shows the same time.
    fn at(time: u64, server: usize, action: Action) -> Event {
        Event { server, invoked: time, completed: time, clock: time, action }
    }

    fn added(until: u64, copies: usize) -> Action {
        Action::Add { key: "a".to_owned(), items: vec![Added { item: 7, was_absent: false, until }], copies }
    }

    fn read(key: &str, count: u64) -> Action {
        Action::Read { key: key.to_owned(), found: vec![(7, count)] }
    }

    fn clear(key: &str) -> Action {
        Action::Clear { key: key.to_owned() }
    }

    fn merge(sources: &[&str], rule: Rule) -> Action {
        Action::Merge { to: "b".to_owned(), sources: sources.iter().map(|&key| key.to_owned()).collect(), rule }
    }

    /// Panics unless the events require `count` occurrences in the last read of key `key` on a server.
    #[track_caller]
    fn assert_requires(count: u64, events: &[Event], server: usize, key: &str) {
        let judged = |found| judge(SERVERS, &[events, &[at(1000, server, read(key, found))]].concat());
        judged(count).expect("enough occurrences");
        assert!(count == 0 || judged(count - 1).is_err(), "fewer than {count} occurrences");
    }

    #[test]
    fn missing_items_and_low_counts_are_found() {
        let twice = [at(1, 0, added(FOREVER, 1)), at(2, 0, added(FOREVER, 1))];
        assert_requires(1, &twice[..1], 0, "a");
        assert_requires(2, &twice, 0, "a");
        assert_requires(0, &twice, 0, "b");
        let removed = [&twice[..], &[at(3, 0, Action::Remove { key: "a".to_owned(), items: vec![7] })]].concat();
        assert_requires(1, &removed, 0, "a");
        assert_requires(0, &[&twice[..], &[at(3, 0, clear("a"))]].concat(), 0, "a");
        assert_requires(1, &[at(1, 0, clear("a")), at(2, 0, added(FOREVER, 1))], 0, "a");
    }

    #[test]
    fn a_present_item_that_is_reported_as_new_is_found() {
        let items = vec![Added { item: 7, was_absent: true, until: FOREVER }];
        let new = |time| at(time, 0, Action::Add { key: "a".to_owned(), items: items.clone(), copies: 1 });
        assert_eq!(judge(SERVERS, &[new(1)]), Ok(0));
        assert!(judge(SERVERS, &[new(1), new(2)]).is_err());
        assert!(judge(SERVERS, &[new(1), at(2, 0, clear("a")), new(3)]).is_ok());
    }

    #[test]
    fn operations_that_overlap_or_have_no_outcome_may_have_happened_or_not() {
        let pending = |action| Event { completed: UNKNOWN, ..at(1, 0, action) };
        assert_requires(0, &[pending(added(FOREVER, 1))], 0, "a");
        assert_requires(0, &[pending(clear("a")), at(2, 0, added(FOREVER, 1))], 0, "a");
        let removal = Action::Remove { key: "a".to_owned(), items: vec![7] };
        assert_requires(0, &[pending(removal), at(2, 0, added(FOREVER, 1))], 0, "a");
        let overlapping = Event { completed: 3, ..at(1, 0, clear("a")) };
        assert_requires(0, &[at(2, 0, added(FOREVER, 1)), overlapping], 0, "a");
        let late = Event { completed: 1001, ..at(1, 0, added(FOREVER, 1)) };
        assert_requires(0, &[late], 0, "a");
    }

    #[test]
    fn what_a_server_caught_up_with_must_survive_on_it() {
        let caught_up = |until| at(5, 1, Action::CaughtUp { with: 0, until });
        let add = at(2, 0, added(FOREVER, 1));
        assert_requires(0, std::slice::from_ref(&add), 1, "a");
        assert_requires(0, &[add.clone(), caught_up(1)], 1, "a");
        assert_requires(1, &[add.clone(), caught_up(2)], 1, "a");
        assert_requires(1, &[add.clone(), caught_up(2), at(6, 1, Action::Lost { since: 2 })], 1, "a");
        assert_requires(0, &[add.clone(), caught_up(2), at(6, 1, Action::Lost { since: 1 })], 1, "a");
        assert_requires(1, &[add, caught_up(2), at(6, 1, Action::Lost { since: 1 })], 0, "a");
    }

    #[test]
    fn what_a_majority_acknowledged_must_survive_a_promotion_by_a_majority() {
        let promoted = |by_majority| at(5, 1, Action::Promoted { by_majority });
        assert_requires(1, &[at(2, 0, added(FOREVER, 2)), promoted(true)], 1, "a");
        assert_requires(0, &[at(2, 0, added(FOREVER, 1)), promoted(true)], 1, "a");
        assert_requires(0, &[at(2, 0, added(FOREVER, 2)), promoted(false)], 1, "a");
        assert_requires(0, &[at(2, 0, added(FOREVER, 2)), promoted(true)], 2, "a");
        let loss = at(3, 2, Action::Lost { since: 0 });
        assert_requires(0, &[at(2, 0, added(FOREVER, 2)), loss, promoted(true)], 1, "a");
    }

    #[test]
    fn nothing_is_forgotten_before_its_time() {
        let write = |time| at(time, 0, Action::Add { key: "a".to_owned(), items: vec![], copies: 1 });
        assert_requires(1, &[at(1, 0, added(1001, 1))], 0, "a");
        assert_requires(0, &[at(1, 0, added(1000, 1))], 0, "a");
        let ahead = Event { clock: 5000, ..write(2) };
        assert_requires(0, &[at(1, 0, added(1001, 1)), ahead], 0, "a");
        let expires = |at_time| at(2, 0, Action::Expire { key: "a".to_owned(), at: at_time });
        assert_requires(1, &[at(1, 0, added(FOREVER, 1)), expires(1001)], 0, "a");
        assert_requires(0, &[at(1, 0, added(FOREVER, 1)), expires(1000)], 0, "a");
        let cleared = |server| [expires(1000), at(3, server, clear("a")), at(4, 0, added(FOREVER, 1))];
        assert_requires(1, &cleared(0), 0, "a");
        assert_requires(0, &cleared(1), 0, "a");
        let lost = [&cleared(0)[..2], &[at(4, 0, Action::Lost { since: 2 })], &[at(5, 0, added(FOREVER, 1))]].concat();
        assert_requires(0, &lost, 0, "a");
    }

    #[test]
    fn merged_items_are_required() {
        let add = [at(1, 0, added(FOREVER, 1)), at(2, 0, added(FOREVER, 1))];
        let merged = |sources: &[&str], rule| [&add[..], &[at(3, 0, merge(sources, rule))]].concat();
        assert_requires(4, &merged(&["a", "a"], Rule::Union), 0, "b");
        assert_requires(2, &merged(&["a"], Rule::Replace), 0, "b");
        assert_requires(0, &merged(&["a", "c"], Rule::Intersect), 0, "b");
        assert_requires(2, &merged(&["a", "a"], Rule::Intersect), 0, "b");
        assert_requires(2, &merged(&["a"], Rule::Move), 0, "b");
        assert_requires(0, &merged(&["a"], Rule::Move), 0, "a");
    }

    #[test]
    fn digests_that_differ_after_healing_are_found() {
        let digest = |digest| BTreeMap::from([("a".to_owned(), digest)]);
        let healed = |digests| judge(SERVERS, &[at(1, 0, Action::Healed { digests })]);
        assert!(healed(vec![digest(1), digest(1), digest(1)]).is_ok());
        assert!(healed(vec![digest(1), digest(1), digest(2)]).is_err());
    }
}
