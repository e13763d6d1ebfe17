//! The options COUNTING and NX, and the filters that do not count.

use crate::expected::{WRONG_TYPE, array, protocols};
use crate::fields::layout;
use testkit::Setup;
use testkit::wire::{Reply, Wire};

const BAD_LAYOUT: &str = "ERR bad layout: LAYOUT must be native, classic or valkey";

const NOT_COUNTING: &str = "ERR this filter does not support BF.DEL and BF.COUNT: create it with \
                            BF.RESERVE key error_rate capacity COUNTING";

const CLASSIC_COUNTING: &str =
    "ERR COUNTING, LAYOUT classic or valkey, and WINDOW or ROLLING exclude each other: leave out all but one";

#[test]
fn other_filters_reject_removals_with_advice_and_stay_as_they_are() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        for name in ["native", "classic"] {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE key 0.01 100 LAYOUT {name}"));
            client.run("BF.ADD key a");
            let before = client.run("DUMP key");
            for words in ["BF.DEL key a", "BF.DEL key z", "BF.MDEL key a z", "BF.COUNT key a", "BF.MCOUNT key a z"] {
                assert_eq!(client.run(words), Reply::error(NOT_COUNTING), "{words}");
            }
            // COUNTING is rejected for an existing filter without it. NX alone is accepted: in any filter, it skips
            // items that are present.
            let contradicts = Reply::error(
                "ERR the filter exists without COUNTING, or with another LAYOUT: leave out this option, or use another key",
            );
            assert_eq!(client.run("BF.INSERT key NX COUNTING ITEMS a"), contradicts);
            assert_eq!(client.run("DUMP key"), before);
            assert_eq!(client.run("BF.INSERT key NX ITEMS a b b"), array([&no, &yes, &no]));
            assert_eq!(layout(&mut client, "key"), name);
        }
        client.run("SET text value");
        for words in ["BF.DEL text a", "BF.MDEL text a", "BF.COUNT text a", "BF.MCOUNT text a"] {
            assert_eq!(client.run(words), Reply::error(WRONG_TYPE), "{words}");
        }
    }
}

#[test]
fn the_option_counting_is_given_once_in_any_order_and_case_and_not_with_layout_classic() {
    for default in ["native", "classic"] {
        let server = Setup::oxbloom().module_arguments(&format!("bf-layout {default}")).start();
        let mut client = Wire::resp2(&server);
        for line in [
            "BF.RESERVE key 0.01 100 COUNTING",
            "BF.RESERVE key 0.01 100 counting EXPANSION 3",
            "BF.RESERVE key 0.01 100 NONSCALING Counting SEED 7",
            "BF.RESERVE key 0.01 100 LAYOUT native EXPANSION 3 SEED 7 COUNTING",
            "BF.INSERT key COUNTING ITEMS a",
            "BF.INSERT key nx counting CAPACITY 5 SEED 7 ITEMS a",
            "BF.INSERT key LAYOUT native COUNTING EXPANSION 3 ERROR 0.1 NX ITEMS a",
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            assert_eq!(layout(&mut client, "key"), "counting", "{line}");
            assert_eq!(client.run("TYPE key"), Reply::simple("oxbloom--"));
            client.run("DEL key");
        }
        let repeated = "ERR repeated argument: give each option once";
        let rejected = [
            ("BF.RESERVE key 0.01 100 COUNTING COUNTING", repeated),
            ("BF.RESERVE key 0.01 100 LAYOUT classic COUNTING", CLASSIC_COUNTING),
            ("BF.RESERVE key 0.01 100 COUNTING LAYOUT classic", CLASSIC_COUNTING),
            ("BF.RESERVE key 0.01 100 COUNTING LAYOUT counting", BAD_LAYOUT),
            ("BF.RESERVE key 0.01 100 COUNTING NX", "ERR unknown option 'NX': correct or remove it"),
            ("BF.RESERVE key 0.01 100 COUNTING NONSCALING EXPANSION 2", "Nonscaling filters cannot expand"),
            ("BF.INSERT key COUNTING COUNTING ITEMS a", repeated),
            ("BF.INSERT key NX NX ITEMS a", repeated),
            ("BF.INSERT key LAYOUT classic COUNTING ITEMS a", CLASSIC_COUNTING),
            ("BF.INSERT key COUNTING LAYOUT classic NX ITEMS a", CLASSIC_COUNTING),
            ("BF.INSERT key COUNTING LAYOUT counting ITEMS a", BAD_LAYOUT),
            ("BF.INSERT key COUNT ITEMS a", "Unknown argument received"),
        ];
        for (line, error) in rejected {
            assert_eq!(client.run(line), Reply::error(error), "{line}");
        }
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    }
}
