//! BF.MERGE and BF.RESERVE LIKE: their results, their errors, and their replication.

use redis::Connection;

use crate::access::{serve_slots, start_node, wait_for_cluster};
use crate::replication::pair;
use models::random::Random;
use testkit::command::{ABSENT, many, try_many};
use testkit::filter_model::FilterModel;
use testkit::info::{LAYOUTS, assert_figures_add_up, calls, digest, filter_info, info_field, used_memory};
use testkit::memory::{create, grow};
use testkit::persistence::{aof_commands, rewrite_aof, shown};
use testkit::replication::{Pair, wait_for_replica};
use testkit::server::{server_version, with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, error_text, run};

/// Returns the layouts whose filters can be merged, with their options.
fn mergeable() -> impl Iterator<Item = (&'static str, &'static str)> {
    LAYOUTS.into_iter().filter(|(layout, _)| !["windowed", "valkey"].contains(layout))
}

/// Creates filters with the same parameters. All have the items below 100, and each has 300 items of its own.
fn alike(client: &mut Connection, keys: &[&str], parameters: &str) -> Vec<FilterModel> {
    let models = keys.iter().enumerate().map(|(index, key)| {
        let like = match index {
            0 => format!("BF.RESERVE {key} {parameters}"),
            _ => format!("BF.RESERVE {key} LIKE {}", keys[0]),
        };
        assert_eq!(ask::<String>(client, &like), "OK");
        let mut model = FilterModel::new(key);
        model.add(client, 0..100);
        let start = 1000 * (1 + index as u64);
        model.add(client, start..start + 300);
        model
    });
    models.collect()
}

fn union_of(key: &str, models: &[FilterModel]) -> FilterModel {
    let mut union = FilterModel::new(key);
    union.items.extend(models.iter().flat_map(|model| &model.items));
    union
}

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

#[test]
fn a_union_adds_counts_and_an_intersection_keeps_the_smallest() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp3(&server);
    client.run("BF.RESERVE a 0.0001 1000 NONSCALING COUNTING");
    client.run("BF.RESERVE b LIKE a");
    client.run("BF.MADD a x x x y z z z z z z z z z");
    client.run("BF.MADD b x x w z z z z z z z z z");
    assert_eq!(client.run("BF.MERGE sum 2 a b"), Reply::simple("OK"));
    assert_eq!(client.run("BF.MCOUNT sum w x y z v"), Reply::integers(&[1, 5, 1, 18, 0]));
    assert_eq!(client.run("BF.MERGE least 2 a b INTERSECT"), Reply::simple("OK"));
    assert_eq!(client.run("BF.MCOUNT least w x y z v"), Reply::integers(&[0, 2, 0, 9, 0]));
    // A source that is named twice counts twice. The destination counts once, whether it is named or not.
    client.run("BF.MERGE twice 2 b b");
    assert_eq!(client.run("BF.COUNT twice w"), Reply::Integer(2));
    client.run("BF.MERGE twice 2 twice b");
    assert_eq!(client.run("BF.COUNT twice w"), Reply::Integer(3));
    client.run("BF.MERGE twice 1 twice");
    assert_eq!(client.run("BF.COUNT twice w"), Reply::Integer(3));
    // Items of a merged filter can be removed.
    assert_eq!(
        client.run("BF.MDEL sum w w x x x x x x").elements().iter().filter(|r| r.as_bool() == Some(true)).count(),
        6
    );
    assert_eq!(client.run("BF.MCOUNT sum w x y"), Reply::integers(&[0, 0, 1]));
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
fn an_overfull_union_reports_its_higher_error_rate_and_grows_with_the_next_item() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for layout in ["LAYOUT native", "LAYOUT classic"] {
        run(&mut client, "FLUSHALL").unwrap();
        alike(&mut client, &["a", "b"], &format!("0.01 400 {layout}"));
        run(&mut client, "BF.MERGE both 2 a b").unwrap();
        let rates = ["a", "both"].map(|key| info_field::<f64>(&mut client, key, "FPR"));
        assert!(rates[0] < 0.01 && rates[1] > 0.02, "{layout}: {rates:?}");
        assert_eq!(info_field::<u64>(&mut client, "both", "FILTERS"), 1);
        FilterModel::new("both").add(&mut client, 50_000..50_010);
        assert_eq!(info_field::<u64>(&mut client, "both", "FILTERS"), 2, "{layout}");
    }
}

