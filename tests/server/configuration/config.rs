//! Settings in the configuration file, and by CONFIG.

use crate::configuration::defaults::{RATE_RANGE, config, defaults, failed_start, has_config, set};
use crate::configuration::valkey_bloom;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup};

#[test]
fn config_shows_and_changes_the_defaults_of_new_filters() {
    if !has_config() {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let names: Vec<_> = client.run("CONFIG GET bf.*").elements().iter().step_by(2).map(Reply::text).collect();
    let settings = [
        ("error-rate", "0.01"),
        ("initial-size", "100"),
        ("expansion-factor", "2"),
        ("filter-memory-limit", "0"),
        ("merge-limit", "67108864"),
        ("changes-size", "65536"),
        ("lookahead", "auto"),
        ("lookahead-size", "2097152"),
        ("layout", "native"),
        ("redisbloom-version", "auto"),
        ("dialect", "redisbloom"),
        ("cf-bucket-size", "2"),
        ("cf-initial-size", "1024"),
        ("cf-max-iterations", "20"),
        ("cf-expansion-factor", "1"),
        ("cf-max-expansions", "32"),
        ("cf-layout", "native"),
        ("bloom-tightening-ratio", "0.5"),
        ("bloom-use-random-seed", "yes"),
        ("bloom-defrag-enabled", "yes"),
    ];
    let names: Vec<_> = names.iter().filter(|name| !valkey_bloom::is_second_name(name)).collect();
    assert_eq!(names.len(), settings.len(), "{names:?}");
    for (name, default) in settings {
        assert_eq!(config(&mut client, &format!("bf.{name}")), default);
    }
    client.run("BF.ADD old item");
    let old = client.run("BF.INFO old");
    for (name, value) in [("bf.error-rate", "0.001"), ("bf.initial-size", "500"), ("BF.Expansion-Factor", "4")] {
        assert_eq!(set(&mut client, name, value), Reply::simple("OK"));
        assert_eq!(config(&mut client, &name.to_ascii_lowercase()), value);
    }
    assert_eq!(defaults(&mut client), (0.001, 500, Some(4)));
    client.run("DEL many inserted");
    client.run("BF.MADD many item");
    client.run("BF.INSERT inserted ERROR 0.25 ITEMS item");
    assert_eq!(client.run("BF.INFO many CAPACITY"), Reply::integers(&[500]));
    assert_eq!(client.run("BF.INFO many EXPANSION"), Reply::integers(&[4]));
    assert_eq!(client.run("BF.INFO inserted CAPACITY"), Reply::integers(&[500]));
    assert_eq!(client.run("BF.INFO inserted ERROR"), Reply::Array(vec![Reply::bulk("0.25")]));
    client.run("BF.RESERVE reserved 0.1 10");
    assert_eq!(client.run("BF.INFO reserved EXPANSION"), Reply::integers(&[4]));
    assert_eq!(client.run("BF.INFO old"), old);
    set(&mut client, "bf.expansion-factor", "0");
    assert_eq!(defaults(&mut client), (0.001, 500, None));
}

#[test]
fn config_rejects_values_out_of_range_and_names_the_range() {
    if !has_config() {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let numbers = |min: &str, max: &str| format!("between {min} and {max}");
    for (name, value, reason) in [
        ("bf.error-rate", "0", RATE_RANGE.to_owned()),
        ("bf.error-rate", "1", RATE_RANGE.to_owned()),
        ("bf.error-rate", "nan", RATE_RANGE.to_owned()),
        ("bf.error-rate", "", RATE_RANGE.to_owned()),
        ("bf.error-rate", "0.1x", RATE_RANGE.to_owned()),
        ("bf.initial-size", "0", numbers("1", "9223372036854775807")),
        ("bf.initial-size", "-5", numbers("1", "9223372036854775807")),
        ("bf.expansion-factor", "-1", numbers("0", "4294967295")),
        ("bf.expansion-factor", "4294967296", numbers("0", "4294967295")),
    ] {
        let reply = set(&mut client, name, value);
        assert!(matches!(&reply, Reply::Error(text) if text.contains(&reason)), "{name} '{value}': {reply:?}");
    }
    for (name, value) in [("bf.initial-size", "x"), ("bf.filter-memory-limit", "x"), ("bf.filter-memory-limit", "-1")] {
        assert!(set(&mut client, name, value).is_error(), "{name} '{value}'");
    }
    assert_eq!(defaults(&mut client), (0.01, 100, Some(2)));
    assert_eq!(config(&mut client, "bf.filter-memory-limit"), "0");
}

#[test]
fn settings_may_be_in_the_configuration_file() {
    if !has_config() {
        return;
    }
    let server = Setup::oxbloom().set("bf.error-rate 0.05").set("bf.initial-size 1000").start();
    assert_eq!(defaults(&mut Wire::resp2(&server)), (0.05, 1000, Some(2)));
    // The file takes precedence over the arguments.
    let setup = Setup::oxbloom().module_arguments("ERROR_RATE 0.2 INITIAL_SIZE 7").set("bf.error-rate 0.05");
    assert_eq!(defaults(&mut Wire::resp2(&setup.start())), (0.05, 7, Some(2)));
}

#[test]
fn the_log_names_errors_in_the_configuration_file() {
    if !has_config() {
        return;
    }
    for (line, reasons) in [
        ("bf.error-rate 2", ["bf.error-rate", RATE_RANGE]),
        ("bf.error-rate \"\"", ["bf.error-rate", RATE_RANGE]),
        ("bf.initial-size 0", ["bf.initial-size", "between 1 and 9223372036854775807"]),
        ("bf.lookahead-size x", ["bf.lookahead-size", "memory value"]),
        ("bf.lookahead yes", ["bf.lookahead", "auto, on, off"]),
        ("bf.layout nothing", ["bf.layout", "native, classic"]),
        // Older servers do not name the setting.
        ("bf.nothing 1", ["Module Configuration detected", "aborting"]),
    ] {
        let log = failed_start(Setup::oxbloom().set(line));
        assert!(reasons.iter().all(|reason| log.contains(reason)), "{line}:\n{log}");
    }
}

/// Returns the lines about this module in a server's configuration file.
fn lines_about_us(server: &Server) -> Vec<String> {
    let file = std::fs::read_to_string(server.folder().join("server.conf")).unwrap();
    file.lines().filter(|line| line.starts_with("bf.")).map(str::to_owned).collect()
}

#[test]
fn config_rewrite_keeps_the_values_of_config_set() {
    if !has_config() {
        return;
    }
    let arguments = "INITIAL_SIZE 30";
    let server = Setup::oxbloom().module_arguments(arguments).start();
    let mut client = Wire::resp2(&server);
    for (name, value) in
        [("bf.error-rate", "0.000001"), ("bf.expansion-factor", "0"), ("bf.filter-memory-limit", "3mb")]
    {
        assert_eq!(set(&mut client, name, value), Reply::simple("OK"));
    }
    assert_eq!(client.run("CONFIG REWRITE"), Reply::simple("OK"));
    let lines = lines_about_us(&server);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let again = lines.into_iter().fold(Setup::oxbloom().module_arguments(arguments), Setup::set).on(server.kill());
    let server = again.start();
    let mut client = Wire::resp2(&server);
    assert_eq!(defaults(&mut client), (0.000001, 30, None));
    assert_eq!(config(&mut client, "bf.filter-memory-limit"), (3 << 20).to_string());
    assert_eq!(client.run("CONFIG REWRITE"), Reply::simple("OK"));
    assert_eq!(lines_about_us(&server).len(), 3);
}
