//! Reads INFO, BF.INFO, TYPE and digests.

use std::time::{Duration, Instant};

use oxbloom_filter::internals::codec::{Header, Origin};
use redis::{Connection, FromRedisValue, Value};

use crate::command::ask;
use crate::server::PATIENCE;

/// Returns the reply of BF.INFO or CF.INFO, without the size of a filter that counts in a table, which depends on the
/// order of the writes.
pub fn filter_info(client: &mut Connection, key: &str) -> Vec<Value> {
    let layout = layout_of(client, key);
    let family = if layout.ends_with("cuckoo") { "CF" } else { "BF" };
    let mut facts: Vec<Value> = ask(client, &format!("{family}.INFO {key}"));
    if ["counting", "native_cuckoo"].contains(&layout.as_str()) {
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

/// Returns true if a key has a filter, of one of our data types or another project's.
fn is_filter(client: &mut Connection, key: &str) -> bool {
    ["oxbloom--", "MBbloom--", "bloomfltr", "oxcuckoo-", "MBbloomCF"]
        .contains(&ask::<String>(client, &format!("TYPE {key}")).as_str())
}

/// Returns the layout of a filter by its name in INFO. Cuckoo filters have data types of their own.
pub fn layout_of(client: &mut Connection, key: &str) -> String {
    match ask::<String>(client, &format!("TYPE {key}")).as_str() {
        "oxcuckoo-" => "native_cuckoo".to_owned(),
        "MBbloomCF" => "classic_cuckoo".to_owned(),
        _ => info_field(client, key, "LAYOUT"),
    }
}

/// Returns a field of the server's INFO, or an empty string if it is missing.
pub fn info(client: &mut Connection, section: &str, field: &str) -> String {
    field_in(&ask::<String>(client, &format!("INFO {section}")), field).to_owned()
}

/// Returns a field in the text of INFO, or an empty string if it is missing.
pub fn field_in<'a>(text: &'a str, field: &str) -> &'a str {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim()
}

/// Returns a number in the server's INFO, or 0 if it is missing.
pub fn info_number(client: &mut Connection, section: &str, field: &str) -> u64 {
    info(client, section, field).parse().unwrap_or(0)
}

/// The gauges of a layout in INFO: filters, layers, bytes, items.
pub type Gauges = [u64; 4];

/// The layouts of Bloom filters by their names in INFO, with the arguments that create them. The seeds are fixed. So
/// the same items always give the same filter, except in a filter that forgets: it also stores times. Its window ends
/// long after the tests.
pub const LAYOUTS: [(&str, &str); 5] = [
    ("native", "LAYOUT native SEED 7"),
    ("counting", "COUNTING SEED 8"),
    ("windowed", "WINDOW 604800 SEED 9"),
    ("classic", "LAYOUT classic"),
    ("valkey", "SEED ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"),
];

/// The layouts of cuckoo filters, likewise.
pub const CUCKOO_LAYOUTS: [(&str, &str); 2] =
    [("native_cuckoo", "LAYOUT native SEED 7"), ("classic_cuckoo", "LAYOUT classic")];

/// Returns the command that creates a filter of a layout, given the parameters of a BF.RESERVE: an error rate, a
/// capacity, and EXPANSION or NONSCALING. A classic cuckoo filter has no error rate.
pub fn reserving(key: &str, parameters: &str, (layout, options): (&str, &str)) -> String {
    let cuckoo_rate = match layout {
        "native_cuckoo" => "ERROR",
        "classic_cuckoo" => "",
        _ => return format!("BF.RESERVE {key} {parameters} {options}"),
    };
    let (rate, rest) = parameters.split_once(' ').expect("an error rate and a capacity");
    let rate = if cuckoo_rate.is_empty() { String::new() } else { format!("{cuckoo_rate} {rate}") };
    format!("CF.RESERVE {key} {} {rate} {options}", rest.replace("NONSCALING", "EXPANSION 0"))
}

/// Returns true if filters of a layout have the format of another project, which has no checksums.
pub fn is_foreign(layout: &str) -> bool {
    ["classic", "classic_cuckoo", "valkey"].contains(&layout)
}

/// Returns the names of all layouts in INFO.
pub fn all_layouts() -> [&'static str; LAYOUTS.len() + CUCKOO_LAYOUTS.len()] {
    let mut names = LAYOUTS.into_iter().chain(CUCKOO_LAYOUTS).map(|(name, _)| name);
    std::array::from_fn(|_| names.next().expect("a layout"))
}

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

/// The sums of the gauges of filters, for each of [`all_layouts`].
pub type Sums = [Gauges; LAYOUTS.len() + CUCKOO_LAYOUTS.len()];

/// Adds the gauges of a filter, which are fields of BF.INFO or CF.INFO, to the sums.
pub fn add_gauges(client: &mut Connection, key: &str, sums: &mut Sums) {
    let layout = layout_of(client, key);
    let gauges = match layout.as_str() {
        "native_cuckoo" | "classic_cuckoo" => cuckoo_gauges(client, key),
        _ => {
            let [layers, bytes] = ["FILTERS", "SIZE"].map(|field| info_field(client, key, field));
            let is_windowed = layout == "windowed";
            let items = if is_windowed { items_in_memory(client, key) } else { info_field(client, key, "ITEMS") };
            [1, layers, bytes, items]
        }
    };
    let sums = &mut sums[all_layouts().iter().position(|name| *name == layout).expect("a layout")];
    sums.iter_mut().zip(gauges).for_each(|(sum, gauge)| *sum += gauge);
}

/// Returns the gauges of a cuckoo filter. CF.INFO has the size that RedisBloom's filter would have, and the number of
/// copies of items: the memory of a classic filter and the items of a native one are those of the header in its dump.
fn cuckoo_gauges(client: &mut Connection, key: &str) -> Gauges {
    let (_, header): (u64, Vec<u8>) = ask(client, &format!("CF.SCANDUMP {key} 0"));
    let filter = Header::decode(&header, Origin::Replication).and_then(|header| header.build()).expect("a header");
    let facts: Vec<Value> = ask(client, &format!("CF.INFO {key}"));
    let [Value::Int(size), Value::Int(layers)] = [&facts[1], &facts[5]] else { panic!("{facts:?}") };
    let bytes = if filter.cuckoo().is_some() { filter.memory_usage() as u64 } else { *size as u64 };
    [1, *layers as u64, bytes, filter.len()]
}

/// Panics unless the gauges of `INFO bf` are the sums over all filters.
pub fn assert_figures_add_up(client: &mut Connection) {
    let mut expected = Sums::default();
    for key in ask::<Vec<String>>(client, "KEYS *") {
        if is_filter(client, &key) {
            add_gauges(client, &key, &mut expected);
        }
    }
    let figures = ["filters", "layers", "bytes", "items"];
    let shown = |client: &mut Connection| {
        let text: String = ask(client, "INFO bf");
        all_layouts().map(|layout| figures.map(|figure| figure_in(&text, layout, figure)))
    };
    // Some filters are freed in the background.
    let deadline = Instant::now() + PATIENCE;
    while shown(client) != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(shown(client), expected, "{figures:?} of {:?} in INFO, and as sums", all_layouts());
    for (index, figure) in figures.into_iter().enumerate() {
        let total = expected.iter().map(|sums| sums[index]).sum::<u64>();
        assert_eq!(info_number(client, "bf", &format!("bf_{figure}")), total, "{figure}");
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