#[test]
fn a_union_of_counting_filters_grows_with_its_items_and_keeps_the_error_rate() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let mut models = alike(&mut client, &["a", "b", "c"], "0.01 100 COUNTING SEED 7");
    for (index, model) in models.iter_mut().enumerate() {
        let start = 100_000 * (1 + index as u64);
        model.add(&mut client, start..start + 3000);
    }
    run(&mut client, "BF.MERGE all 3 a b c").unwrap();
    let all = union_of("all", &models);
    all.observe(&mut client);
    assert!(info_field::<f64>(&mut client, "all", "FPR") < 0.01);
    let absent: Vec<u64> = (ABSENT..ABSENT + 50_000).collect();
    let found = all.with_reply(&mut client, &absent, true).len();
    // The tolerance above the rate is five standard deviations.
    assert!(found < 500 + 5 * 22, "{found} of {}", absent.len());
    let card: f64 = ask(&mut client, "BF.CARD all");
    assert!((card - 10_000.0).abs() < 600.0, "{card}");
    let capacities = ["a", "all"].map(|key| info_field::<u64>(&mut client, key, "CAPACITY"));
    assert!(capacities[0] < 10_000 && capacities[1] >= 10_000, "{capacities:?}");
    assert_eq!(info_field::<u64>(&mut client, "all", "FILTERS"), 1);
}

#[test]
fn an_overfull_union_of_nonscaling_counting_filters_accepts_no_new_item_until_others_are_removed() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let models = alike(&mut client, &["a", "b"], "0.01 400 NONSCALING COUNTING SEED 7");
    run(&mut client, "BF.MERGE both 2 a b").unwrap();
    let both = union_of("both", &models);
    both.observe(&mut client);
    let rates = ["a", "both"].map(|key| info_field::<f64>(&mut client, key, "FPR"));
    // The first filter is full. Its estimated rate is close to the requested one, above or below it.
    assert!(rates[0] < 0.0105 && rates[1] > 0.015, "{rates:?}");
    assert_eq!(info_field::<u64>(&mut client, "both", "CAPACITY"), 400);
    let full = "ERR non scaling filter is full";
    let new: Vec<u64> = both.with_reply(&mut client, &(50_000..50_100).collect::<Vec<_>>(), false);
    let rejection = try_many(&mut client, "BF.ADD", "both", &new[..1]).unwrap_err();
    assert_eq!(error_text(&rejection), full);
    // Items that are present are accepted.
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MADD", "both", &[0, 1000, 2000]), [0; 3]);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "both", &(1000..1300).collect::<Vec<_>>()), [1; 300]);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "both", &(2000..2200).collect::<Vec<_>>()), [1; 200]);
    assert_eq!(many::<u64>(&mut client, "BF.ADD", "both", &new[..1]), 1);
    let mut left = FilterModel::new("both");
    left.items.extend((0..100).chain(2200..2300).chain([1000, 2000, new[0]]));
    left.observe(&mut client);
}

#[test]
fn all_layers_of_filters_that_grew_are_united() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for layout in ["", "LAYOUT classic"] {
        run(&mut client, "FLUSHALL").unwrap();
        let mut models = alike(&mut client, &["deep", "shallow"], &format!("0.01 500 {layout}"));
        models[0].add(&mut client, 10_000..15_000);
        for destination in ["new", "deep", "shallow"] {
            run(&mut client, &format!("BF.MERGE {destination} 2 deep shallow")).unwrap();
            union_of(destination, &models).observe(&mut client);
        }
        let layers = if layout.is_empty() { 2 } else { 4 };
        assert_eq!(info_field::<u64>(&mut client, "shallow", "FILTERS"), layers, "{layout}");
        let rejection = "ERR cannot intersect filters that have grown: create them with a larger capacity";
        assert_eq!(error(&mut client, "BF.MERGE none 2 deep shallow INTERSECT"), rejection);
    }
    assert_eq!(ask::<u64>(&mut client, "EXISTS none"), 0);
}

/// An error rate so low that these tests meet no false positive.
const EXACT: &str = "0.000000000000000001";

