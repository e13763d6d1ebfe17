//! Loading the module, and its settings: as arguments of `loadmodule`, in the configuration file, and by CONFIG.

use crate::servers::{lacking, logged};
use testkit::info::info;
use testkit::memory::{create, grow};
use testkit::server::{server_name_and_version, server_version};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, oxbloom, redisbloom};

const RATE_RANGE: &str = "must be a number above 0 and below 1";

/// Returns true if the server supports settings of modules in CONFIG.
fn has_config() -> bool {
    server_version() >= (7, 0)
}

/// Returns the parameters of a filter that BF.ADD creates: error rate, capacity, and expansion (`None` if it does not
/// grow).
fn defaults(client: &mut Wire) -> (f64, i64, Option<i64>) {
    client.run("DEL new");
    assert_eq!(client.run("BF.ADD new item"), Reply::Integer(1));
    let mut field = |name: &str| client.run(&format!("BF.INFO new {name}")).elements()[0].clone();
    let expansion = match field("EXPANSION") {
        Reply::NullBulk => None,
        number => Some(number.integer()),
    };
    (field("ERROR").text().parse().unwrap(), field("CAPACITY").integer(), expansion)
}

fn defaults_after_loading(arguments: &str) -> (f64, i64, Option<i64>) {
    let server = Setup::oxbloom().module_arguments(arguments).start();
    defaults(&mut Wire::resp2(&server))
}

/// Returns the log of a server that must not start.
fn failed_start(setup: Setup) -> String {
    setup.try_start().err().unwrap_or_else(|| panic!("the server started"))
}

fn config(client: &mut Wire, name: &str) -> String {
    client.run(&format!("CONFIG GET {name}")).field(name).text()
}

