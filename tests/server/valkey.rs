//! Filters with valkey-bloom's layout: its commands, its payloads, and its streams.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::valkey::{decode_payload, encode_payload};
use oxbloom_filter::internals::{CreateParams, ErrorRate, Growth, KindParams, codec};
use redis::{Connection, Value};

use testkit::command::{item, many};
use testkit::filter_model::FilterModel;
use testkit::info::{calls, digest, info_field};
use testkit::persistence::{aof_commands, append_to_aof, rewrite_aof, shown};
use testkit::replication::{Pair, assert_synchronized, wait_for_replica};
use testkit::server::{with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, run, run_words};

use crate::replication::pair;

const SEED: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ\r\n\0 \xff7";

/// Returns a filter that grows, with these items.
fn filter(items: std::ops::Range<u64>) -> Filter {
    let params = CreateParams {
        error_rate: ErrorRate::new(0.01).unwrap(),
        capacity: 10.try_into().unwrap(),
        growth: Growth::By(2.try_into().unwrap()),
        kind: KindParams::Valkey { seed: *SEED, tightening: ErrorRate::new(0.5).unwrap() },
    };
    let mut filter = Filter::create(params, &mut |_| true).unwrap();
    filter.insert_batch(items.map(item)).unwrap();
    filter
}

fn payload(filter: &Filter) -> Vec<u8> {
    encode_payload(filter).unwrap().unwrap()
}

/// Returns the command that creates the [`filter`], as valkey-bloom replicates it.
fn creation(key: &str) -> Vec<Vec<u8>> {
    let words = [b"BF.INSERT", key.as_bytes(), b"CAPACITY", b"10", b"ERROR", b"0.01", b"TIGHTENING", b"0.5", b"SEED"];
    words.into_iter().chain([&SEED[..], b"EXPANSION", b"2"]).map(<[u8]>::to_vec).collect()
}

/// Returns the payload of a key, from the chunks of its dump.
fn payload_of(client: &mut Wire, key: &str) -> Vec<u8> {
    let chunks = client.scan_dump(key);
    let header = codec::Header::decode(&chunks[0].1, codec::Origin::Client).unwrap();
    let mut filter = header.build().unwrap();
    for (cursor, data) in &chunks[1..] {
        codec::load_chunk(&mut filter, *cursor as u64, data, codec::Origin::Client, &mut |_| true).unwrap();
    }
    payload(&filter)
}

fn items_of(key: &str, items: std::ops::Range<u64>) -> FilterModel {
    FilterModel { items: items.collect(), ..FilterModel::new(key) }
}

#[test]
fn a_seed_of_32_bytes_gives_the_bits_of_valkey_bloom() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let mut wire = Wire::resp2(&server);
    assert_eq!(run_words(&mut client, &creation("key")), Ok(Value::Array(vec![])));
    for numbers in [0..1, 1..30, 30..100] {
        let _: Vec<bool> = many(&mut client, "BF.MADD", "key", &numbers.collect::<Vec<_>>());
    }
    assert!(payload_of(&mut wire, "key") == payload(&filter(0..100)));
    // A creation with items, in one command.
    let words = [creation("other"), vec![b"ITEMS".to_vec()], (0..100).map(item).collect()].concat();
    run_words(&mut client, &words).unwrap();
    assert!(payload_of(&mut wire, "other") == payload(&filter(0..100)));
    let new: i64 = ask(&mut client, "BF.CARD key");
    assert_eq!(run(&mut client, "BF.INFO key ITEMS"), Ok(Value::Array(vec![Value::Int(new)])));
    assert_eq!(info_field::<String>(&mut client, "key", "TIGHTENING"), "0.5");
    assert_eq!(info_field::<f64>(&mut client, "key", "ERROR"), 0.01);
    assert_eq!(info_field::<Option<String>>(&mut client, "key", "SEED"), None);
    assert!(info_field::<u64>(&mut client, "key", "MAXSCALEDCAPACITY") > 1_000_000_000);
    for (line, field) in [("NONSCALING LAYOUT valkey", "TIGHTENING"), ("LAYOUT classic", "MAXSCALEDCAPACITY")] {
        run(&mut client, "DEL fixed").unwrap();
        run(&mut client, &format!("BF.RESERVE fixed 0.01 100 {line}")).unwrap();
        assert_eq!(info_field::<Option<String>>(&mut client, "fixed", field), None);
    }
}

