//! A model of a filter that forgets: the time until which it must remember each item.

use std::collections::BTreeMap;

/// The options of a filter that decide what it must remember.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub capacity: u64,
    /// True if the filter forgets by time.
    pub has_window: bool,
    pub refresh: bool,
    /// True if the oldest items are forgotten when there are more than `capacity`.
    pub rolling: bool,
}

/// The answer of a filter to an addition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    New,
    Renewed,
    Present,
}

/// The promise of a filter about an item.
#[derive(Clone, Copy, Debug, Default)]
pub struct Due {
    /// The time until which the item must be remembered.
    pub until: u64,
    /// The number of new items before the item.
    new: u64,
    /// The number of additions before the item's last addition.
    additions: u64,
}

/// The items of a filter that forgets.
#[derive(Clone, Debug)]
pub struct WindowModel {
    rules: Rules,
    due: BTreeMap<u64, Due>,
    /// The number of new items so far.
    new: u64,
    /// The number of new and of renewed items so far.
    additions: u64,
    /// The number of additions when the filter may last have had more items than its capacity. Earlier additions may be
    /// forgotten.
    crowded: u64,
}

impl WindowModel {
    pub fn new(rules: Rules) -> WindowModel {
        WindowModel { rules, due: BTreeMap::new(), new: 0, additions: 0, crowded: 0 }
    }

    /// Returns the promise about each item that was added.
    pub fn due(&self) -> &BTreeMap<u64, Due> {
        &self.due
    }

    /// Records that the filter may have more items than its capacity. Until [`settle`](Self::settle), a filter that
    /// rolls only has to remember its newest items.
    pub fn crowd(&mut self) {
        self.crowded = u64::MAX;
    }

    /// Records that the items that are added from now on have room.
    pub fn settle(&mut self) {
        self.crowded = self.additions;
    }

    /// Records an addition at the time `now`, which holds until `until`. `has_lifetime` says that this time was given:
    /// it then holds for items that are present, too, and so it does in a filter that refreshes.
    ///
    /// Panics if the filter forgot the item, or renewed an item that it must not renew.
    pub fn add(&mut self, item: u64, answer: Answer, [now, until]: [u64; 2], has_lifetime: bool) {
        let must_be_there = self.must_remember(item, now);
        match answer {
            Answer::New => {
                assert!(!must_be_there, "{item} was forgotten");
                self.due.insert(item, Due { until, new: self.new, additions: self.additions });
                self.new += 1;
                self.additions += 1;
            }
            // These items are remembered as if they were new, also those that are false positives.
            Answer::Renewed | Answer::Present if self.rules.refresh || has_lifetime => {
                let due = self.due.entry(item).or_default();
                due.until = due.until.max(until);
                if answer == Answer::Renewed || !must_be_there {
                    due.additions = self.additions;
                }
                self.additions += u64::from(answer == Answer::Renewed);
            }
            Answer::Renewed => panic!("{item} was renewed"),
            Answer::Present => {}
        }
    }

    /// Returns true if the filter must remember the item at the time `now`.
    pub fn must_remember(&self, item: u64, now: u64) -> bool {
        self.due.get(&item).is_some_and(|due| {
            let Rules { capacity, has_window, refresh, rolling } = self.rules;
            let is_due = !has_window || now < due.until;
            // A renewed item may share a slice with any number of others, and is forgotten with them if the slice is
            // full.
            let is_recent = !refresh && self.new - due.new <= capacity;
            let had_room = has_window && due.additions >= self.crowded;
            is_due && (!rolling || is_recent || had_room)
        })
    }
}
