//! Prefetching for the next command does not change any reply.

use std::ops::Range;

use redis::Connection;

use testkit::filter_model::FilterModel;
use testkit::{Setup, ask, error, run};

/// Returns the setup of a server whose module prefetches for every filter.
fn setup() -> Setup {
    Setup::oxbloom().module_arguments("lookahead-size 1")
}

/// Adds items to the filter `key`, and looks them up. The module prefetches for this filter from then on.
fn use_filter(client: &mut Connection, numbers: Range<u64>) {
    let mut model = FilterModel::new("key");
    // Creates the filter if it does not exist. With this seed, none of the items below is a false positive.
    run(client, "BF.INSERT key SEED 7 ITEMS first").unwrap();
    model.add(client, numbers);
    model.observe(client);
    assert_eq!(ask::<i64>(client, "BF.EXISTS key absent"), 0);
    assert_eq!(ask::<i64>(client, "BF.ADD key single"), 1);
    assert_eq!(ask::<i64>(client, "BF.ADD key single"), 0);
    assert_eq!(ask::<i64>(client, "BF.EXISTS key single"), 1);
}

#[test]
fn a_prefetched_filter_that_was_replaced_or_deleted_is_not_used() {
    let server = setup().start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.001 100000 SEED 7").unwrap();
    use_filter(&mut client, 0..2000);
    run(&mut client, "BF.RESERVE other 0.001 1000 SEED 7").unwrap();
    run(&mut client, "BF.ADD other item").unwrap();
    run(&mut client, "RENAME other key").unwrap();
    assert_eq!(ask::<i64>(&mut client, "BF.EXISTS key item"), 1);
    assert_eq!(ask::<i64>(&mut client, "BF.EXISTS key single"), 0);
    for kind in ["SEED 7", "SEED 7 COUNTING", "SEED 7 WINDOW 3600"] {
        for gone in ["DEL key", "UNLINK key", "FLUSHALL", "FLUSHALL ASYNC", "PEXPIREAT key 1"] {
            run(&mut client, "DEL key").unwrap();
            run(&mut client, &format!("BF.RESERVE key 0.001 100 {kind}")).unwrap();
            use_filter(&mut client, 0..2000);
            run(&mut client, gone).unwrap();
            assert_eq!(ask::<i64>(&mut client, "BF.EXISTS key single"), 0, "{kind}: {gone}");
        }
    }
    use_filter(&mut client, 0..2000);
    run(&mut client, "SET key value").unwrap();
    assert!(error(&mut client, "BF.EXISTS key single").starts_with("WRONGTYPE"));
    assert!(error(&mut client, "BF.ADD key single").starts_with("WRONGTYPE"));
    assert_eq!(ask::<String>(&mut client, "GET key"), "value");
}

#[test]
fn filters_that_grow_and_shrink_give_the_right_replies() {
    let server = setup().start();
    let mut client = server.connect();
    for kind in ["SEED 7", "SEED 7 COUNTING", "LAYOUT classic"] {
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key 0.000000001 100 {kind}")).unwrap();
        let mut each = |command: &str, numbers: Range<u64>, reply: i64| {
            for number in numbers {
                let line = format!("BF.{command} key {number}");
                assert_eq!(ask::<i64>(&mut client, &line), reply, "{line}, {kind}");
            }
        };
        each("ADD", 0..3000, 1);
        each("ADD", 2500..3000, 0);
        each("EXISTS", 0..3000, 1);
        if kind.ends_with("COUNTING") {
            each("COUNT", 2500..3000, 2);
            each("DEL", 0..2500, 1);
            each("DEL", 0..2500, 0);
            each("EXISTS", 0..2500, 0);
            each("COUNT", 2500..3000, 2);
        }
    }
}

#[test]
fn other_commands_with_two_arguments_work_as_usual() {
    let server = setup().start();
    let mut client = server.connect();
    use_filter(&mut client, 0..100);
    assert_eq!(ask::<Vec<i64>>(&mut client, "BF.MEXISTS key single"), [1]);
    assert!(error(&mut client, "BF.CARD key single").contains("wrong number of arguments"));
    assert!(error(&mut client, "BF.NOTHING key single").contains("unknown command"));
    assert!(error(&mut client, "BF. key single").contains("unknown command"));
    assert_eq!(ask::<i64>(&mut client, "SADD set single"), 1);
    assert_eq!(ask::<i64>(&mut client, "bf.exists key single"), 1);
    let script = "return {redis.call('BF.ADD', KEYS[1], 'script'), redis.call('BF.EXISTS', KEYS[1], 'script')}";
    let replies: Vec<i64> = redis::cmd("EVAL").arg(script).arg(1).arg("key").query(&mut client).unwrap();
    assert_eq!(replies, [1, 1]);
    let (added, found): (i64, i64) = redis::pipe()
        .atomic()
        .cmd("BF.ADD")
        .arg("key")
        .arg("transaction")
        .cmd("BF.EXISTS")
        .arg("key")
        .arg("transaction")
        .query(&mut client)
        .unwrap();
    assert_eq!((added, found), (1, 1));
}
