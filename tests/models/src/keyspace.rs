//! A model of the filters of a key space.

use std::collections::BTreeMap;

use crate::counting::CountingModel;

/// The filters of a server by key. A key without a filter is absent.
#[derive(Clone, Debug)]
pub struct KeyspaceModel<T>(BTreeMap<Vec<u8>, CountingModel<T>>);

impl<T> Default for KeyspaceModel<T> {
    fn default() -> Self {
        KeyspaceModel(BTreeMap::new())
    }
}

impl<T: Clone + Ord> KeyspaceModel<T> {
    /// Returns the filter of a key, if it has one.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&CountingModel<T>> {
        self.0.get(key.as_ref())
    }

    /// Returns the filter of a key. Creates it if the key has none.
    pub fn get_or_create(&mut self, key: impl AsRef<[u8]>) -> &mut CountingModel<T> {
        self.0.entry(key.as_ref().to_vec()).or_default()
    }

    /// Sets the filter of a key; `None` deletes the key.
    pub fn put(&mut self, key: impl AsRef<[u8]>, filter: Option<CountingModel<T>>) {
        match filter {
            Some(filter) => self.0.insert(key.as_ref().to_vec(), filter),
            None => self.0.remove(key.as_ref()),
        };
    }

    /// Sets the filter of a key to an empty one.
    pub fn create(&mut self, key: impl AsRef<[u8]>) {
        self.put(key, Some(CountingModel::default()));
    }

    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.put(key, None);
    }

    pub fn rename(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
        let filter = self.0.remove(from.as_ref());
        self.put(to, filter);
    }

    pub fn copy(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
        self.put(to, self.get(from).cloned());
    }

    /// Sets the filter of a key to the merge of `operands`. A key without a filter counts as an empty filter.
    pub fn merge(&mut self, to: impl AsRef<[u8]>, operands: &[impl AsRef<[u8]>], is_union: bool) {
        let mut operands = operands.iter().map(|key| self.get(key).cloned().unwrap_or_default());
        let first = operands.next().unwrap_or_default();
        let merge = if is_union { CountingModel::unite } else { CountingModel::intersect };
        let merged = operands.fold(first, |mut merged, other| {
            merge(&mut merged, &other);
            merged
        });
        self.put(to, Some(merged));
    }

    /// Returns all filters with their keys, in order.
    pub fn filters(&self) -> impl Iterator<Item = (&[u8], &CountingModel<T>)> {
        self.0.iter().map(|(key, filter)| (key.as_slice(), filter))
    }
}
