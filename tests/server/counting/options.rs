//! Filters that do not count: their errors, and the option NX.

use crate::expected::{WRONG_TYPE, array, protocols};
use crate::fields::layout;
use testkit::Setup;
use testkit::wire::Reply;

const NOT_COUNTING: &str = "ERR this filter does not support BF.DEL and BF.COUNT: create it with \
                            BF.RESERVE key error_rate capacity COUNTING";

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
