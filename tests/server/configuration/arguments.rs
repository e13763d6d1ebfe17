//! Settings as arguments of `loadmodule`.

use crate::configuration::defaults::{RATE_RANGE, defaults, failed_start};
use crate::servers::{lacking, logged};
use testkit::Setup;
use testkit::memory::create;
use testkit::wire::{Reply, Wire};

fn defaults_after_loading(arguments: &str) -> (f64, i64, Option<i64>) {
    let server = Setup::oxbloom().module_arguments(arguments).start();
    defaults(&mut Wire::resp2(&server))
}

#[test]
fn the_defaults_are_those_of_redisbloom() {
    assert_eq!(defaults_after_loading(""), (0.01, 100, Some(2)));
}

#[test]
fn the_arguments_of_redisbloom_are_understood() {
    let expected = (0.05, 1000, Some(2));
    for arguments in [
        "ERROR_RATE 0.05 INITIAL_SIZE 1000",
        "initial_size 1000 error_rate 0.05",
        "Error_Rate 5e-2 Initial_Size 1000",
        "ERROR_RATE 0.5 ERROR_RATE 0.05 INITIAL_SIZE 7 INITIAL_SIZE 1000",
    ] {
        assert_eq!(defaults_after_loading(arguments), expected, "{arguments}");
    }
}

#[test]
fn each_setting_has_one_name_in_several_spellings() {
    for spelling in ["bf-{}", "bf.{}", "{}", "BF.{}", "bf_{}"] {
        for separator in ["-", "_"] {
            let name = |name: &str| spelling.replace("{}", &name.replace('-', separator));
            let arguments = format!(
                "{} 0.05 {} 1000 {} 5 {} 1000000 {} 10mb",
                name("error-rate"),
                name("initial-size"),
                name("expansion-factor"),
                name("filter-memory-limit"),
                name("lookahead-size")
            );
            let server = Setup::oxbloom().module_arguments(&arguments).start();
            let mut client = Wire::resp2(&server);
            assert_eq!(defaults(&mut client), (0.05, 1000, Some(5)), "{arguments}");
            assert_eq!(client.run("BF.RESERVE large 0.01 1000000"), Reply::error(create::FILTER_LIMIT), "{arguments}");
        }
    }
}

#[test]
fn an_argument_may_be_a_size_in_the_servers_units() {
    for (limit, capacity) in [("2kb", 4000), ("1mb", 2_000_000), ("1gb", 2_000_000_000u64)] {
        let server = Setup::oxbloom().module_arguments(&format!("filter-memory-limit {limit}")).start();
        let mut client = Wire::resp2(&server);
        assert_eq!(client.run(&format!("BF.RESERVE large 0.01 {capacity}")), Reply::error(create::FILTER_LIMIT));
        assert_eq!(client.run(&format!("BF.RESERVE small 0.01 {}", capacity / 8)), Reply::simple("OK"));
    }
}

#[test]
fn with_an_expansion_of_0_filters_do_not_grow() {
    let server = Setup::oxbloom().module_arguments("expansion-factor 0 initial-size 2 error-rate 1e-9").start();
    let mut client = Wire::resp2(&server);
    assert_eq!(defaults(&mut client), (1e-9, 2, None));
    let full = Reply::error("ERR non scaling filter is full");
    assert_eq!(client.run("BF.MADD new other"), Reply::integers(&[1]));
    assert_eq!(client.run("BF.ADD new third"), full);
    client.run("BF.INSERT grows EXPANSION 3 ITEMS a b c");
    assert_eq!(client.run("BF.INFO grows CAPACITY"), Reply::integers(&[128]));
    client.run("BF.RESERVE fixed 0.000001 2");
    assert_eq!(client.run("BF.MADD fixed a b c"), Reply::Array(vec![Reply::Integer(1), Reply::Integer(1), full]));
}

#[test]
fn wrong_arguments_fail_the_load_and_the_log_says_why() {
    let size = "must be a whole number from 1 to 9223372036854775807";
    let expansion = "must be a whole number from 0 to 4294967295";
    for (arguments, reason) in [
        ("ERROR_RATE 0", format!("ERROR_RATE {RATE_RANGE}, not '0'")),
        ("ERROR_RATE 1", format!("ERROR_RATE {RATE_RANGE}, not '1'")),
        ("bf.error-rate -0.1", format!("bf.error-rate {RATE_RANGE}, not '-0.1'")),
        ("error-rate nan", format!("error-rate {RATE_RANGE}, not 'nan'")),
        ("error-rate x", format!("error-rate {RATE_RANGE}, not 'x'")),
        ("INITIAL_SIZE 0", format!("INITIAL_SIZE {size}, not '0'")),
        ("initial-size 9223372036854775808", format!("initial-size {size}, not '9223372036854775808'")),
        ("initial-size 1.5", format!("initial-size {size}, not '1.5'")),
        ("expansion-factor -1", format!("expansion-factor {expansion}, not '-1'")),
        ("expansion-factor 4294967296", format!("expansion-factor {expansion}, not '4294967296'")),
        ("filter-memory-limit -1", "filter-memory-limit must be".to_owned()),
        ("filter-memory-limit x", "filter-memory-limit must be".to_owned()),
        ("lookahead-size x", "lookahead-size must be a whole number from 0 to".to_owned()),
        ("LAYOUT nothing", "LAYOUT must be native or classic or valkey, not 'nothing'".to_owned()),
        ("ERROR_RATE", "argument 'ERROR_RATE' has no value".to_owned()),
        ("ERROR_RATE 0.1 INITIAL_SIZE", "argument 'INITIAL_SIZE' has no value".to_owned()),
        ("NOTHING 1", "'NOTHING' is not a setting of this module".to_owned()),
        ("bf.nothing 1", "'bf.nothing' is not a setting of this module".to_owned()),
        ("ERROR_RATE 0.1 100", "argument '100' has no value".to_owned()),
    ] {
        let log = failed_start(Setup::oxbloom().module_arguments(arguments));
        assert!(log.contains(&reason), "{arguments}:\n{log}");
    }
}

#[test]
fn settings_of_cuckoo_filters_apply_to_new_ones() {
    let arguments = "CF_MAX_EXPANSIONS 1 cf-bucket-size 4 cf-initial-size 64 cf-max-iterations 7 cf-expansion-factor 2 \
                     cf-layout classic";
    let server = Setup::oxbloom().module_arguments(arguments).start();
    let mut client = Wire::resp2(&server);
    assert_eq!(client.run("CF.ADD new a"), Reply::error("Maximum expansions reached"));
    let line = "bktsize:4 buckets:16 items:0 deletes:0 filters:1 max_iterations:7 expansion:2";
    assert_eq!(client.run("CF.DEBUG new"), Reply::bulk(line));
    assert_eq!(client.run("TYPE new"), Reply::simple("MBbloomCF"));
}

#[test]
fn the_log_has_a_line_with_version_and_settings_and_one_with_missing_features() {
    let server = Setup::oxbloom().module_arguments("ERROR_RATE 0.05 INITIAL_SIZE 1000").start();
    let lines = logged(&server);
    let parts = [env!("CARGO_PKG_VERSION"), "error-rate 0.05", "initial-size 1000", "expansion-factor 2"];
    assert!(parts.iter().all(|part| lines[0].contains(part)), "{lines:?}");
    assert_eq!(lines.len(), 1 + usize::from(!lacking(&server).is_empty()), "{lines:?}");
}
