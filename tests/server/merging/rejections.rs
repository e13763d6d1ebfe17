//! Filters that cannot be merged, and wrong arguments of BF.MERGE and LIKE.

use crate::merging::sources::{mergeable, union_of};
use testkit::filter_model::FilterModel;
use testkit::info::{digest, info_field};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, error, run};

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
        let or = if what == "capacity" { ", or fold both with BF.FOLD key CAPACITY capacity" } else { "" };
        let rejection = format!(
            "ERR cannot merge filters that differ in their {what}: create them with BF.RESERVE key LIKE other{or}"
        );
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
        client.run("BF.INSERT grown CAPACITY 1 ERROR 0.01 SEED 7 ITEMS a b c d");
        client.run("BF.RESERVE counting 0.01 100 COUNTING");
        let wrong_type = crate::expected::WRONG_TYPE;
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
            (
                "BF.MERGE d 1 grown INTERSECT",
                "ERR cannot intersect filters that have grown: create them with a larger capacity",
            ),
            (
                "BF.MERGE d 1 counting INTERSECT",
                "ERR cannot intersect counting filters that may grow: create them with NONSCALING",
            ),
            ("BF.RESERVE d LIKE absent", "ERR not found"),
            ("BF.RESERVE d LIKE text", wrong_type),
            ("BF.RESERVE a LIKE a", "ERR item exists"),
            ("BF.RESERVE text LIKE a", wrong_type),
            ("BF.RESERVE d LIKE a NONSCALING", "ERR LIKE needs one key and no options: BF.RESERVE key LIKE other"),
        ];
        for (line, rejection) in cases {
            assert_eq!(client.run(line), Reply::error(rejection), "{line}");
        }
        assert_eq!(client.run("EXISTS d"), Reply::Integer(0));
    }
}