#[test]
fn counting_filters_of_any_sizes_are_united_and_their_counts_add_up() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    // The items of each filter. The items below 100 are then added to all filters but the empty one.
    let filters = [("large", 0..20_000), ("middle", 19_000..22_000), ("small", 0..100), ("none", 0..0)];
    for (index, (key, items)) in filters.iter().enumerate() {
        let like = if index == 0 { format!("{EXACT} 10 COUNTING SEED 7") } else { "LIKE large".to_owned() };
        run(&mut client, &format!("BF.RESERVE {key} {like}")).unwrap();
        let mut model = FilterModel::new(key);
        model.add(&mut client, items.clone());
        if *key != "none" {
            model.add(&mut client, 0..100);
        }
    }
    let before = digest(&mut client);
    let numbers: Vec<u64> = (0..23_000).collect();
    let counts = |client: &mut Connection, key: &str| {
        let counts = numbers.chunks(1000).map(|numbers| many::<Vec<u64>>(client, "BF.MCOUNT", key, numbers));
        counts.collect::<Vec<_>>().concat()
    };
    let parts = filters.each_ref().map(|(key, _)| counts(&mut client, key));
    let sum = |of: &[usize]| -> Vec<u64> {
        (0..numbers.len()).map(|number| of.iter().map(|&part| parts[part][number]).sum()).collect()
    };
    for (line, of) in [
        ("BF.MERGE all 4 large middle small none", &[0, 1, 2, 3][..]),
        ("BF.MERGE all 4 none small middle large REPLACE", &[0, 1, 2, 3]),
        ("BF.MERGE all 2 small large REPLACE", &[0, 2]),
        ("BF.MERGE all 2 middle middle REPLACE", &[1, 1]),
        ("BF.MERGE all 2 none middle", &[1, 1, 1]),
    ] {
        run(&mut client, line).unwrap();
        assert_eq!(counts(&mut client, "all"), sum(of), "{line}");
        assert_figures_add_up(&mut client);
    }
    run(&mut client, "DEL all").unwrap();
    assert_eq!(digest(&mut client), before);
    // Merges into existing filters: a larger one, a smaller one, and one without items.
    for (target, target_part) in [("large", 0), ("small", 2), ("none", 3)] {
        run(&mut client, &format!("COPY {target} target REPLACE")).unwrap();
        run(&mut client, "BF.MERGE target 1 middle").unwrap();
        assert_eq!(counts(&mut client, "target"), sum(&[target_part, 1]), "{target}");
        // All items can be removed again, those of one source first.
        for part in [1, target_part] {
            for times in 1..=2 {
                let there: Vec<u64> =
                    numbers.iter().copied().filter(|&number| parts[part][number as usize] >= times).collect();
                for there in there.chunks(1000) {
                    let removed: Vec<u64> = many(&mut client, "BF.MDEL", "target", there);
                    assert_eq!(removed, vec![1; there.len()], "{target}");
                }
            }
        }
        assert_eq!(counts(&mut client, "target"), vec![0; numbers.len()], "{target}");
        assert_eq!(info_field::<f64>(&mut client, "target", "FILL"), 0.0, "{target}");
        assert_eq!(ask::<u64>(&mut client, "BF.CARD target"), 0, "{target}");
        assert_figures_add_up(&mut client);
    }
}

#[test]
fn counting_filters_are_intersected_only_if_they_do_not_grow() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let models = alike(&mut client, &["a", "b"], "0.0001 1000 COUNTING SEED 7");
    let before = digest(&mut client);
    let rejection = "ERR cannot intersect counting filters that may grow: create them with NONSCALING";
    for line in ["BF.MERGE new 2 a b INTERSECT", "BF.MERGE a 1 b INTERSECT", "BF.MERGE a 2 a b INTERSECT REPLACE"] {
        assert_eq!(error(&mut client, line), rejection, "{line}");
    }
    assert_eq!(digest(&mut client), before);
    models.iter().for_each(|model| drop(model.observe(&mut client)));
    run(&mut client, "FLUSHALL").unwrap();
    let models = alike(&mut client, &["a", "b"], "0.0001 1000 NONSCALING COUNTING SEED 7");
    many::<Vec<u64>>(&mut client, "BF.MADD", "a", &(0..50).collect::<Vec<_>>());
    many::<Vec<u64>>(&mut client, "BF.MADD", "b", &(25..75).collect::<Vec<_>>());
    run(&mut client, "BF.MERGE new 2 a b INTERSECT").unwrap();
    let mut common: Vec<u64> = (0..100).collect();
    let expected: Vec<u64> = common.iter().map(|number| if (25..50).contains(number) { 2 } else { 1 }).collect();
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "new", &common), expected);
    // Few other items are found in the intersection, since both filters are less than half full.
    let others: Vec<u64> = models.iter().flat_map(|model| model.items.iter().copied()).filter(|&n| n >= 100).collect();
    let found = FilterModel::new("new").with_reply(&mut client, &others, true);
    assert!(found.len() < 5, "{found:?}");
    // The common items can be removed.
    common.extend(25..50);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "new", &common), vec![1; common.len()]);
    assert_figures_add_up(&mut client);
}

