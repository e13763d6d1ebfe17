//! A model of a filter: the count of each item.

use std::collections::BTreeMap;

/// The items of a filter, and the count of each: its additions minus its removals. The model also fits a filter without
/// counts, which has no removals.
#[derive(Clone, Debug, PartialEq)]
pub struct CountingModel<T> {
    counts: BTreeMap<T, u64>,
    /// True if the filter may contain other items than its replies said: it was loaded from arbitrary bytes, or an
    /// absent item was removed. In both cases, each removal may remove other items too.
    is_uncertain: bool,
}

impl<T> Default for CountingModel<T> {
    fn default() -> Self {
        CountingModel { counts: BTreeMap::new(), is_uncertain: false }
    }
}

impl<T: Clone + Ord> CountingModel<T> {
    /// Returns the model of a filter with unknown content.
    pub fn uncertain() -> Self {
        CountingModel { is_uncertain: true, ..CountingModel::default() }
    }

    pub fn add(&mut self, item: T) {
        *self.counts.entry(item).or_default() += 1;
    }

    /// Removes one occurrence of an item. If the item may have been absent, the model becomes uncertain, and loses all
    /// counts.
    pub fn remove(&mut self, item: &T) {
        match self.counts.get_mut(item) {
            Some(count) if !self.is_uncertain && *count > 1 => *count -= 1,
            Some(_) if !self.is_uncertain => drop(self.counts.remove(item)),
            _ => *self = CountingModel::uncertain(),
        }
    }

    /// Keeps the items for which `is_kept` is true.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.counts.retain(|item, _| is_kept(item));
    }

    /// Returns the count of an item: its additions minus its removals.
    pub fn count(&self, item: &T) -> u64 {
        self.counts.get(item).copied().unwrap_or(0)
    }

    pub fn contains(&self, item: &T) -> bool {
        self.counts.contains_key(item)
    }

    /// Returns true if the filter may return `count` for an item. A count must not be too low.
    pub fn allows(&self, item: &T, count: u64) -> bool {
        count >= self.count(item)
    }

    /// Returns the items in order, each once.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.counts.keys()
    }

    /// Returns the items in order, each once per occurrence.
    pub fn occurrences(&self) -> impl Iterator<Item = &T> {
        self.counts.iter().flat_map(|(item, &count)| std::iter::repeat_n(item, count as usize))
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Unites the model with another. Counts are added.
    pub fn unite(&mut self, other: &Self) {
        self.is_uncertain |= other.is_uncertain;
        other.counts.iter().for_each(|(item, count)| *self.counts.entry(item.clone()).or_default() += count);
    }

    /// Intersects the model with another. The lower count remains.
    pub fn intersect(&mut self, other: &Self) {
        self.is_uncertain |= other.is_uncertain;
        self.counts.retain(|item, count| {
            *count = other.count(item).min(*count);
            *count > 0
        });
    }
}

impl<T: Ord> Extend<T> for CountingModel<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| *self.counts.entry(item).or_default() += 1);
    }
}
