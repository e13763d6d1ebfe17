//! BF.FOLD.

use testkit::filter_model::FilterModel;
use testkit::info::{assert_figures_add_up, digest, digest_of, filter_info, info_field, used_memory};
use testkit::persistence::rewrite_aof;
use testkit::replication::assert_synchronized;
use testkit::server::{with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, run};

use crate::replication::pair;

const MIB: u64 = 1 << 20;

#[test]
fn a_folded_filter_has_its_items_and_less_memory() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let empty = used_memory(&mut client);
    for (rate, blocks_per_item) in [("0.01", 1), ("0.0001 ", 2)] {
        run(&mut client, &format!("BF.RESERVE key {rate} 20000000 EX 5000")).unwrap();
        let mut model = FilterModel::new("key");
        model.add(&mut client, 0..20_000);
        let (large, reserved) = (info_field::<u64>(&mut client, "key", "SIZE"), used_memory(&mut client));
        assert!(large > 20 * MIB && reserved > empty + 20 * MIB, "{blocks_per_item}");
        let factor: u64 = ask(&mut client, "BF.FOLD key CAPACITY 200000");
        assert!((80..=110).contains(&factor), "{factor}");
        assert!(info_field::<u64>(&mut client, "key", "SIZE") < large / factor + 1000);
        assert!(info_field::<u64>(&mut client, "key", "CAPACITY") >= 200_000);
        assert!(used_memory(&mut client) < reserved - large + large / factor + MIB);
        assert_eq!(info_field::<u64>(&mut client, "key", "ITEMS"), 20_000);
        assert!(ask::<i64>(&mut client, "TTL key") > 4000, "the time to live stays");
        model.observe(&mut client);
        assert_figures_add_up(&mut client);
        // It grows when it has as many items as it was folded for.
        assert!(ask::<u64>(&mut client, "BF.FOLD key") > 1);
        assert_eq!(ask::<u64>(&mut client, "BF.FOLD key"), 1);
        model.add(&mut client, 20_000..60_000);
        model.observe(&mut client);
        assert_eq!(ask::<u64>(&mut client, "BF.FOLD key"), 1, "a filter that has grown is full");
        run(&mut client, "DEL key").unwrap();
    }
}

#[test]
fn a_folded_filter_is_copied_saved_replicated_and_merged_like_any_other() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    let mut wire = Wire::resp2(&pair.master);
    for parameters in ["0.01 1000000", "0.001 1000000 NONSCALING", "0.00001 500000"] {
        run(&mut client, &format!("BF.RESERVE one {parameters}")).unwrap();
        let mut model = FilterModel::new("one");
        model.add(&mut client, 0..1000);
        run(&mut client, "COPY one large").unwrap();
        assert!(ask::<u64>(&mut client, "BF.FOLD one CAPACITY 20000") > 10, "{parameters}");
        assert_synchronized(&mut client, &mut reader, parameters);
        model.observe(&mut reader);
        // By its bytes, and by its chunks.
        let facts = filter_info(&mut client, "one");
        let payload = wire.run("DUMP one");
        let restored = wire.run_words(&[&b"RESTORE"[..], b"restored", b"0", payload.bytes()]);
        assert_eq!(restored, Reply::simple("OK"));
        for (cursor, data) in wire.scan_dump("one") {
            assert_eq!(wire.load_chunk("loaded", cursor, &data), Reply::simple("OK"));
        }
        for copy in ["restored", "loaded"] {
            assert_eq!(digest_of(&mut client, copy), digest_of(&mut client, "one"), "{copy} {parameters}");
            assert_eq!(filter_info(&mut client, copy), facts, "{copy} {parameters}");
        }
        // With a filter of its shape. The same items, inserted into the smaller filter, give the same filter.
        run(&mut client, "BF.RESERVE other LIKE one").unwrap();
        FilterModel::new("other").add(&mut client, 0..1000);
        assert_eq!(digest_of(&mut client, "other"), digest_of(&mut client, "one"), "{parameters}");
        FilterModel::new("other").add(&mut client, 1000..1500);
        assert_eq!(ask::<String>(&mut client, "BF.MERGE one 1 other"), "OK");
        model.items.extend(1000..1500);
        model.observe(&mut client);
        // Nor is a larger filter folded if its items do not fit.
        run(&mut client, "COPY large crowded").unwrap();
        FilterModel::new("crowded").add(&mut client, 0..30_000);
        for line in ["BF.MERGE one 1 crowded", "BF.MERGE crowded 1 one", "BF.MERGE new 2 crowded one"] {
            assert!(error(&mut client, line).contains("differ in their capacity"), "{line}");
        }
        // A filter that was folded in the same way has the same shape.
        assert!(ask::<u64>(&mut client, "BF.FOLD large CAPACITY 20000") > 10);
        assert_eq!(ask::<String>(&mut client, "BF.MERGE large 1 one"), "OK");
        assert_synchronized(&mut client, &mut reader, parameters);
        run(&mut client, "FLUSHALL").unwrap();
    }
}

