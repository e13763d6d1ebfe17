//! Filters that tests merge.

use redis::Connection;

use testkit::ask;
use testkit::filter_model::FilterModel;
use testkit::info::LAYOUTS;

/// Returns the layouts whose filters can be merged, with their options.
pub(crate) fn mergeable() -> impl Iterator<Item = (&'static str, &'static str)> {
    LAYOUTS.into_iter().filter(|(layout, _)| !["windowed", "valkey"].contains(layout))
}

/// Creates filters with the same parameters. All have the items below 100, and each has 300 items of its own.
pub(crate) fn alike(client: &mut Connection, keys: &[&str], parameters: &str) -> Vec<FilterModel> {
    let models = keys.iter().enumerate().map(|(index, key)| {
        let like = match index {
            0 => format!("BF.RESERVE {key} {parameters}"),
            _ => format!("BF.RESERVE {key} LIKE {}", keys[0]),
        };
        assert_eq!(ask::<String>(client, &like), "OK");
        let mut model = FilterModel::new(key);
        model.add(client, 0..100);
        let start = 1000 * (1 + index as u64);
        model.add(client, start..start + 300);
        model
    });
    models.collect()
}

pub(crate) fn union_of(key: &str, models: &[FilterModel]) -> FilterModel {
    let mut union = FilterModel::new(key);
    union.items.extend(models.iter().flat_map(|model| &model.items));
    union
}
