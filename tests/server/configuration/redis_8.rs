//! The names of settings in Redis 8, whose servers have RedisBloom built in.

use crate::configuration::defaults::{config, defaults, set};
use testkit::Setup;
use testkit::server::{server_name_and_version, server_version};
use testkit::wire::{Reply, Wire};

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
