//! Reads INFO, BF.INFO, TYPE and digests.

use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, Value};

use crate::command::ask;
use crate::server::PATIENCE;

/// Returns the reply of BF.INFO, without the size of a counting filter, which depends on the order of the writes.
pub fn filter_info(client: &mut Connection, key: &str) -> Vec<Value> {
    let mut facts: Vec<Value> = ask(client, &format!("BF.INFO {key}"));
    if info_field::<String>(client, key, "LAYOUT") == "counting" {
        let size = facts.iter().position(|fact| *fact == Value::SimpleString("Size".to_owned())).expect("a size");
        facts.drain(size..size + 2);
    }
    facts
}

/// Returns a single field of BF.INFO.
pub fn info_field<T: FromRedisValue>(client: &mut Connection, key: &str, field: &str) -> T {
    let mut reply: Vec<Value> = ask(client, &format!("BF.INFO {key} {field}"));
    let value = reply.pop().expect("one value");
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("BF.INFO {key} {field}: {error}"))
}

/// Returns true if a key has a filter, of our data type or RedisBloom's.
pub fn is_filter(client: &mut Connection, key: &str) -> bool {
    ["oxbloom--", "MBbloom--"].contains(&ask::<String>(client, &format!("TYPE {key}")).as_str())
}

/// Returns a field of the server's INFO, or an empty string if it is missing.
pub fn info(client: &mut Connection, section: &str, field: &str) -> String {
    field_in(&ask::<String>(client, &format!("INFO {section}")), field).to_owned()
}

/// Returns a field in the text of INFO, or an empty string if it is missing.
fn field_in<'a>(text: &'a str, field: &str) -> &'a str {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim()
}

/// Returns a number in the server's INFO, or 0 if it is missing.
pub fn info_number(client: &mut Connection, section: &str, field: &str) -> u64 {
    info(client, section, field).parse().unwrap_or(0)
}

/// The gauges of a layout in INFO: filters, layers, bytes, items.
pub type Gauges = [u64; 4];

/// The layouts by their names in INFO, with the arguments that create them. The seeds are fixed. So the same items
/// always give the same filter, except in a filter that forgets: it also stores times. Its window ends long after the
/// tests.
pub const LAYOUTS: [(&str, &str); 4] = [
    ("native", "LAYOUT native SEED 7"),
    ("counting", "COUNTING SEED 8"),
    ("windowed", "WINDOW 604800 SEED 9"),
    ("classic", "LAYOUT classic"),
];

/// Returns a figure of a layout in `INFO bf`.
pub fn layout_figure(client: &mut Connection, layout: &str, figure: &str) -> u64 {
    figure_in(&ask::<String>(client, "INFO bf"), layout, figure)
}

/// Returns a figure of a layout in the text of INFO.
fn figure_in(text: &str, layout: &str, figure: &str) -> u64 {
    let figures = field_in(text, &format!("bf_{layout}"));
    let number = figures.split(',').find_map(|pair| pair.strip_prefix(figure)?.strip_prefix('='));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {figure} of {layout} in '{figures}'"))
}

/// Returns the number of items in a filter's memory. Forgotten items count until the next addition.
fn items_in_memory(client: &mut Connection, key: &str) -> u64 {
    let lines: Vec<String> = ask(client, &format!("BF.DEBUG {key}"));
    let items = lines[1..].iter().flat_map(|line| line.split(' ')).filter_map(|fact| fact.strip_prefix("size:"));
    items.map(|items| items.parse::<u64>().expect("a number")).sum()
}

/// The sums of the gauges of filters, for each of [`LAYOUTS`].
pub type Sums = [Gauges; LAYOUTS.len()];

/// Adds the gauges of a filter, which are fields of BF.INFO, to the sums.
pub fn add_gauges(client: &mut Connection, key: &str, sums: &mut Sums) {
    let layout: String = info_field(client, key, "LAYOUT");
    let sums = &mut sums[LAYOUTS.iter().position(|(name, _)| *name == layout).expect("a layout")];
    sums[0] += 1;
    for (sum, field) in sums[1..].iter_mut().zip(["FILTERS", "SIZE"]) {
        *sum += info_field::<u64>(client, key, field);
    }
    sums[3] += if layout == "windowed" { items_in_memory(client, key) } else { info_field(client, key, "ITEMS") };
}

/// Panics unless the gauges of `INFO bf` are the sums of the fields of BF.INFO over all filters.
pub fn assert_figures_add_up(client: &mut Connection) {
    let mut expected = Sums::default();
    for key in ask::<Vec<String>>(client, "KEYS *") {
        if is_filter(client, &key) {
            add_gauges(client, &key, &mut expected);
        }
    }
    assert_figures(client, &expected, "over all filters");
}

/// Panics unless the gauges of `INFO bf` are these sums.
pub fn assert_figures(client: &mut Connection, expected: &Sums, case: &str) {
    let figures = ["filters", "layers", "bytes", "items"];
    let shown = |client: &mut Connection| {
        let text: String = ask(client, "INFO bf");
        LAYOUTS.map(|(layout, _)| figures.map(|figure| figure_in(&text, layout, figure)))
    };
    // Some filters are freed in the background.
    let deadline = Instant::now() + PATIENCE;
    while shown(client) != *expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(shown(client), *expected, "{case}: {figures:?} of {LAYOUTS:?} in INFO, and as sums");
    for (index, figure) in figures.into_iter().enumerate() {
        let total = expected.iter().map(|sums| sums[index]).sum::<u64>();
        assert_eq!(info_number(client, "bf", &format!("bf_{figure}")), total, "{case}: {figure}");
    }
}

/// Returns the number of times that the server ran a command.
pub fn calls(client: &mut Connection, command: &str) -> u64 {
    let stats = info(client, "commandstats", &format!("cmdstat_{command}"));
    stats.split(',').find_map(|stat| stat.strip_prefix("calls=")).map_or(0, |calls| calls.parse().unwrap_or(0))
}

pub fn used_memory(client: &mut Connection) -> u64 {
    info_number(client, "memory", "used_memory")
}

/// Returns the digest of all data of the server.
pub fn digest(client: &mut Connection) -> String {
    ask(client, "DEBUG DIGEST")
}

/// Returns the digest of one key.
pub fn digest_of(client: &mut Connection, key: &str) -> String {
    ask::<Vec<String>>(client, &format!("DEBUG DIGEST-VALUE {key}")).remove(0)
}