#[test]
fn the_error_names_the_parameter_that_differs_and_nothing_changes() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, "BF.INSERT base ERROR 0.01 CAPACITY 100 EXPANSION 2 SEED 1 ITEMS x").unwrap();
    let others = [
        ("0.02 200 NONSCALING SEED 2 COUNTING", "layout"),
        ("0.02 200 NONSCALING LAYOUT classic", "layout"),
        ("0.02 200 NONSCALING SEED 2", "error rate"),
        ("0.01 200 NONSCALING SEED 2", "capacity"),
        ("0.01 100 NONSCALING SEED 2", "expansion"),
        ("0.01 100 NONSCALING SEED 1", "expansion"),
        ("0.01 100 EXPANSION 3 SEED 2", "seed"),
        ("0.01 100 EXPANSION 2 SEED 2", "seed"),
    ];
    for (parameters, what) in others {
        run(&mut client, &format!("BF.RESERVE other {parameters}")).unwrap();
        let before = digest(&mut client);
        let rejection =
            format!("ERR cannot merge filters that differ in their {what}: create them with BF.RESERVE key LIKE other");
        for line in ["BF.MERGE base 1 other", "BF.MERGE other 1 base", "BF.MERGE new 2 base other INTERSECT"] {
            assert_eq!(error(&mut client, line), rejection, "{line} {parameters}");
        }
        assert_eq!(digest(&mut client), before);
        run(&mut client, "DEL other").unwrap();
    }
}

#[test]
fn filters_may_differ_in_their_expansion_except_classic_ones() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    for (layout, options) in mergeable() {
        run(&mut client, "FLUSHALL").unwrap();
        let mut models = ["one", "other"].map(FilterModel::new);
        for (model, (expansion, items)) in models.iter_mut().zip([(1, 0..700), (4, 500..3000)]) {
            let parameters = format!("0.01 100 EXPANSION {expansion} {options}");
            run(&mut client, &format!("BF.RESERVE {} {parameters}", model.key)).unwrap();
            model.add(&mut client, items);
        }
        let before = digest(&mut client);
        for (line, destination) in [("BF.MERGE new 2 one other", "new"), ("BF.MERGE one 1 other", "one")] {
            if layout == "classic" {
                let rejection = "ERR cannot merge filters that differ in their expansion: create them with BF.RESERVE key LIKE other";
                assert_eq!(error(&mut client, line), rejection);
                assert_eq!(digest(&mut client), before);
            } else {
                run(&mut client, line).unwrap();
                union_of(destination, &models).observe(&mut client);
                assert_eq!(info_field::<u64>(&mut client, destination, "EXPANSION"), 1, "{layout}");
            }
        }
    }
}

