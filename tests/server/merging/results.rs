//! The items, figures and error rates of unions and intersections.

use crate::merging::sources::{alike, mergeable, union_of};
use crate::replication::pair;
use redis::Connection;
use testkit::filter_model::FilterModel;
use testkit::info::{assert_figures_add_up, digest, digest_of, filter_info, info_field};
use testkit::replication::{Pair, assert_synchronized, wait_for_replica};
use testkit::server::{with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, run};

#[test]
fn a_union_has_the_items_of_any_source_and_an_intersection_those_of_all() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (_, layout) in mergeable() {
        run(&mut client, "FLUSHALL").unwrap();
        let models = alike(&mut client, &["a", "b", "c"], &format!("0.01 2000 NONSCALING {layout}"));
        assert_eq!(ask::<String>(&mut client, "BF.MERGE any 3 a b c"), "OK");
        union_of("any", &models).observe(&mut client);
        assert_eq!(ask::<String>(&mut client, "BF.MERGE all 3 a b c INTERSECT"), "OK");
        let mut all = FilterModel::new("all");
        all.items.extend(0..100);
        all.observe(&mut client);
        // Merges into an existing destination, with UNION, which is the default.
        assert_eq!(ask::<String>(&mut client, "bf.merge a 2 b c union"), "OK");
        union_of("a", &models).observe(&mut client);
        let dumps = ["a", "any"].map(|key| filter_info(&mut client, key));
        assert_eq!(dumps[0], dumps[1], "{layout}");
        assert_eq!(ask::<String>(&mut client, "BF.MERGE b 1 all INTERSECT"), "OK");
        let mut b = FilterModel::new("b");
        b.items.extend(0..100);
        b.observe(&mut client);
    }
}

/// Returns models of filters for 1,000,000, 200,000 and 20,000 items, with the same seed and some items.
fn of_different_sizes(client: &mut Connection, parameters: &str) -> [FilterModel; 3] {
    let sizes = [
        ("large", 0..3000, &[][..]),
        ("middle", 2000..5000, &[200_000][..]),
        ("small", 1000..4000, &[200_000, 20_000][..]),
    ];
    sizes.map(|(key, items, capacities)| {
        run(client, &format!("BF.RESERVE {key} {parameters}")).unwrap();
        let mut model = FilterModel::new(key);
        model.add(client, items);
        for capacity in capacities {
            assert!(ask::<u64>(client, &format!("BF.FOLD {key} CAPACITY {capacity}")) > 1);
        }
        model
    })
}

#[test]
fn larger_filters_are_folded_as_they_are_merged() {
    let pair = Pair::start(with_debug(with_aof("no")), with_debug(Setup::oxbloom()));
    let (mut client, mut reader) = pair.clients();
    for parameters in ["0.01 1000000 SEED 7", "0.001 1000000 NONSCALING SEED 7", "0.00001 1000000 SEED 7"] {
        run(&mut client, "FLUSHALL").unwrap();
        let models = of_different_sizes(&mut client, parameters);
        let keys = ["large", "middle", "small"];
        let before = keys.map(|key| digest_of(&mut client, key));
        let [capacity, size] = ["CAPACITY", "SIZE"].map(|field| info_field::<u64>(&mut client, "small", field));
        for key in keys {
            run(&mut client, &format!("COPY {key} folded-{key}")).unwrap();
            run(&mut client, &format!("BF.FOLD folded-{key} CAPACITY {capacity}")).unwrap();
        }
        for operation in ["UNION", "INTERSECT"] {
            let expected = format!("BF.MERGE expected 3 folded-large folded-middle folded-small {operation} REPLACE");
            run(&mut client, &expected).unwrap();
            let expected = digest_of(&mut client, "expected");
            for (destination, merge) in [
                ("none", "BF.MERGE to 3 large middle small"),
                ("small", "BF.MERGE to 2 middle large"),
                ("middle", "BF.MERGE to 2 small large"),
                ("large", "BF.MERGE to 2 small middle"),
                ("large", "BF.MERGE to 3 to middle small REPLACE"),
            ] {
                let case = format!("{merge} {operation} into {destination}, {parameters}");
                run(&mut client, "DEL to").unwrap();
                run(&mut client, &format!("COPY {destination} to")).unwrap();
                assert_eq!(ask::<String>(&mut client, &format!("{merge} {operation}")), "OK", "{case}");
                assert_eq!(digest_of(&mut client, "to"), expected, "{case}");
                assert_eq!(info_field::<u64>(&mut client, "to", "CAPACITY"), capacity, "{case}");
                assert_eq!(info_field::<u64>(&mut client, "to", "SIZE"), size, "{case}");
            }
            let mut model = union_of("to", &models);
            if operation == "INTERSECT" {
                model.items.retain(|item| (2000..3000).contains(item));
            }
            model.observe(&mut client);
            assert_synchronized(&mut client, &mut reader, parameters);
            model.observe(&mut reader);
        }
        assert_eq!(keys.map(|key| digest_of(&mut client, key)), before, "the sources stay as they are");
        assert_figures_add_up(&mut client);
        let whole = digest(&mut client);
        run(&mut client, "DEBUG LOADAOF").unwrap();
        assert_eq!(digest(&mut client), whole, "{parameters}");
    }
}