#[test]
fn options_that_contradict_each_other_or_the_filter_are_rejected() {
    let server = Setup::oxbloom().module_arguments("filter-memory-limit 1mb").start();
    let mut client = server.connect();
    let kinds =
        "ERR COUNTING, LAYOUT classic or valkey, and WINDOW or ROLLING exclude each other: leave out all but one";
    let range = "ERR (0 < tightening ratio range < 1)";
    let memory = "ERR provided VALIDATESCALETO causes bloom object to exceed memory limit";
    let rate = "ERR provided VALIDATESCALETO causes false positive to degrade to 0";
    for (options, expected) in [
        ("TIGHTENING x", "ERR bad tightening ratio"),
        ("TIGHTENING 0", range),
        ("TIGHTENING 1", range),
        ("TIGHTENING nan", "ERR bad tightening ratio"),
        ("VALIDATESCALETO x", "ERR bad capacity"),
        ("VALIDATESCALETO 0", "ERR (capacity should be larger than 0)"),
        ("VALIDATESCALETO 500 NONSCALING", "ERR cannot use NONSCALING and VALIDATESCALETO options together"),
        ("VALIDATESCALETO 10000000", memory),
        ("VALIDATESCALETO 9223372036854775807", memory),
        ("VALIDATESCALETO 500 TIGHTENING 1e-308 EXPANSION 1", rate),
        ("TIGHTENING 0.5 COUNTING", kinds),
        ("VALIDATESCALETO 500 COUNTING", kinds),
        ("TIGHTENING 0.5 LAYOUT native", kinds),
        ("TIGHTENING 0.5 WINDOW 60", kinds),
        ("LAYOUT valkey SEED 7", "ERR valkey filters have a seed of 32 bytes: leave out SEED, or add LAYOUT native"),
        ("TIGHTENING 0.5 TIGHTENING 0.5", "ERR repeated argument: give each option once"),
    ] {
        for line in [format!("BF.RESERVE key 0.01 100 {options}"), format!("BF.INSERT key {options} ITEMS a")] {
            assert_eq!(error(&mut client, &line), expected, "{line}");
        }
    }
    assert!(!ask::<bool>(&mut client, "EXISTS key"));
    assert_eq!(
        error(&mut client, "bf.insert key LAYOUT valkey ITEMS"),
        "ERR wrong number of arguments for 'bf.insert' command"
    );
    assert_eq!(
        error(&mut client, "bf.insert key LAYOUT classic"),
        "ERR wrong number of arguments for 'bf.insert' command"
    );
    run(&mut client, "BF.INSERT key LAYOUT valkey VALIDATESCALETO 100000").unwrap();
    let other = "ERR the filter exists with another SEED: leave out SEED, or use another key";
    assert_eq!(error(&mut client, "BF.INSERT key SEED ABCDEFGHIJKLMNOPQRSTUVWXYZ012345 ITEMS a"), other);
    run(&mut client, "BF.INSERT key TIGHTENING 0.25 ITEMS a").unwrap();
    assert_eq!(error(&mut client, "BF.INSERT key VALIDATESCALETO 10000000 ITEMS b"), memory);
    assert!(!ask::<bool>(&mut client, "BF.EXISTS key b"));
    run(&mut client, "BF.RESERVE copy LIKE key").unwrap();
    let merge = "ERR cannot merge filters with LAYOUT valkey: add all items to one filter";
    assert_eq!(error(&mut client, "BF.MERGE key 1 copy"), merge);
    assert_eq!(
        error(&mut client, "BF.RESERVE large 0.01 10000000 LAYOUT valkey").split(':').next(),
        Some("ERR Insufficient memory to create filter")
    );
    assert_eq!(
        error(&mut client, "BF.RESERVE large 0.01 9223372036854775807 LAYOUT valkey").split(':').nth(1),
        Some(" more than can be addressed, choose a smaller capacity or expansion")
    );
}

#[test]
fn a_payload_is_loaded_and_bad_ones_change_nothing() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let good = payload(&filter(0..50));
    assert_eq!(run_words(&mut client, &[&b"BF.LOAD"[..], b"key", &good]), Ok(Value::Okay));
    items_of("key", 0..50).observe(&mut client);
    assert!(payload_of(&mut Wire::resp2(&server), "key") == good);
    let before = digest(&mut client);
    let mut wire = Wire::resp2(&server);
    let busy = Reply::error("BUSYKEY Target key name already exists.");
    assert_eq!(wire.run_words(&[&b"BF.LOAD"[..], b"key", &good]), busy);
    let mut later = good.clone();
    later[0] = 2;
    let newer = "ERR received data of a later version: upgrade the module on this server";
    assert_eq!(wire.run_words(&[&b"BF.LOAD"[..], b"new", &later]), Reply::error(newer));
    for length in 0..good.len() {
        let reply = wire.run_words(&[&b"BF.LOAD"[..], b"new", &good[..length]]);
        assert_eq!(reply, Reply::error("ERR received bad data"), "{length} bytes");
    }
    assert_eq!(digest(&mut client), before);
}