#[test]
fn invalid_merges_and_invalid_uses_of_like_are_rejected() {
    let server = Setup::oxbloom().start();
    for mut client in [Wire::resp2(&server), Wire::resp3(&server)] {
        client.run("FLUSHALL");
        client.run("BF.RESERVE a 0.01 100");
        client.run("SET text x");
        let wrong_type = crate::commands::WRONG_TYPE;
        let cases = [
            ("BF.MERGE d 1 absent", "ERR not found"),
            ("BF.MERGE d 2 a absent", "ERR not found"),
            ("BF.MERGE d 1 d", "ERR not found"),
            ("BF.MERGE d 1 text", wrong_type),
            ("BF.MERGE text 1 a", wrong_type),
            ("BF.MERGE d 0 a", "ERR numkeys should be greater than 0"),
            ("BF.MERGE d -1 a", "ERR numkeys should be greater than 0"),
            ("BF.MERGE d x a", "ERR numkeys should be greater than 0"),
            ("BF.MERGE d 2 a", "ERR Number of keys can't be greater than number of args"),
            ("BF.MERGE d 9223372036854775807 a", "ERR Number of keys can't be greater than number of args"),
            ("BF.MERGE d 1 a a", "ERR syntax error"),
            ("BF.MERGE d 1 a UNION INTERSECT", "ERR syntax error"),
            ("BF.RESERVE d LIKE absent", "ERR not found"),
            ("BF.RESERVE d LIKE text", wrong_type),
            ("BF.RESERVE a LIKE a", "ERR item exists"),
            ("BF.RESERVE text LIKE a", wrong_type),
            ("BF.RESERVE d LIKE a NONSCALING", "ERR LIKE takes one key and no options: BF.RESERVE key LIKE other"),
        ];
        for (line, rejection) in cases {
            assert_eq!(client.run(line), Reply::error(rejection), "{line}");
        }
        assert_eq!(client.run("EXISTS d"), Reply::Integer(0));
    }
}

#[test]
fn a_filter_like_another_has_all_its_parameters_here_and_on_replicas() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    for (index, (_, layout)) in mergeable().enumerate() {
        run(&mut client, &format!("BF.RESERVE first{index} 0.003 70 EXPANSION 3 {layout}")).unwrap();
        FilterModel::new(&format!("first{index}")).add(&mut client, 0..500);
        run(&mut client, &format!("BF.RESERVE like{index} LIKE first{index}")).unwrap();
        let mut model = FilterModel::new(&format!("like{index}"));
        assert_eq!(ask::<u64>(&mut client, &format!("BF.CARD like{index}")), 0);
        for field in ["ERROR", "EXPANSION", "SEED", "LAYOUT"] {
            let keys = [format!("first{index}"), format!("like{index}")];
            let values = keys.map(|key| info_field::<Option<String>>(&mut client, &key, field));
            assert_eq!(values[0], values[1], "{field} {layout}");
        }
        model.add(&mut client, 700..1500);
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(model.observe(&mut client), model.observe(&mut reader));
    }
    assert_eq!(digest(&mut client), digest(&mut reader));
}

#[test]
fn a_replica_gets_the_same_results_of_merges() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    let mut random = Random::unpredictable();
    let layouts = mergeable().map(|(_, layout)| layout).chain(["NONSCALING COUNTING SEED 8"]);
    for (index, layout) in layouts.enumerate() {
        let keys = ["a", "b", "c", "d"].map(|key| format!("{key}{index}"));
        let mut models = alike(&mut client, &keys.each_ref().map(String::as_str), &format!("0.01 3000 {layout}"));
        for round in 0..60 {
            let (target, source) = (random.below(4) as usize, random.below(4) as usize);
            if random.chance(60) {
                let from = 100_000 + 20 * round;
                models[target].add(&mut client, from..from + 20);
                continue;
            }
            let sources = models[source].items.clone();
            let union = random.chance(70);
            let operation = if union { "UNION" } else { "INTERSECT" };
            let line = format!("BF.MERGE {} 1 {} {operation}", keys[target], keys[source]);
            if run(&mut client, &line).is_ok() {
                if union {
                    models[target].items.extend(sources);
                } else {
                    models[target].items.retain(|item| sources.contains(item));
                }
            }
        }
        wait_for_replica(&mut client, &mut reader);
        for model in &models {
            assert_eq!(model.observe(&mut client), model.observe(&mut reader), "{} {layout}", model.key);
        }
    }
    assert_eq!(digest(&mut client), digest(&mut reader));
    // A merge that changes nothing is not replicated.
    run(&mut client, "BF.MERGE part 1 a0").unwrap();
    wait_for_replica(&mut client, &mut reader);
    let before = calls(&mut reader, "bf.merge");
    run(&mut client, "BF.MERGE a0 1 part").unwrap();
    run(&mut client, "BF.MERGE part 2 a0 part INTERSECT").unwrap();
    error(&mut client, "BF.MERGE a0 1 a1");
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(calls(&mut reader, "bf.merge"), before);
}

