//! The replies of CF.*, and the figures of a filter.

use crate::expected::{ok, protocols};
use testkit::command::many;
use testkit::info::{assert_figures_add_up, layout_figure};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, run};

pub(crate) const LAYOUTS: [&str; 2] = ["native", "classic"];

#[test]
fn replies_have_the_right_type_in_both_protocols() {
    let server = Setup::oxbloom().start();
    for (layout, (mut client, yes, no)) in
        LAYOUTS.into_iter().flat_map(|layout| protocols(&server).map(|p| (layout, p)))
    {
        let mut check = |line: &str, expected: Reply| assert_eq!(client.run(line), expected, "{layout}: {line}");
        let both = |one: &Reply, other: &Reply| Reply::Array(vec![one.clone(), other.clone()]);
        check("FLUSHALL", ok());
        check(&format!("CF.RESERVE key 1000 LAYOUT {layout}"), ok());
        check("CF.ADD key a", yes.clone());
        check("CF.ADD key a", yes.clone());
        check("CF.ADDNX key a", no.clone());
        check("CF.ADDNX key b", yes.clone());
        check("CF.INSERT key ITEMS a c", both(&yes, &yes));
        check("CF.INSERTNX key ITEMS a d", Reply::integers(&[0, 1]));
        check("CF.EXISTS key a", yes.clone());
        check("CF.MEXISTS key a x", both(&yes, &no));
        check("CF.COUNT key a", Reply::Integer(3));
        check("CF.COUNT key x", Reply::Integer(0));
        check("CF.DEL key a", yes.clone());
        check("CF.DEL key x", no.clone());
        check("CF.COUNT key a", Reply::Integer(2));
        check("CF.COMPACT key", ok());
    }
}

#[test]
fn info_and_debug_describe_the_filter_that_was_asked_for() {
    let server = Setup::oxbloom().start();
    for (layout, (mut client, yes, _)) in LAYOUTS.into_iter().flat_map(|layout| protocols(&server).map(|p| (layout, p)))
    {
        client.run("FLUSHALL SYNC");
        client.run(&format!("CF.RESERVE key 5000 BUCKETSIZE 3 EXPANSION 5 MAXITERATIONS 77 LAYOUT {layout}"));
        client.run("CF.INSERT key ITEMS a a b c");
        assert_eq!(client.run("CF.DEL key b"), yes);
        // The least power of two of buckets that is not below 5000 / 3. The expansion is rounded up to a power of two.
        let size = match layout {
            "classic" => Reply::Integer(40 + 16 + 3 * 2048),
            _ => Reply::Integer(layout_figure(&mut server.connect(), "native_cuckoo", "bytes").cast_signed()),
        };
        let fields = [
            ("Size", size),
            ("Number of buckets", Reply::Integer(2048)),
            ("Number of filters", Reply::Integer(1)),
            ("Number of items inserted", Reply::Integer(3)),
            ("Number of items deleted", Reply::Integer(1)),
            ("Bucket size", Reply::Integer(3)),
            ("Expansion rate", Reply::Integer(8)),
            ("Max iterations", Reply::Integer(77)),
        ];
        let fields = fields.map(|(name, value)| (Reply::simple(name), value));
        let is_map = yes != Reply::Integer(1) || matches!(client.run("CF.INFO key"), Reply::Map(_));
        let expected = match is_map {
            true => Reply::Map(fields.into()),
            false => Reply::Array(fields.into_iter().flat_map(|(name, value)| [name, value]).collect()),
        };
        assert_eq!(client.run("CF.INFO key"), expected, "{layout}");
        let line = "bktsize:3 buckets:2048 items:3 deletes:1 filters:1 max_iterations:77 expansion:8";
        assert_eq!(client.run("CF.DEBUG key"), Reply::bulk(line), "{layout}");
        for line in ["CF.INFO none", "CF.DEBUG none"] {
            assert_eq!(client.run(line), Reply::error("ERR not found"));
        }
    }
}

pub(crate) const FULL: &str = "Filter is full";

