//! The settings of valkey-bloom, under its names.

use crate::configuration::defaults::{config, defaults, failed_start, set};
use testkit::Setup;
use testkit::server::server_name_and_version;
use testkit::wire::{Reply, Wire};

/// The settings that are also ours: valkey-bloom's name, our name, a value, and what it shows if nobody used it.
const SHARED: [(&str, &str, &str, &str); 4] = [
    ("bf.bloom-capacity", "bf.initial-size", "7", "-1"),
    ("bf.bloom-expansion", "bf.expansion-factor", "5", "-1"),
    ("bf.bloom-fp-rate", "bf.error-rate", "0.2", ""),
    ("bf.bloom-memory-usage-limit", "bf.filter-memory-limit", "1000000", "-1"),
];

/// Returns true if this is a name that only valkey-bloom has, for a setting that is also ours.
pub(crate) fn is_second_name(name: &str) -> bool {
    SHARED.iter().any(|(theirs, ..)| *theirs == name)
}

#[test]
fn arguments_may_have_its_names() {
    let arguments = SHARED.map(|(name, _, value, _)| format!("{name} {value}")).join(" ");
    let others = "bloom-tightening-ratio 0.25 bloom-use-random-seed no BLOOM_DEFRAG_ENABLED no layout valkey";
    let server = Setup::oxbloom().module_arguments(&format!("{arguments} {others}")).start();
    let mut client = Wire::resp2(&server);
    assert_eq!(defaults(&mut client), (0.2, 7, Some(5)));
    assert_eq!(client.run("BF.INFO new TIGHTENING").elements()[0].text(), "0.25");
    assert!(client.run("BF.RESERVE large 0.01 1000000").error_text().contains("bf.filter-memory-limit"));
    client.run("BF.ADD same item");
    assert!(client.run("DUMP new") == client.run("DUMP same"), "both have the fixed seed");
    client.run("FLUSHALL");
    let server = Setup::oxbloom().module_arguments("layout valkey").start();
    let mut client = Wire::resp2(&server);
    for key in ["new", "other"] {
        client.run(&format!("BF.ADD {key} item"));
    }
    assert!(client.run("DUMP new") != client.run("DUMP other"), "each has a seed of its own");
}

#[test]
fn on_valkey_parameters_have_its_names_and_ours() {
    if server_name_and_version().0 != "valkey" {
        return;
    }
    let lines = SHARED.map(|(name, _, value, _)| format!("{name} {value}")).join("\n");
    let server = Setup::oxbloom().set(lines).start();
    let mut client = Wire::resp2(&server);
    assert_eq!(defaults(&mut client), (0.2, 7, Some(5)));
    for (theirs, ours, value, _) in SHARED {
        assert_eq!([theirs, ours].map(|name| config(&mut client, name)), [value, value]);
    }
    assert_eq!(set(&mut client, "bf.bloom-capacity", "9"), Reply::simple("OK"));
    assert_eq!(set(&mut client, "bf.error-rate", "0.5"), Reply::simple("OK"));
    assert_eq!(defaults(&mut client), (0.5, 9, Some(5)));
    for (name, value) in [("bf.bloom-capacity", "0"), ("bf.bloom-capacity", "-2"), ("bf.bloom-fp-rate", "1")] {
        assert!(set(&mut client, name, value).is_error(), "{name} {value}");
    }
    // What CONFIG REWRITE writes can be read again.
    assert_eq!(client.run("CONFIG REWRITE"), Reply::simple("OK"));
    let file = std::fs::read_to_string(server.folder().join("server.conf")).unwrap();
    let lines: Vec<_> = file.lines().filter(|line| line.starts_with("bf.")).collect();
    assert_eq!(lines.len(), 2 * SHARED.len(), "{lines:?}");
    let server = Setup::oxbloom().set(lines.join("\n")).on(server.kill()).start();
    assert_eq!(defaults(&mut Wire::resp2(&server)), (0.5, 9, Some(5)));
}

#[test]
fn on_valkey_a_name_that_nobody_uses_is_not_set() {
    if server_name_and_version().0 != "valkey" {
        return;
    }
    let ours = SHARED.map(|(_, name, value, _)| format!("{name} {value}")).join("\n");
    let server = Setup::oxbloom().module_arguments("initial-size 50").set(ours).start();
    let mut client = Wire::resp2(&server);
    assert_eq!(defaults(&mut client), (0.2, 7, Some(5)));
    for (theirs, _, _, unused) in SHARED {
        assert_eq!(config(&mut client, theirs), unused);
        assert_eq!(set(&mut client, theirs, unused), Reply::simple("OK"));
    }
    assert_eq!(defaults(&mut client), (0.2, 7, Some(5)));
    for lines in ["bf.bloom-capacity 7\nbf.initial-size 8", "bf.error-rate 0.3\nbf.bloom-fp-rate 0.2"] {
        let log = failed_start(Setup::oxbloom().set(lines));
        assert!(log.contains("which has another value: leave out one of both"), "{lines}: {log}");
    }
}