#[test]
fn merges_survive_an_append_only_file_and_a_snapshot() {
    let mut server = with_aof("no").start();
    let mut client = server.connect();
    let mut models = Vec::new();
    for (index, (_, layout)) in mergeable().enumerate() {
        let keys = ["a", "b"].map(|key| format!("{key}{index}"));
        let two = alike(&mut client, &keys.each_ref().map(String::as_str), &format!("0.01 500 {layout}"));
        run(&mut client, &format!("BF.MERGE both{index} 2 a{index} b{index}")).unwrap();
        models.push(union_of(&format!("both{index}"), &two));
        models.extend(two);
    }
    let sent = aof_commands(server.folder());
    assert!(sent.iter().any(|command| shown(command) == "BF.MERGE both1 2 a1 b1 REPLACE"));
    let observed: Vec<_> = models.iter().map(|model| model.observe(&mut client)).collect();
    let before = digest(&mut client);
    for rewrite in [false, true] {
        if rewrite {
            rewrite_aof(&mut client);
        }
        drop(client);
        server = with_aof("no").on(server.kill()).start();
        client = server.connect();
        assert_eq!(digest(&mut client), before, "rewritten: {rewrite}");
        let again: Vec<_> = models.iter().map(|model| model.observe(&mut client)).collect();
        assert_eq!(again, observed);
    }
    run(&mut client, "DEBUG RELOAD").unwrap();
    assert_eq!(digest(&mut client), before);
}

#[test]
fn filters_in_one_slot_of_a_cluster_are_merged_and_others_are_not() {
    let server = start_node();
    let mut client = Wire::resp2(&server);
    serve_slots(&mut client, 0..16384);
    wait_for_cluster(&mut client);
    assert_eq!(client.run("BF.RESERVE {t}a 0.01 100"), Reply::simple("OK"));
    assert_eq!(client.run("BF.RESERVE {t}b LIKE {t}a"), Reply::simple("OK"));
    assert_eq!(client.run("BF.ADD {t}b item"), Reply::Integer(1));
    assert_eq!(client.run("BF.MERGE {t}d 2 {t}a {t}b"), Reply::simple("OK"));
    assert_eq!(client.run("BF.EXISTS {t}d item"), Reply::Integer(1));
    let crossing = Reply::error("CROSSSLOT Keys in request don't hash to the same slot");
    for line in ["BF.MERGE {t}d 2 {t}a b", "BF.MERGE d 2 {t}a {t}b", "BF.RESERVE c LIKE {t}a"] {
        assert_eq!(client.run(line), crossing, "{line}");
    }
}

#[test]
fn the_server_finds_the_keys_of_a_command() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut keys = |line: &str| -> Vec<String> {
        let reply = client.run(&format!("COMMAND GETKEYS {line}"));
        reply.elements().iter().map(Reply::text).collect()
    };
    assert_eq!(keys("BF.MERGE d 1 a"), ["d", "a"]);
    assert_eq!(keys("BF.MERGE d 3 a b 3 INTERSECT"), ["d", "a", "b", "3"]);
    assert_eq!(keys("BF.RESERVE d LIKE a"), ["d", "a"]);
    assert_eq!(keys("bf.reserve d like a"), ["d", "a"]);
    assert_eq!(keys("BF.RESERVE d 0.01 100 NONSCALING"), ["d"]);
    // For an invalid merge, the server finds only the destination, or replies with an error.
    for line in ["BF.MERGE d 5 a", "BF.MERGE d -1 a", "BF.MERGE d x a"] {
        let reply = client.run(&format!("COMMAND GETKEYS {line}"));
        assert!(reply.is_error() || reply.elements() == [Reply::bulk("d")], "{line}: {reply:?}");
    }
    assert_eq!(client.run("PING"), Reply::simple("PONG"));
}

