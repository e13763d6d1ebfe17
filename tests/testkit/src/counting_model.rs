//! What a filter must contain: how often each item was added and not removed.

use std::collections::BTreeMap;

/// The items of one filter, each with the number of times that it was added and not removed. A filter that does not count is
/// the same, except that nothing is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct CountingModel<T> {
    counts: BTreeMap<T, u64>,
    /// Whether the filter may contain other things than its replies said: it was loaded from any bytes, or an item was removed
    /// that was not in it. Then each item that is removed may take others with it.
    is_uncertain: bool,
}

impl<T> Default for CountingModel<T> {
    fn default() -> Self {
        CountingModel { counts: BTreeMap::new(), is_uncertain: false }
    }
}

impl<T: Clone + Ord> CountingModel<T> {
    /// The model of a filter of which nothing is known.
    pub fn uncertain() -> Self {
        CountingModel { is_uncertain: true, ..CountingModel::default() }
    }

    pub fn add(&mut self, item: T) {
        *self.counts.entry(item).or_default() += 1;
    }

    /// Removes one occurrence of an item. If it may not have been there, nothing is certain any more.
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

    /// Returns how often an item was added and not removed.
    pub fn count(&self, item: &T) -> u64 {
        self.counts.get(item).copied().unwrap_or(0)
    }

    pub fn contains(&self, item: &T) -> bool {
        self.counts.contains_key(item)
    }

    /// Returns whether the filter may count an item so often: at least as often as it is there.
    pub fn allows(&self, item: &T, count: u64) -> bool {
        count >= self.count(item)
    }

    /// Returns the items in order, each once.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.counts.keys()
    }

    /// Returns the items in order, each as often as it is there.
    pub fn occurrences(&self) -> impl Iterator<Item = &T> {
        self.counts.iter().flat_map(|(item, &count)| std::iter::repeat_n(item, count as usize))
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Becomes the union with another filter, in which counts are added.
    pub fn unite(&mut self, other: &Self) {
        self.is_uncertain |= other.is_uncertain;
        other.counts.iter().for_each(|(item, count)| *self.counts.entry(item.clone()).or_default() += count);
    }

    /// Becomes the intersection with another filter, in which the lower count remains.
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