#[test]
fn a_full_filter_rejects_some_items_and_stores_the_others() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        let is_resp3 = yes != Reply::Integer(1);
        let rejected = if is_resp3 { no.clone() } else { Reply::Integer(-1) };
        client.run("FLUSHALL");
        // With one bucket of four slots, the fifth item cannot be stored. A native filter is full at its capacity.
        client.run("CF.RESERVE classic 8 BUCKETSIZE 4 EXPANSION 0 LAYOUT classic");
        client.run("CF.RESERVE native 8 BUCKETSIZE 4 EXPANSION 0 SEED 3 ERROR 0.0000001");
        for key in LAYOUTS {
            let items: Vec<String> = (0..9).map(|number| number.to_string()).collect();
            let words = ["CF.INSERT", key, "ITEMS"].into_iter().chain(items.iter().map(String::as_str));
            let replies = client.run_words(&words.collect::<Vec<_>>());
            let stored = replies.elements().iter().filter(|reply| **reply == yes).count();
            assert!(replies.elements().iter().all(|reply| [&yes, &rejected].contains(&reply)), "{key}: {replies:?}");
            assert!(stored <= 8 && stored > 4, "{key}: {replies:?}");
            let full = replies.elements().iter().position(|reply| *reply == rejected).expect("a full filter");
            let add = |client: &mut Wire, name: &str| client.run(&format!("{name} {key} {full}"));
            assert_eq!(add(&mut client, "CF.ADD"), Reply::error(FULL), "{key}");
            assert_eq!(add(&mut client, "CF.ADDNX"), Reply::error(FULL), "{key}");
            // An item that is present is not added again, and rejections end no command.
            let duplicates = || layout_figure(&mut server.connect(), &format!("{key}_cuckoo"), "duplicates");
            let before = duplicates();
            let reply = client.run(&format!("CF.INSERTNX {key} ITEMS 0 {full} 0"));
            assert_eq!(reply, Reply::integers(&[0, -1, 0]), "{key}");
            assert_eq!(duplicates(), before + 2, "{key}");
            assert_eq!(client.run(&format!("CF.ADDNX {key} 0")), no, "{key}");
            assert_eq!(client.run(&format!("CF.DEL {key} 0")), yes, "{key}");
            assert_eq!(client.run(&format!("CF.INSERTNX {key} ITEMS 0 0 0")), Reply::integers(&[1, 0, 0]), "{key}");
            assert_eq!(duplicates(), before + 5, "{key}");
            // Those that are there do not end up in another place of the reply, however many batches there are.
            let items: Vec<String> =
                (0..200).map(|number| if number % 3 == 0 { 0 } else { full }.to_string()).collect();
            let words = ["CF.INSERTNX", key, "ITEMS"].into_iter().chain(items.iter().map(String::as_str));
            let expected: Vec<i64> = (0..200).map(|number| if number % 3 == 0 { 0 } else { -1 }).collect();
            assert_eq!(client.run_words(&words.collect::<Vec<_>>()), Reply::integers(&expected), "{key}");
            let items = client.run(&format!("CF.INFO {key}")).field("Number of items inserted").integer();
            assert_eq!(items, stored as i64, "{key}");
        }
        assert_figures_add_up(&mut server.connect());
    }
}

#[test]
fn a_converted_filter_keeps_its_items_and_the_time_at_which_it_expires() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for key in ["volatile", "lasting"] {
        run(&mut client, &format!("CF.RESERVE {key} 1024 LAYOUT classic")).unwrap();
        many::<Vec<i64>>(&mut client, "CF.INSERT", key, &[1, 1, 2]);
    }
    run(&mut client, "PEXPIREAT volatile 99999999999999").unwrap();
    let left: i64 = ask(&mut client, "PTTL volatile");
    for is_first in [true, false] {
        for key in ["volatile", "lasting"] {
            assert_eq!(ask::<bool>(&mut client, &format!("CF.CONVERT {key}")), is_first, "{key}");
            assert_eq!([1, 2].map(|number| many::<u64>(&mut client, "CF.COUNT", key, &[number])), [2, 1], "{key}");
        }
    }
    assert!((left - 1_000_000..=left + 1000).contains(&ask(&mut client, "PTTL volatile")));
    assert_eq!(ask::<i64>(&mut client, "PTTL lasting"), -1);
}