#[test]
fn the_number_of_items_is_an_estimate_that_is_marked_as_one() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    for (_, layout) in mergeable() {
        run(&mut client, "FLUSHALL").unwrap();
        alike(&mut client, &["a", "b"], &format!("0.01 2000 {layout}"));
        let mut estimated = |key: &str| info_field::<Option<bool>>(&mut client, key, "ESTIMATED");
        let is = |yes: bool| (layout != "LAYOUT classic").then_some(yes);
        assert_eq!(estimated("a"), is(false), "{layout}");
        run(&mut client, "BF.MERGE a 1 b").unwrap();
        assert_eq!(info_field::<Option<bool>>(&mut client, "a", "ESTIMATED"), is(true), "{layout}");
        let items: f64 = ask(&mut client, "BF.CARD a");
        // The tolerance is six times the square root of the number, which is more than six standard deviations.
        assert!((items - 700.0).abs() < 6.0 * 700f64.sqrt(), "{layout}: {items}");
        run(&mut client, "COPY a copy").unwrap();
        run(&mut client, "DEBUG RELOAD").unwrap();
        assert_eq!(filter_info(&mut client, "copy"), filter_info(&mut client, "a"));
        assert_eq!(info_field::<Option<bool>>(&mut client, "copy", "ESTIMATED"), is(true));
    }
}

#[test]
fn a_merge_with_replace_can_be_retried_and_keeps_nothing_of_the_destination() {
    let pair = pair();
    let (mut connection, mut reader) = pair.clients();
    let mut client = Wire::resp2(&pair.master);
    let ok = Reply::simple("OK");
    client.run("BF.RESERVE a 0.0001 1000 NONSCALING COUNTING SEED 1");
    client.run("BF.RESERVE b LIKE a");
    client.run("BF.MADD a x x y");
    client.run("BF.MADD b x z");
    for _ in 0..3 {
        assert_eq!(client.run("BF.MERGE sum 2 a b REPLACE"), ok);
        assert_eq!(client.run("BF.MCOUNT sum x y z"), Reply::integers(&[3, 1, 1]));
    }
    // Without REPLACE, the destination is one of the operands.
    client.run("BF.MERGE sum 2 a b");
    assert_eq!(client.run("BF.MCOUNT sum x y z"), Reply::integers(&[6, 2, 2]));
    // A destination that is also named as a source is an operand once, with REPLACE and without it.
    assert_eq!(client.run("BF.MERGE sum 1 sum"), ok);
    assert_eq!(client.run("BF.MCOUNT sum x y z"), Reply::integers(&[6, 2, 2]));
    assert_eq!(client.run("BF.MERGE sum 2 sum b REPLACE UNION"), ok);
    assert_eq!(client.run("BF.MCOUNT sum x y z"), Reply::integers(&[7, 2, 3]));
    assert_eq!(client.run("BF.MERGE sum 2 a b INTERSECT REPLACE"), ok);
    assert_eq!(client.run("BF.MCOUNT sum x y z"), Reply::integers(&[1, 0, 0]));
    // REPLACE drops the parameters and the TTL of the old destination.
    client.run("BF.RESERVE other 0.5 7 LAYOUT classic");
    client.run("EXPIRE other 1000");
    assert!(client.run("BF.MERGE other 1 a").is_error());
    assert_eq!(client.run("BF.MERGE other 1 a REPLACE"), ok);
    assert_eq!(client.run("DEBUG DIGEST-VALUE other"), client.run("DEBUG DIGEST-VALUE a"));
    assert_eq!(client.run("TTL other"), Reply::Integer(-1));
    client.run("SET text value");
    let before = digest(&mut connection);
    for (words, rejection) in [
        ("BF.MERGE text 1 a REPLACE", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("BF.MERGE sum 1 absent REPLACE", "ERR not found"),
        ("BF.MERGE absent 2 absent a REPLACE", "ERR not found"),
        ("BF.MERGE sum 1 a REPLACE REPLACE", "ERR syntax error"),
        ("BF.MERGE sum 1 a REPLACE x", "ERR syntax error"),
    ] {
        assert_eq!(client.run(words), Reply::error(rejection), "{words}");
    }
    assert_eq!(digest(&mut connection), before);
    wait_for_replica(&mut connection, &mut reader);
    assert_eq!(digest(&mut reader), before);
    assert_figures_add_up(&mut connection);
}
