//! Loading the module again, next to RedisBloom, by MODULE LOADEX, and after an error.

use crate::configuration::defaults::{RATE_RANGE, defaults, failed_start, has_config};
use testkit::info::info;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, oxbloom};

const BUSY: &str =
    "not loaded: another module named 'bf' is already loaded (oxbloom, RedisBloom or valkey-bloom); load only one";

/// Starts a server that lets clients load modules.
fn open_to_modules(setup: Setup) -> Server {
    if server_version() >= (7, 0) { setup.set("enable-module-command yes").start() } else { setup.start() }
}

fn load_fails(client: &mut Wire, module: &std::path::Path) -> bool {
    let reply = client.run(&format!("MODULE LOAD {}", module.display()));
    matches!(&reply, Reply::Error(text) if text.contains("Error loading the extension"))
}

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
#[cfg(target_arch = "x86_64")] // like RedisBloom
fn redisbloom_is_not_loaded_next_to_oxbloom() {
    let server = open_to_modules(Setup::oxbloom());
    let mut client = Wire::resp2(&server);
    assert!(load_fails(&mut client, &testkit::redisbloom()));
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
