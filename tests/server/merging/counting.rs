//! Merges of counting filters: their counts, and the room for further items.

use redis::Connection;

use crate::merging::sources::{alike, union_of};
use testkit::command::{ABSENT, many, try_many};
use testkit::filter_model::{EXACT, FilterModel};
use testkit::info::{assert_figures_add_up, digest, info_field};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, error_text, run};

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
