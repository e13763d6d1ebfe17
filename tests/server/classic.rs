//! The classic layout: how a filter gets it, and how it differs for clients. `tests/oracle` compares classic filters
//! with RedisBloom's.

use redis::Value;

use crate::fields::layout;
use testkit::filter_model::FilterModel;
use testkit::payload::{Part, Payload};
use testkit::persistence::{aof_commands, rewrite_aof, shown};
use testkit::replication::{Pair, wait_for_replica};
use testkit::server::{server_version, with_aof};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error_text, run, run_words};

const BAD_LAYOUT: &str = "ERR bad layout: LAYOUT must be native, classic or valkey";
const NO_SEED: &str = "ERR classic filters have no seed: leave out SEED, or add LAYOUT native";

/// Returns the layout of the filter that each command creates without LAYOUT.
fn layouts_by_default(client: &mut Wire) -> Vec<String> {
    client.run("FLUSHALL");
    let creations =
        ["BF.RESERVE reserved 0.01 100", "BF.ADD added item", "BF.MADD many item", "BF.INSERT inserted ITEMS item"];
    for line in creations {
        assert!(!client.run(line).is_error(), "{line}");
    }
    ["reserved", "added", "many", "inserted"].map(|key| layout(client, key)).into()
}

#[test]
fn the_configuration_chooses_the_layout_of_new_filters() {
    for (arguments, expected) in [
        ("", "native"),
        ("bf-layout native", "native"),
        ("bf-layout classic", "classic"),
        ("LAYOUT Classic", "classic"),
        ("bf.layout classic error-rate 0.05", "classic"),
    ] {
        let server = Setup::oxbloom().module_arguments(arguments).start();
        assert_eq!(layouts_by_default(&mut Wire::resp2(&server)), [expected; 4], "{arguments}");
        assert!(server.log().contains(&format!("layout {expected}")), "{}", server.log());
    }
    for wrong in ["bf-layout", "bf-layout flat", "bf-layout 1"] {
        let log = Setup::oxbloom().module_arguments(wrong).try_start().err().expect("a rejection");
        assert!(log.contains("has no value") || log.contains("bf-layout must be native or classic"), "{log}");
    }
}

#[test]
fn config_changes_the_layout_of_later_filters_only() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().set("bf.layout classic").start();
    let mut client = Wire::resp2(&server);
    assert_eq!(layouts_by_default(&mut client), ["classic"; 4]);
    assert_eq!(client.run("CONFIG SET bf.layout native"), Reply::simple("OK"));
    assert_eq!(client.run("CONFIG GET bf.layout").field("bf.layout").text(), "native");
    client.run("BF.ADD added another");
    assert_eq!(layout(&mut client, "added"), "classic");
    assert_eq!(layouts_by_default(&mut client), ["native"; 4]);
    for wrong in ["flat", "", "0"] {
        assert!(client.run_words(&["CONFIG", "SET", "bf.layout", wrong]).is_error(), "'{wrong}'");
    }
    assert_eq!(client.run("CONFIG SET bf.layout CLASSIC"), Reply::simple("OK"));
    assert_eq!(client.run("CONFIG REWRITE"), Reply::simple("OK"));
    let file = std::fs::read_to_string(server.folder().join("server.conf")).unwrap();
    assert!(file.contains("bf.layout"), "{file}");
}

#[test]
fn a_command_may_choose_the_layout() {
    for default in ["native", "classic"] {
        let server = Setup::oxbloom().module_arguments(&format!("bf-layout {default}")).start();
        let mut client = Wire::resp2(&server);
        for asked in ["native", "classic", "NATIVE", "Classic"] {
            for line in [
                format!("BF.RESERVE key 0.01 100 LAYOUT {asked}"),
                format!("BF.RESERVE key 0.01 100 EXPANSION 3 LAYOUT {asked}"),
                format!("BF.RESERVE key 0.01 100 layout {asked} NONSCALING"),
                format!("BF.INSERT key LAYOUT {asked} CAPACITY 5 ITEMS item"),
            ] {
                assert!(!client.run(&line).is_error(), "{line}");
                assert_eq!(layout(&mut client, "key"), asked.to_ascii_lowercase(), "{line}");
                client.run("DEL key");
            }
        }
        let rejected = [
            ("BF.RESERVE key 0.01 100 LAYOUT", BAD_LAYOUT),
            ("BF.RESERVE key 0.01 100 LAYOUT flat", BAD_LAYOUT),
            ("BF.RESERVE key 0.01 100 LAYOUT native LAYOUT native", "ERR repeated argument: give each option once"),
            ("BF.RESERVE key 0.01 100 LAYOUT classic SEED 7", NO_SEED),
            ("BF.INSERT key LAYOUT flat ITEMS item", BAD_LAYOUT),
            ("BF.INSERT key LAYOUT native LAYOUT native ITEMS item", "ERR repeated argument: give each option once"),
            ("BF.INSERT key SEED 7 LAYOUT classic ITEMS item", NO_SEED),
        ];
        for (line, error) in rejected {
            assert_eq!(client.run(line), Reply::error(error), "{line}");
        }
        // If filters are classic by default, SEED needs LAYOUT native.
        let seeded = if default == "native" { Reply::simple("OK") } else { Reply::error(NO_SEED) };
        assert_eq!(client.run("BF.RESERVE key 0.01 100 SEED 7"), seeded);
        assert_eq!(client.run("BF.RESERVE other 0.01 100 SEED 7 LAYOUT native"), Reply::simple("OK"));
    }
}