#[test]
fn a_fold_is_in_the_append_only_file_and_in_a_rewritten_one() {
    for preamble in ["no", "yes"] {
        for rewrites in [false, true] {
            let server = with_debug(with_aof(preamble)).start();
            let mut client = server.connect();
            run(&mut client, "BF.RESERVE key 0.0001 1000000").unwrap();
            let mut model = FilterModel::new("key");
            model.add(&mut client, 0..500);
            run(&mut client, "MULTI").unwrap();
            run(&mut client, "BF.FOLD key CAPACITY 100000").unwrap();
            run(&mut client, "BF.FOLD key CAPACITY 2000").unwrap();
            let factors: Vec<u64> = ask(&mut client, "EXEC");
            assert!(factors.iter().all(|&factor| factor > 1), "{factors:?}");
            if rewrites {
                rewrite_aof(&mut client);
            }
            model.add(&mut client, 500..700);
            let before = digest(&mut client);
            let server = with_debug(with_aof(preamble)).on(server.kill()).start();
            let mut client = server.connect();
            assert_eq!(digest(&mut client), before);
            model.observe(&mut client);
        }
    }
}

#[test]
fn a_server_without_free_memory_folds() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 10000000").unwrap();
    run(&mut client, "BF.ADD key item").unwrap();
    run(&mut client, "CONFIG SET maxmemory 5mb").unwrap();
    assert!(error(&mut client, "BF.ADD key another").starts_with("OOM"));
    assert!(ask::<u64>(&mut client, "EVAL return(redis.call('BF.FOLD',KEYS[1],'CAPACITY','100000')) 1 key") > 10);
    assert_eq!(ask::<i64>(&mut client, "BF.ADD key another"), 1);
}

#[test]
fn what_cannot_be_folded_is_rejected_and_unchanged() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 10000").unwrap();
    run(&mut client, "SET text value").unwrap();
    let kinds = ["COUNTING", "WINDOW 60", "ROLLING", "LAYOUT classic", "LAYOUT valkey"];
    for (index, kind) in kinds.iter().enumerate() {
        run(&mut client, &format!("BF.RESERVE kind{index} 0.01 10000 {kind}")).unwrap();
    }
    run(&mut client, "CF.RESERVE cuckoo 10000").unwrap();
    let before = digest(&mut client);
    for index in 0..kinds.len() {
        assert_eq!(
            error(&mut client, &format!("BF.FOLD kind{index}")),
            "ERR cannot fold this filter: only filters with the native layout and without COUNTING, WINDOW and \
             ROLLING have blocks"
        );
    }
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (line, expected) in [
        ("BF.FOLD text", wrong_type),
        ("BF.FOLD cuckoo", wrong_type),
        ("BF.FOLD absent", "ERR not found"),
        ("BF.FOLD key CAPACITY", "ERR syntax error"),
        ("BF.FOLD key ROOM 5", "ERR syntax error"),
        ("BF.FOLD key CAPACITY x", "ERR bad capacity"),
        ("BF.FOLD key CAPACITY 0", "ERR (capacity should be larger than 0)"),
        ("BF.FOLD key CAPACITY -1", "ERR (capacity should be larger than 0)"),
        ("BF.FOLD key CAPACITY 5 5", "ERR wrong number of arguments for 'bf.fold' command"),
        ("BF.FOLD", "ERR wrong number of arguments for 'bf.fold' command"),
    ] {
        // Some servers print the name of a command in upper case.
        let error = error(&mut client, line);
        assert!(error.eq_ignore_ascii_case(expected), "{line}: {error}");
    }
    assert_eq!(ask::<u64>(&mut client, "BF.FOLD key CAPACITY 9223372036854775807"), 1);
    assert_eq!(digest(&mut client), before);
}