fn set(client: &mut Wire, name: &str, value: &str) -> Reply {
    client.run_words(&["CONFIG", "SET", name, value])
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
    assert_eq!(client.run("BF.INFO grows FILTERS"), Reply::integers(&[2]));
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
    ];
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
fn config_changes_several_settings_at_once_or_none() {
    if !has_config() {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let reply = client.run("CONFIG SET bf.error-rate 0.02 bf.initial-size 50");
    assert_eq!((reply, defaults(&mut client)), (Reply::simple("OK"), (0.02, 50, Some(2))));
    assert!(client.run("CONFIG SET bf.error-rate 0.03 bf.initial-size 0").is_error());
    assert!(client.run("CONFIG SET bf.initial-size 60 bf.error-rate 2").is_error());
    assert_eq!(defaults(&mut client), (0.02, 50, Some(2)));
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

#[test]
fn the_memory_limit_rejects_creation_growth_and_loading() {
    let server = Setup::oxbloom().module_arguments("filter-memory-limit 100000").start();
    let mut client = Wire::resp2(&server);
    assert_eq!(client.run("BF.RESERVE large 0.01 100000"), Reply::error(create::FILTER_LIMIT));
    assert_eq!(client.run("BF.INSERT large CAPACITY 100000 ITEMS a"), Reply::error(create::FILTER_LIMIT));
    assert_eq!(client.run("BF.RESERVE small 0.01 10000"), Reply::simple("OK"));
    let mut added = 0;
    let rejected = loop {
        match client.run(&format!("BF.ADD small item{added}")) {
            Reply::Integer(_) => added += 1,
            reply => break reply,
        }
        assert!(added < 100_000);
    };
    assert_eq!(rejected, Reply::error(grow::FILTER_LIMIT));
    assert!(added > 20_000, "{added}");
    let size = client.run("BF.INFO small SIZE").elements()[0].integer();
    assert!(size <= 100_000, "{size}");
    let words: Vec<_> = (0..200).map(|number| format!("new{number}")).collect();
    let many = client.run(&format!("BF.MADD small item0 {}", words.join(" ")));
    assert_eq!(many.elements()[0], Reply::Integer(0));
    assert_eq!(many.elements().last(), Some(&Reply::error(grow::FILTER_LIMIT)));
    assert_eq!(client.run("BF.ADD small item0"), Reply::Integer(0));
    assert_eq!(client.run(&format!("BF.EXISTS small item{}", added - 1)), Reply::Integer(1));

    let unlimited = Setup::oxbloom().start();
    let mut other = Wire::resp2(&unlimited);
    other.run("BF.RESERVE large 0.01 100000");
    let header = other.run("BF.SCANDUMP large 0");
    let words = [&b"BF.LOADCHUNK"[..], b"large", b"1", header.elements()[1].bytes()];
    assert_eq!(client.run_words(&words), Reply::error(create::FILTER_LIMIT));
    assert_eq!(client.run("EXISTS large"), Reply::Integer(0));
    if has_config() {
        set(&mut client, "bf.filter-memory-limit", "0");
        assert!((0..100).all(|number| !client.run(&format!("BF.ADD small more{number}")).is_error()));
        assert_eq!(client.run_words(&words), Reply::simple("OK"));
    }
}

#[test]
fn the_memory_limit_is_set_in_the_servers_units_and_shown_in_bytes() {
    if !has_config() {
        return;
    }
    let server = Setup::oxbloom().set("bf.filter-memory-limit 512mb").start();
    let mut client = Wire::resp2(&server);
    assert_eq!(config(&mut client, "bf.filter-memory-limit"), (512 << 20).to_string());
    set(&mut client, "bf.filter-memory-limit", "1gb");
    assert_eq!(config(&mut client, "bf.filter-memory-limit"), (1 << 30).to_string());
    assert_eq!(client.run("BF.RESERVE large 0.01 1000000000"), Reply::error(create::FILTER_LIMIT));
    assert_eq!(client.run("BF.RESERVE small 0.01 100000000"), Reply::simple("OK"));
}

/// Starts a server that lets clients load modules.
fn open_to_modules(setup: Setup) -> Server {
    if server_version() >= (7, 0) { setup.set("enable-module-command yes").start() } else { setup.start() }
}

fn load_fails(client: &mut Wire, module: &std::path::Path) -> bool {
    let reply = client.run(&format!("MODULE LOAD {}", module.display()));
    matches!(&reply, Reply::Error(text) if text.contains("Error loading the extension"))
}

const BUSY: &str =
    "not loaded: another module named 'bf' is already loaded (oxbloom, RedisBloom or valkey-bloom); load only one";

#[test]
fn a_second_load_fails_and_the_first_module_keeps_working() {
    let server = open_to_modules(Setup::oxbloom());
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD key item");
    assert!(load_fails(&mut client, &oxbloom()));
    assert!(server.log().contains(BUSY), "{}", server.log());
    assert!(client.run("BF.ADD key other") == Reply::Integer(1) && server.is_alive());
    assert_eq!(client.run("BF.CARD key"), Reply::Integer(2));
    let twice = Setup::oxbloom().set(format!("loadmodule {}", oxbloom().display()));
    let log = failed_start(twice);
    assert!(log.contains(BUSY), "{log}");
}

#[test]
fn oxbloom_is_not_loaded_next_to_redisbloom() {
    let server = open_to_modules(Setup::with_module(redisbloom()));
    let mut client = Wire::resp2(&server);
    assert!(load_fails(&mut client, &oxbloom()));
    assert!(server.log().contains(BUSY), "{}", server.log());
    assert_eq!(client.run("BF.ADD key item"), Reply::Integer(1));
    assert_eq!(client.run("TYPE key"), Reply::simple("MBbloom--"));
    assert!(server.is_alive());
}

#[test]
fn redisbloom_is_not_loaded_next_to_oxbloom() {
    let server = open_to_modules(Setup::oxbloom());
    let mut client = Wire::resp2(&server);
    assert!(load_fails(&mut client, &redisbloom()));
    assert!(
        server
            .log()
            .contains("loaded as 'bf', so RedisBloom and valkey-bloom, which have the same name, cannot be loaded")
    );
    assert_eq!(client.run("BF.ADD key item"), Reply::Integer(1));
    assert_eq!(client.run("TYPE key"), Reply::simple("oxbloom--"));
    assert!(server.is_alive());
}

#[test]
fn a_load_with_wrong_arguments_can_be_repeated_with_right_ones() {
    let server = open_to_modules(Setup::without_module());
    let mut client = Wire::resp2(&server);
    let load = format!("MODULE LOAD {}", oxbloom().display());
    assert!(client.run(&format!("{load} ERROR_RATE 2")).is_error());
    assert!(server.log().contains(RATE_RANGE), "{}", server.log());
    assert!(client.run("BF.ADD key item").is_error());
    assert_eq!(client.run(&format!("{load} INITIAL_SIZE 7")), Reply::simple("OK"));
    assert_eq!(defaults(&mut client), (0.01, 7, Some(2)));
}

#[test]
fn settings_of_module_loadex_are_applied_or_fail_the_load() {
    if !has_config() {
        return;
    }
    let server = open_to_modules(Setup::without_module());
    let mut client = Wire::resp2(&server);
    let load = format!("MODULE LOADEX {}", oxbloom().display());
    for (settings, reason) in [
        ("CONFIG bf.initial-size 0", "bf.initial-size"),
        ("CONFIG bf.layout nothing", "bf.layout"),
        ("CONFIG bf.initial-size 9 ARGS ERROR_RATE 2", "ERROR_RATE must be"),
        ("ARGS NOTHING 1", "'NOTHING' is not a setting of this module"),
    ] {
        assert!(client.run(&format!("{load} {settings}")).is_error(), "{settings}");
        assert!(server.log().contains(reason), "{settings}:\n{}", server.log());
        assert!(client.run("BF.ADD key item").is_error(), "{settings}");
    }
    assert_eq!(client.run(&format!("{load} CONFIG bf.initial-size 9 ARGS ERROR_RATE 0.2")), Reply::simple("OK"));
    assert_eq!(defaults(&mut client), (0.2, 9, Some(2)));
    assert!(server.is_alive());
}

#[test]
fn a_load_with_an_unknown_setting_can_be_repeated_without_it() {
    // Valkey (8.1, 9.1) aborts in this case, with any module that has data types.
    if !has_config() || info(&mut Setup::without_module().start().connect(), "server", "server_name") == "valkey" {
        return;
    }
    let server = open_to_modules(Setup::without_module());
    let mut client = Wire::resp2(&server);
    let load = format!("MODULE LOADEX {}", oxbloom().display());
    assert!(client.run(&format!("{load} CONFIG bf.nothing 1")).is_error());
    // Redis 7.0 keeps the module loaded after the error. Later servers do not.
    if client.run("BF.ADD key item").is_error() {
        assert_eq!(client.run(&load), Reply::simple("OK"), "{}", server.log());
    }
    assert_eq!(defaults(&mut client), (0.01, 100, Some(2)));
    assert!(server.is_alive());
}

#[test]
fn the_module_cannot_be_unloaded_since_it_has_a_data_type() {
    let server = open_to_modules(Setup::oxbloom());
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD key item");
    assert!(client.run("MODULE UNLOAD bf").is_error());
    assert_eq!(client.run("BF.EXISTS key item"), Reply::Integer(1));
    assert!(server.is_alive());
}

#[test]
fn the_server_lists_the_module_by_the_name_of_redisbloom() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let modules = client.run("MODULE LIST");
    let module = modules.elements().iter().find(|module| module.field("name").text() == "bf");
    let module = module.unwrap_or_else(|| panic!("{modules:?}"));
    // Clients require at least 20400 before they use what RedisBloom 2.4 introduced.
    assert_eq!(module.field("ver").integer(), 20_802);
    assert_eq!(info(&mut server.connect(), "bf", "bf_version"), env!("CARGO_PKG_VERSION"));
}

/// Redis 8 names the settings of its built-in RedisBloom `bf-…`, without the prefix `bf.` of a module.
#[test]
fn on_redis_8_settings_work_under_its_names_and_ours() {
    if !has_redis_8_names() {
        return;
    }
    let lines = "bf-error-rate 0.02\nbf-initial-size 700\nbf-expansion-factor 0\ncf-bucket-size 4\ncf-initial-size 1024\n\
                 cf-max-iterations 20\ncf-expansion-factor 1\ncf-max-expansions 32";
    let server = Setup::oxbloom().set(lines).start();
    let mut client = Wire::resp2(&server);
    assert_eq!(defaults(&mut client), (0.02, 700, None));
    client.run("CF.ADD cuckoo a");
    let shown = client.run("CF.DEBUG cuckoo");
    assert_eq!(shown, Reply::bulk("bktsize:4 buckets:256 items:1 deletes:0 filters:1 max_iterations:20 expansion:1"));
    let both = [("error-rate", "0.02"), ("initial-size", "700"), ("expansion-factor", "0")];
    for (name, value) in both {
        for prefix in ["bf-", "bf."] {
            assert_eq!(config(&mut client, &format!("{prefix}{name}")), value);
        }
    }
    for (name, value) in [("bf-error-rate", "0.5"), ("bf.initial-size", "9"), ("bf-expansion-factor", "3")] {
        assert_eq!(set(&mut client, name, value), Reply::simple("OK"));
    }
    assert_eq!(defaults(&mut client), (0.5, 9, Some(3)));
    for (name, value) in [("bf-error-rate", "0"), ("bf-initial-size", "0"), ("bf-expansion-factor", "-1")] {
        assert!(set(&mut client, name, value).is_error(), "{name} {value}");
    }
    // CONFIG REWRITE writes one name, so that a later change of the file has an effect.
    assert_eq!(set(&mut client, "bf-initial-size", "100"), Reply::simple("OK"));
    assert_eq!(client.run("CONFIG REWRITE"), Reply::simple("OK"));
    let file = std::fs::read_to_string(server.folder().join("server.conf")).unwrap();
    let (folder, _) = server.shut_down();
    let lines: Vec<_> = file.lines().filter(|line| line.starts_with("bf") || line.starts_with("cf")).collect();
    for name in ["error-rate", "initial-size", "expansion-factor"] {
        let written: Vec<_> =
            lines.iter().filter(|line| line.starts_with("bf") && line[3..].starts_with(name)).collect();
        assert!(written.len() <= 1, "{written:?}");
    }
    let edited = lines.join("\n").replace("\"0.5\"", "0.25");
    assert_ne!(edited, lines.join("\n"));
    let server = Setup::oxbloom().set(edited).on(folder).start();
    assert_eq!(defaults(&mut Wire::resp2(&server)), (0.25, 100, Some(3)), "{file}");
    assert_eq!(config(&mut Wire::resp2(&server), "cf-bucket-size"), "4");
}

#[test]
fn a_setting_in_the_file_is_not_overridden_by_the_default_of_its_other_name() {
    if !has_redis_8_names() {
        return;
    }
    for (line, arguments) in [
        ("bf-initial-size 7", ""),
        ("bf.initial-size 7", ""),
        ("bf-initial-size 7", "initial-size 50"),
        ("bf.initial-size 7", "initial-size 50"),
    ] {
        let server = Setup::oxbloom().module_arguments(arguments).set(line).start();
        assert_eq!(defaults(&mut Wire::resp2(&server)).1, 7, "{line}, {arguments}");
    }
    let server = Setup::oxbloom().set("bf-error-rate 0.2").set("bf.expansion-factor 5").start();
    assert_eq!(defaults(&mut Wire::resp2(&server)), (0.2, 100, Some(5)));
}

#[test]
fn on_other_servers_the_log_says_what_replaces_redis_8s_settings() {
    if has_redis_8_names() {
        return;
    }
    let server = Setup::oxbloom().start();
    assert!(server.log().contains("settings named bf-… as in Redis 8 (write bf.… and bf.cf-… in redis.conf)"));
}

fn has_redis_8_names() -> bool {
    server_name_and_version().0 == "Redis" && server_version() >= (8, 0)
}