/// valkey-bloom understands all of these commands.
#[test]
fn a_replica_and_the_append_only_file_get_the_commands_of_valkey_bloom() {
    let setup = || with_debug(Setup::oxbloom());
    let pair = Pair::start(with_debug(with_aof("no")), setup().module_arguments("error-rate 0.3 bf-layout classic"));
    let (mut client, mut reader) = pair.clients();
    run_words(&mut client, &creation("key")).unwrap();
    run(&mut client, "BF.ADD key a").unwrap();
    run(&mut client, "BF.ADD key a").unwrap();
    run(&mut client, "BF.MADD key b c").unwrap();
    run(&mut client, "BF.INSERT key TIGHTENING 0.5 ITEMS d e").unwrap();
    run(&mut client, "BF.INSERT fixed NONSCALING LAYOUT valkey EX 1000 ITEMS a").unwrap();
    run(&mut client, "BF.RESERVE like LIKE key").unwrap();
    run_words(&mut client, &[&b"BF.LOAD"[..], b"loaded", &payload(&filter(0..50))]).unwrap();
    assert_synchronized(&mut client, &mut reader, "in the end");
    items_of("loaded", 0..50).observe(&mut reader);
    assert!(ask::<i64>(&mut reader, "TTL fixed") > 900);
    let written: Vec<String> = aof_commands(pair.master.folder())
        .iter()
        .map(|command| shown(command))
        .filter(|line| line.starts_with("BF.") || line.starts_with("PEXPIREAT"))
        .collect();
    let seed = String::from_utf8_lossy(SEED);
    let create = format!("CAPACITY 10 ERROR 0.01 TIGHTENING 0.5 SEED {seed} EXPANSION 2");
    let expected = [
        format!("BF.INSERT key {create}"),
        "BF.ADD key a".to_owned(),
        "BF.MADD key b c".to_owned(),
        "BF.MADD key d e".to_owned(),
        "BF.INSERT fixed CAPACITY 100 ERROR 0.01 TIGHTENING 0.5 SEED ".to_owned(),
        "BF.MADD fixed a".to_owned(),
        "PEXPIREAT fixed ".to_owned(),
        format!("BF.INSERT like {create}"),
        "BF.LOAD loaded ".to_owned(),
    ];
    assert_eq!(written.len(), expected.len(), "{written:?}");
    assert!(written.iter().zip(&expected).all(|(line, start)| line.starts_with(start)), "{written:?}");
    assert!(written[4].ends_with(" NONSCALING"));
}

#[test]
fn a_rewritten_append_only_file_has_payloads() {
    let server = with_aof("no").start();
    let mut client = server.connect();
    run_words(&mut client, &[&b"BF.LOAD"[..], b"key", &payload(&filter(0..500))]).unwrap();
    rewrite_aof(&mut client);
    let commands = aof_commands(server.folder());
    let load = commands.iter().find(|words| words[0] == b"BF.LOAD").expect("BF.LOAD");
    assert!(load[2] == payload(&filter(0..500)));
    let server = with_aof("no").on(server.kill()).start();
    items_of("key", 0..500).observe(&mut server.connect());
}

