//! Settings as CONFIG and new filters show them.

use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

/// Returns true if the server supports settings of modules in CONFIG.
pub(crate) fn has_config() -> bool {
    server_version() >= (7, 0)
}

/// Returns the parameters of a filter that BF.ADD creates: error rate, capacity, and expansion (`None` if it does not
/// grow).
pub(crate) fn defaults(client: &mut Wire) -> (f64, i64, Option<i64>) {
    client.run("DEL new");
    assert_eq!(client.run("BF.ADD new item"), Reply::Integer(1));
    let mut field = |name: &str| client.run(&format!("BF.INFO new {name}")).elements()[0].clone();
    let expansion = match field("EXPANSION") {
        Reply::NullBulk => None,
        number => Some(number.integer()),
    };
    (field("ERROR").text().parse().unwrap(), field("CAPACITY").integer(), expansion)
}

pub(crate) fn config(client: &mut Wire, name: &str) -> String {
    client.run(&format!("CONFIG GET {name}")).field(name).text()
}

pub(crate) fn set(client: &mut Wire, name: &str, value: &str) -> Reply {
    client.run_words(&["CONFIG", "SET", name, value])
}

pub(crate) const RATE_RANGE: &str = "must be a number above 0 and below 1";

/// Returns the log of a server that must not start.
pub(crate) fn failed_start(setup: Setup) -> String {
    setup.try_start().err().unwrap_or_else(|| panic!("the server started"))
}