#[test]
fn a_merge_stays_within_the_memory_limits() {
    let server = with_debug(Setup::oxbloom()).module_arguments("filter-memory-limit 100000").start();
    let mut client = server.connect();
    for options in ["", "LAYOUT classic"] {
        run(&mut client, &format!("BF.RESERVE a 0.01 10000 EXPANSION 3 {options}")).unwrap();
        run(&mut client, "BF.RESERVE b LIKE a").unwrap();
        run(&mut client, "BF.RESERVE c LIKE a").unwrap();
        for key in ["a", "c"] {
            FilterModel::new(key).add(&mut client, 0..20_000);
        }
        let before = digest(&mut client);
        if server_version() < (7, 0) {
            return;
        }
        let size: u64 = info_field(&mut client, "a", "SIZE");
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {}", size * 3 / 4)).unwrap();
        assert_eq!(error(&mut client, "BF.MERGE new 1 a"), create::FILTER_LIMIT, "{options}");
        assert_eq!(error(&mut client, "BF.MERGE b 1 a"), grow::FILTER_LIMIT, "{options}");
        assert_eq!(error(&mut client, "BF.MERGE new 2 b a"), create::FILTER_LIMIT, "{options}");
        assert_eq!(digest(&mut client), before);
        // A merge is admitted if its result fits. The limit applies to the filter, not to the memory that the merge
        // needs while it runs.
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {}", size * 5 / 4)).unwrap();
        for line in ["BF.MERGE b 1 a", "BF.MERGE c 1 a", "BF.MERGE new 2 b a"] {
            assert_eq!(ask::<String>(&mut client, line), "OK", "{line} {options}");
        }
        for key in ["b", "c", "new"] {
            assert!(info_field::<u64>(&mut client, key, "SIZE") <= size * 5 / 4, "{key} {options}");
            let found: Vec<bool> = many(&mut client, "BF.MEXISTS", key, &(0..20_000).collect::<Vec<_>>());
            assert!(found.into_iter().all(|found| found), "{key} {options}");
        }
        run(&mut client, "CONFIG SET bf.filter-memory-limit 100000").unwrap();
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// Blocks have no limit. A replica and an append-only file apply what the master has merged, whatever the limit is there.
#[test]
fn tables_over_the_limit_are_not_merged_unless_a_master_has_merged_them() {
    const REJECTION: &str = "ERR this merge would stop the server for too long: over bf.merge-limit, raise the limit or \
                             merge on another server";
    if server_version() < (7, 0) {
        return;
    }
    let pair = Pair::start(with_aof("no"), with_debug(Setup::oxbloom()).module_arguments("merge-limit 1"));
    let (mut client, mut reader) = pair.clients();
    for parameters in ["0.01 10", "0.01 10 COUNTING", "0.01 400 COUNTING NONSCALING"] {
        run(&mut client, "CONFIG SET bf.merge-limit 0").unwrap();
        run(&mut client, "FLUSHALL").unwrap();
        alike(&mut client, &["a", "b", "c"], parameters);
        run(&mut client, "BF.RESERVE sum LIKE a").unwrap();
        let before = digest(&mut client);
        let limit: u64 = ["a", "b"].iter().map(|key| info_field::<u64>(&mut client, key, "SIZE")).sum();
        run(&mut client, &format!("CONFIG SET bf.merge-limit {limit}")).unwrap();
        for line in ["BF.MERGE new 3 a b c", "BF.MERGE a 2 b c", "BF.MERGE sum 3 a b c REPLACE"] {
            assert_eq!(error(&mut client, line), REJECTION, "{line} {parameters}");
        }
        assert_eq!(digest(&mut client), before, "{parameters}");
        for line in ["BF.MERGE new 2 a b", "BF.MERGE c 1 b"] {
            assert_eq!(ask::<String>(&mut client, line), "OK", "{line} {parameters}");
        }
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(digest(&mut reader), digest(&mut client), "{parameters}");
        let merged = digest(&mut client);
        run(&mut client, "CONFIG SET bf.merge-limit 1").unwrap();
        assert_eq!(error(&mut client, "BF.MERGE new 2 a b"), REJECTION, "{parameters}");
        run(&mut client, "DEBUG LOADAOF").unwrap();
        assert_eq!(digest(&mut client), merged, "{parameters}");
    }
    run(&mut client, "BF.RESERVE d 0.01 100000").unwrap();
    run(&mut client, "BF.RESERVE e LIKE d").unwrap();
    assert_eq!(ask::<String>(&mut client, "BF.MERGE d 1 e"), "OK");
}

#[test]
fn a_merge_of_counting_filters_stays_within_the_memory_limits() {
    if server_version() < (7, 0) {
        return;
    }
    let server = with_debug(Setup::oxbloom()).set("maxmemory-policy noeviction").start();
    let mut client = server.connect();
    for growth in ["", "NONSCALING"] {
        run(&mut client, "FLUSHALL").unwrap();
        run(&mut client, &format!("BF.RESERVE a 0.01 600000 COUNTING SEED 7 {growth}")).unwrap();
        for (key, items) in [("b", 200_000..400_000), ("c", 400_000..600_000), ("empty", 0..0)] {
            run(&mut client, &format!("BF.RESERVE {key} LIKE a")).unwrap();
            FilterModel::new(key).add(&mut client, items);
        }
        FilterModel::new("a").add(&mut client, 0..200_000);
        let before = digest(&mut client);
        run(&mut client, "BF.MERGE whole 3 a b c").unwrap();
        let size = |client: &mut Connection, key: &str| info_field::<u64>(client, key, "SIZE");
        let (part, whole) = (size(&mut client, "a"), size(&mut client, "whole"));
        run(&mut client, "DEL whole").unwrap();
        assert!(whole > 2 * part && whole < 4 * part, "{part} and {whole} bytes");
        // Within these limits, each source fits, and maybe the union of two, but not that of all three.
        let limits = [
            (format!("bf.filter-memory-limit {}", whole * 3 / 4), create::FILTER_LIMIT, grow::FILTER_LIMIT),
            (format!("maxmemory {}", used_memory(&mut client) + part / 2), create::MAXMEMORY, grow::MAXMEMORY),
        ];
        for (limit, creating, growing) in limits {
            run(&mut client, &format!("CONFIG SET {limit}")).unwrap();
            for line in ["BF.MERGE new 3 a b c", "BF.MERGE new 4 empty a b c", "BF.MERGE empty 3 a b c REPLACE"] {
                assert_eq!(error(&mut client, line), creating, "{line} {growth} {limit}");
            }
            for line in ["BF.MERGE a 2 b c", "BF.MERGE empty 3 a b c"] {
                assert_eq!(error(&mut client, line), growing, "{line} {growth} {limit}");
            }
            assert_eq!(digest(&mut client), before, "{growth} {limit}");
            run(&mut client, "CONFIG SET bf.filter-memory-limit 0 maxmemory 0").unwrap();
        }
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {}", part / 2)).unwrap();
        assert_eq!(error(&mut client, "BF.MERGE new 1 a"), create::FILTER_LIMIT, "{growth}");
        assert_eq!(error(&mut client, "BF.MERGE empty 1 a"), grow::FILTER_LIMIT, "{growth}");
        assert!(run(&mut client, "COPY a new").is_err());
        assert_eq!(digest(&mut client), before, "{growth}");
        // A merge is admitted if its result fits. The limit applies to the filter, not to the memory that the merge
        // needs while it runs.
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {}", whole * 3 / 2)).unwrap();
        for line in ["BF.MERGE new 3 a b c", "BF.MERGE empty 3 a b c", "BF.MERGE new 1 a", "BF.MERGE a 2 b c"] {
            assert_eq!(ask::<String>(&mut client, line), "OK", "{line} {growth}");
        }
        for key in ["a", "new", "empty"] {
            assert!(size(&mut client, key) <= whole * 3 / 2, "{key} {growth}");
            let found: Vec<bool> = many(&mut client, "BF.MEXISTS", key, &(0..600_000).collect::<Vec<_>>());
            assert!(found.into_iter().all(|found| found), "{key} {growth}");
        }
        assert_figures_add_up(&mut client);
        run(&mut client, "CONFIG SET bf.filter-memory-limit 0").unwrap();
    }
}

#[test]
fn a_merge_is_an_event_only_if_it_changes_a_filter() {
    let server = Setup::oxbloom().set("notify-keyspace-events Ed").start();
    let mut client = server.connect();
    alike(&mut client, &["a", "b"], "0.01 1000");
    let mut listener = Wire::resp2(&server);
    listener.run("SUBSCRIBE __keyevent@0__:bf.merge");
    run(&mut client, "BF.MERGE a 1 b").unwrap();
    run(&mut client, "BF.MERGE a 1 b").unwrap();
    run(&mut client, "BF.MERGE new 1 b").unwrap();
    let mut next_key = || listener.receive().elements()[2].text();
    assert_eq!([next_key(), next_key()], ["a", "new"]);
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
    // With REPLACE, a destination that is also named as a source is an operand once.
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