#[test]
fn info_has_the_same_fields_for_classic_and_native_filters() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.01 100 EXPANSION 4 LAYOUT classic");
    client.run("BF.RESERVE fixed 0.01 100 NONSCALING LAYOUT classic");
    assert_eq!(client.run("BF.INFO key ERROR"), Reply::Array(vec![Reply::bulk("0.01")]));
    assert_eq!(client.run("BF.INFO fixed ERROR"), Reply::Array(vec![Reply::bulk("0.01")]));
    assert_eq!(client.run("BF.INFO key SEED"), Reply::Array(vec![Reply::NullBulk]));
    let number = |client: &mut Wire, field: &str| -> f64 {
        client.run(&format!("BF.INFO key {field}")).elements()[0].text().parse().unwrap()
    };
    assert_eq!((number(&mut client, "FILL"), number(&mut client, "FPR")), (0.0, 0.0));
    let items: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let words: Vec<&str> = ["BF.MADD", "key"].into_iter().chain(items.iter().map(String::as_str)).collect();
    client.run_words(&words);
    // 100 items with 8 probes each set about half of the 1,152 bits. The estimated rate is about half of 0.01.
    let (fill, rate) = (number(&mut client, "FILL"), number(&mut client, "FPR"));
    assert!((0.45..0.55).contains(&fill) && (0.002..0.009).contains(&rate), "{fill} {rate}");
    // A restored filter has the same figures.
    let dump = client.run("DUMP key");
    client.run_words(&[&b"RESTORE"[..], b"copy", b"0", dump.bytes()]);
    assert_eq!(client.run("BF.INFO copy FILL"), client.run("BF.INFO key FILL"));
}

#[test]
fn the_creation_of_a_classic_filter_is_replicated_in_commands_of_redisbloom() {
    // The replica's own defaults have no effect.
    let pair = Pair::start(with_aof("no").module_arguments("bf-layout classic"), Setup::oxbloom());
    let (mut client, mut other) = pair.clients();
    for line in ["BF.ADD added item", "BF.RESERVE native 0.01 50 LAYOUT native", "BF.RESERVE reserved 0.1 9 NONSCALING"]
    {
        run(&mut client, line).unwrap();
    }
    FilterModel::new("added").add(&mut client, 0..1000);
    wait_for_replica(&mut client, &mut other);
    for key in ["added", "native", "reserved"] {
        let dumps = [&mut client, &mut other].map(|client| ask::<Vec<u8>>(client, &format!("DUMP {key}")));
        assert_eq!(dumps[0], dumps[1], "{key}");
    }
    let written: Vec<String> = aof_commands(pair.master.folder()).iter().map(|command| shown(command)).collect();
    for start in ["BF.LOADCHUNK added 1 ", "BF.LOADCHUNK reserved 1 ", "BF.RESERVE native 0.01 50 EXPANSION 2 SEED "] {
        assert_eq!(written.iter().filter(|line| line.starts_with(start)).count(), 1, "{start}: {written:?}");
    }
}

/// RedisBloom's oldest files hold filters whose headers BF.LOADCHUNK rejects. We must accept such headers from our own
/// append-only file.
#[test]
fn a_very_old_filter_survives_a_rewrite_of_the_append_only_file() {
    use Part::{Double, String, Unsigned};
    let log = |setup: Setup| setup.set("appendonly yes").set("aof-use-rdb-preamble no").set("rdbcompression no");
    let server = log(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 100 LAYOUT classic").unwrap();
    let original = Payload::parse(&ask::<Vec<u8>>(&mut client, "DUMP key"));
    // One filter has room for 100 items at about 11 bits each: 1,102 bits, in 144 bytes. The other has the empty layer
    // that RedisBloom leaves when growth fails.
    let very_old = [Unsigned(0), Unsigned(1), Unsigned(100), Double(0.005), Unsigned(8), Double(11.027754)];
    let very_old = original.with_parts(0, &[&very_old[..], &[String(vec![0; 144]), Unsigned(0)]].concat());
    let void =
        [Unsigned(0), Double(0.0), Unsigned(0), Double(0.0), Unsigned(0), Unsigned(0), String(vec![]), Unsigned(0)];
    let mut broken = original.parts();
    broken[1] = Unsigned(2);
    broken.extend(void);
    let mut dumps = Vec::new();
    for (key, payload) in [("old", very_old), ("broken", original.with_parts(4, &broken))] {
        assert_eq!(run_words(&mut client, &[&b"RESTORE"[..], key.as_bytes(), b"0", &payload]), Ok(Value::Okay));
        FilterModel::new(key).add(&mut client, 0..300);
        dumps.push((key, ask::<Vec<u8>>(&mut client, &format!("DUMP {key}"))));
        let (_, header): (u64, Vec<u8>) = ask(&mut client, &format!("BF.SCANDUMP {key} 0"));
        let rejected = run_words(&mut client, &[&b"BF.LOADCHUNK"[..], b"copy", b"1", &header]).unwrap_err();
        assert_eq!(error_text(&rejected), "ERR received bad data", "{key}, from a client");
    }
    rewrite_aof(&mut client);
    let server = log(Setup::oxbloom()).on(server.kill()).start();
    let mut client = server.connect();
    for (key, dump) in dumps {
        assert_eq!(ask::<Vec<u8>>(&mut client, &format!("DUMP {key}")), dump, "{key}");
    }
}
