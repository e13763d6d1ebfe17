//! The filters of a writer as it remembers them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Connection;

use crate::journal::variants::Variant;
use testkit::command::many;
use testkit::filter_model::EXACT;

/// Filters with counts above this are no longer merged, since a merge can double a count.
const MANY: u64 = 1 << 40;

/// The content of a filter.
#[derive(Clone)]
pub(crate) struct Filter {
    pub variant: &'static Variant,
    /// True if all chunks of the filter were loaded.
    pub whole: bool,
    /// True if the filter has no false positives.
    pub exact: bool,
    /// The minimum count of each item. Removed items have the count 0.
    pub counts: BTreeMap<u64, u64>,
    /// The time when each item is forgotten, in a filter that forgets.
    pub ends: BTreeMap<u64, i64>,
}

impl Filter {
    pub(crate) fn new(variant: &'static Variant) -> Filter {
        let exact = variant.parameters.is_some_and(|(error_rate, _)| error_rate == EXACT);
        Filter { variant, whole: true, exact, counts: BTreeMap::new(), ends: BTreeMap::new() }
    }

    pub(crate) fn count(&self, number: u64) -> u64 {
        self.counts.get(&number).copied().unwrap_or(0)
    }

    /// Adds an item. Returns true if it is new.
    pub(crate) fn add(&mut self, number: u64) -> bool {
        let count = self.counts.entry(number).or_default();
        *count = if self.variant.counts() { *count + 1 } else { 1 };
        *count == 1
    }

    /// Adds an item, and the time when a filter that forgets will forget it, which may be that of a TTL. Returns true
    /// if it is new.
    pub(crate) fn add_until(&mut self, number: u64, end: i64, is_ttl: bool) -> bool {
        let is_new = self.add(number);
        if self.variant.forgets() {
            let last = self.ends.entry(number).or_insert(end);
            if is_ttl || self.variant.options.contains("REFRESH") {
                *last = end.max(*last);
            }
        }
        is_new
    }

    fn is_over(&self, now: i64) -> bool {
        self.ends.values().any(|&end| end <= now)
    }

    /// Forgets the items whose time is over.
    fn forget(&mut self, now: i64) {
        self.counts.retain(|number, _| self.ends.get(number).is_none_or(|&end| end > now));
        self.ends.retain(|_, end| *end > now);
    }

    /// Removes one occurrence of an item.
    pub(crate) fn remove(&mut self, number: u64) {
        *self.counts.get_mut(&number).expect("a present item") -= 1;
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.counts.values().any(|&count| count > MANY)
    }

    pub(crate) fn merge(&mut self, other: &Filter, operation: &str) {
        let numbers: BTreeSet<u64> = self.counts.keys().chain(other.counts.keys()).copied().collect();
        self.counts = numbers
            .into_iter()
            .map(|number| {
                let (ours, theirs) = (self.count(number), other.count(number));
                let count = match operation {
                    "INTERSECT" => ours.min(theirs),
                    _ if self.variant.counts() => ours + theirs,
                    _ => ours.max(theirs),
                };
                (number, count)
            })
            .collect();
        self.exact &= other.exact;
        self.ends.retain(|number, end| other.ends.get(number).inspect(|&&theirs| *end = theirs.min(*end)).is_some());
    }

    /// Describes the first of these items whose count on the server differs from this filter's.
    pub(crate) fn difference(&self, client: &mut Connection, key: &str, numbers: &[u64]) -> Option<String> {
        let command = if self.variant.counts() { "BF.MCOUNT" } else { "BF.MEXISTS" };
        numbers.chunks(1000).find_map(|numbers| {
            let found: Vec<u64> = many(client, command, key, numbers);
            numbers.iter().zip(found).find_map(|(&number, found)| {
                let expected = self.count(number);
                let fits = if self.exact { found == expected } else { found >= expected };
                (!fits).then(|| format!("{key}: the count of item {number} is {found}, not {expected}"))
            })
        })
    }
}

/// Filters by key.
pub(crate) type State = BTreeMap<String, Arc<Filter>>;

/// Forgets the items whose time is over, in all filters.
pub(crate) fn forget(state: &mut State, now: i64) {
    state.values_mut().filter(|filter| filter.is_over(now)).for_each(|filter| Arc::make_mut(filter).forget(now));
}