/// What valkey-bloom writes: creations with all parameters, and later commands as its clients sent them.
#[test]
fn an_append_only_file_of_valkey_bloom_is_loaded() {
    let server = with_aof("no").start();
    run(&mut server.connect(), "SET text value").unwrap();
    let folder = server.kill();
    let words = |line: &'static str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let file: Vec<Vec<Vec<u8>>> = vec![
        creation("key"),
        words("BF.ADD key a"),
        words("BF.INSERT key CAPACITY +7 EXPANSION 03 ITEMS b"),
        words("BF.INSERT key seed AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ITEMS c"),
        words(
            "BF.INSERT key VALIDATESCALETO 99999999999999 TIGHTENING 0.5 TIGHTENING 0.5 NONSCALING ITEMS d tightening",
        ),
        words("BF.INSERT key NOCREATE ITEMS e"),
        words("BF.MADD key f g"),
        [creation("whole"), words("ITEMS a b c")].concat(),
        vec![b"BF.LOAD".to_vec(), b"loaded".to_vec(), payload(&filter(0..100))],
        // Its client got an error for the second item.
        words("BF.INSERT full CAPACITY 1 ERROR 0.000001 TIGHTENING 0.5 NONSCALING ITEMS a"),
        words("BF.MADD full a b"),
        words("BF.INSERT classic ERROR 0.1 ITEMS a SEED"),
    ];
    let file: Vec<Vec<&[u8]>> = file.iter().map(|words| words.iter().map(Vec::as_slice).collect()).collect();
    append_to_aof(folder.path(), &file.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let server = with_aof("no").on(folder).start();
    let mut client = server.connect();
    assert_eq!(ask::<Vec<bool>>(&mut client, "BF.MEXISTS key a b c d tightening e f g"), [true; 8]);
    let mut expected = filter(0..0);
    expected.insert_batch(["a", "b", "c", "d", "tightening", "e", "f", "g"]).unwrap();
    assert!(payload_of(&mut Wire::resp2(&server), "key") == payload(&expected));
    assert_eq!(ask::<Vec<bool>>(&mut client, "BF.MEXISTS whole a b c"), [true; 3]);
    items_of("loaded", 0..100).observe(&mut client);
    // RedisBloom writes no such options. Its filters stay classic.
    assert_eq!(info_field::<String>(&mut client, "classic", "LAYOUT"), "classic");
    assert_eq!(ask::<Vec<bool>>(&mut client, "BF.MEXISTS classic a SEED"), [true; 2]);
    assert!(["rejected", "CRITICAL"].iter().all(|word| !server.log().contains(word)), "{}", server.log());
}

#[test]
fn the_server_exits_at_a_damaged_payload_in_its_append_only_file() {
    let server = with_aof("no").start();
    run(&mut server.connect(), "SET text value").unwrap();
    let folder = server.kill();
    let mut damaged = payload(&filter(0..100));
    damaged.truncate(100);
    append_to_aof(folder.path(), &[&[b"BF.LOAD", b"key", &damaged]]);
    with_aof("no")
        .on(folder)
        .must_not_start(&["rejected a payload of the append-only file: ERR received bad data (key 'key')"]);
}

/// A filter in a file of valkey-bloom, as far as its format is known.
#[test]
fn a_value_of_a_file_of_valkey_bloom_is_restored() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = server.connect();
    run_words(&mut client, &[&b"BF.LOAD"[..], b"key", &payload(&filter(0..50))]).unwrap();
    let dump = testkit::payload::Payload::parse(&ask::<Vec<u8>>(&mut client, "DUMP key"));
    use testkit::payload::Part::{Double, String, Unsigned};
    let filter = filter(0..50);
    let layers: Vec<_> = filter.valkey().unwrap().chain().iter().collect();
    let mut parts = vec![Unsigned(layers.len() as u64), Unsigned(2), Double(0.01), Double(0.5), Unsigned(1)];
    for (index, layer) in layers.iter().enumerate() {
        let spec = layer.spec();
        let numbers = [&[1][..], &spec.bytes.to_le_bytes(), &spec.probes.to_le_bytes(), SEED, layer.bytes()];
        parts.push(Unsigned(spec.capacity));
        parts.extend((index + 1 == layers.len()).then(|| Unsigned(layer.items())));
        parts.push(String(numbers.concat()));
    }
    assert_eq!((dump.encoding(), dump.parts()), (1, parts.clone()));
    parts[0] = Unsigned(1);
    let damaged = dump.with_parts(1, &parts);
    assert_eq!(error_of_restore(&mut client, &damaged), "ERR Bad data format");
    let later = dump.with_parts(2, &dump.parts());
    assert_eq!(error_of_restore(&mut client, &later), "ERR Bad data format");
}

fn error_of_restore(client: &mut Connection, payload: &[u8]) -> String {
    let words = [&b"RESTORE"[..], b"copy", b"0", payload];
    testkit::error_text(&run_words(client, &words).unwrap_err())
}

/// A replica applies what it gets, whatever its own limits are, and grows as its master does.
#[test]
fn a_replica_grows_like_its_master() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    run(&mut client, "BF.RESERVE key 0.001 5 TIGHTENING 0.7 EXPANSION 3").unwrap();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..5000);
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(model.observe(&mut client), model.observe(&mut reader));
    assert_eq!(digest(&mut client), digest(&mut reader));
    // Items that are there already are not replicated.
    let before = calls(&mut reader, "bf.madd");
    model.add(&mut client, 0..1000);
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(calls(&mut reader, "bf.madd"), before);
    assert!(decode_payload(&payload_of(&mut Wire::resp2(&pair.replica), "key"), &mut |_| true).is_ok());
}
