//! The intended differences of commands on Bloom filters.

use super::*;
use crate::Protocol;
use testkit::server::server_version;

#[test]
fn exists_and_mexists_reject_a_key_of_another_type_and_redisbloom_finds_no_items() {
    for (protocol, no) in [(Protocol::Resp2, Reply::Integer(0)), (Protocol::Resp3, Reply::Boolean(false))] {
        let mut pair = Pair::start(protocol);
        pair.agree("SET text value");
        let difference = Difference::WrongTypeIsAnError;
        let (theirs, ours) = differ(&mut pair, difference, true, "BF.EXISTS text item");
        assert_eq!((theirs, ours), (no.clone(), Reply::error(WRONG_TYPE)));
        let (theirs, ours) = differ(&mut pair, difference, true, "BF.MEXISTS text item other");
        assert_eq!((theirs, ours), (Reply::Array(vec![no.clone(), no]), Reply::error(WRONG_TYPE)));
        for words in ["BF.ADD text a", "BF.MADD text a", "BF.INSERT text ITEMS a", "BF.CARD text", "BF.INFO text"] {
            assert_eq!(pair.agree(words), Reply::error(WRONG_TYPE));
        }
    }
}

const EXISTS: &str = "ERR item exists";
const NOTHING: &str = "ERR unknown option 'NOTHING': correct or remove it";
const SCALING: &str = "ERR unknown option 'SCALING': correct or remove it";
const BAD_EXPANSION: &str = "ERR expansion should be greater or equal to 1";
const FIXED: &str = "Nonscaling filters cannot expand";

const CASES: &[Case] = {
    use Difference::*;
    &[
        (UnknownOptionIsRejected, "BF.RESERVE one 0.01 100 NOTHING", "OK", NOTHING),
        (UnknownOptionIsRejected, "BF.RESERVE two 0.01 100 EXPANSION 2 SCALING", "OK", SCALING),
        (RepeatedOptionIsRejected, "BF.RESERVE first 0.01 100 NONSCALING NONSCALING", "OK", REPEATED),
        (RepeatedOptionIsRejected, "BF.RESERVE first 0.01 100 EXPANSION 2 EXPANSION", EXISTS, "ERR no expansion"),
        (RepeatedOptionIsRejected, "BF.INSERT last CAPACITY 5 CAPACITY 6 ITEMS a", "[1]", REPEATED),
        (FurtherOptions, "BF.INSERT seeded SEED 42 ITEMS item", UNKNOWN, "[1]"),
        (FurtherOptions, "BF.INSERT seeded SEED x ITEMS item", UNKNOWN, BAD_SEED),
        (FurtherOptions, "BF.RESERVE ignored-seed 0.01 100 SEED x", "OK", BAD_SEED),
        (FurtherOptions, "BF.INSERT classic LAYOUT classic ITEMS item", UNKNOWN, "[1]"),
        (FurtherOptions, "BF.INSERT flat LAYOUT flat ITEMS item", UNKNOWN, BAD_LAYOUT),
        (FurtherOptions, "BF.RESERVE ignored-layout 0.01 100 LAYOUT flat", "OK", BAD_LAYOUT),
        (KeyIsNotAnOption, "BF.RESERVE expansion 0.01 100", "ERR bad expansion", "OK"),
        (KeyIsNotAnOption, "BF.RESERVE NONSCALING 0.01 100 EXPANSION 3", FIXED, "OK"),
        (OptionsAreWholeWords, "BF.INSERT item ITEM a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "BF.INSERT copacity COPACITY 5 ITEMS a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "BF.INSERT errors ERRORS 0.1 ITEMS a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "BF.INSERT expand EXPAND 2 ITEMS a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "BF.INSERT no NO ITEMS a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "BF.INSERT nos NOS ITEMS a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "BF.INSERT absent NOCX ITEMS a", "ERR not found", UNKNOWN),
        (ExpansionIsNotTruncated, "BF.RESERVE cut 0.01 100 EXPANSION 4294967299", "OK", "ERR bad expansion"),
        (ExpansionIsNotTruncated, "BF.INSERT none EXPANSION 4294967296 ITEMS a", "[1]", "Bad argument received"),
        (ZeroExpansionIsNonscaling, "BF.RESERVE zero 0.01 100 EXPANSION 0", BAD_EXPANSION, "OK"),
        (ZeroExpansionIsNonscaling, "BF.RESERVE both 0.01 100 EXPANSION 0 NONSCALING", FIXED, "OK"),
        (ZeroExpansionIsNonscaling, "BF.INSERT zeroed EXPANSION 0 ITEMS x", "Bad argument received", "[1]"),
        (CapacityDoesNotOverflow, "BF.RESERVE most 0.01 9223372036854775807", "OK", NO_MEMORY),
        (CapacityDoesNotOverflow, "BF.INSERT most-too CAPACITY 9223372036854775807 ITEMS a", "[1]", NO_MEMORY),
    ]
};

/// Similar lines with the same reply on both sides.
const AGREED: &[(&str, &str)] = &[
    ("BF.RESERVE agreed 2 100 NOTHING", "ERR (0 < error rate range < 1) "),
    ("BF.RESERVE agreed 0.01 100 SEED 42", "OK"),
    ("BF.RESERVE agreed-too 0.01 100 LAYOUT classic", "OK"),
    ("BF.RESERVE wide 0.01 100 EXPANSION 4294967295", "OK"),
    ("BF.RESERVE beyond 0.01 9223372036854775808", "ERR bad capacity"),
    ("BF.INSERT beyond XYZ ITEMS item", UNKNOWN),
];

#[test]
fn lines_that_redisbloom_reads_in_another_way_get_these_replies() {
    let mut pair = Pair::start(Protocol::Resp2);
    assert_differ(&mut pair, CASES);
    AGREED.iter().for_each(|(words, expected)| assert_eq!(pair.agree(words), reply(expected), "{words}"));
    // RedisBloom's filters have what it read.
    for (words, expected) in [("last CAPACITY", 6), ("cut EXPANSION", 3), ("none EXPANSION", 0)] {
        assert_eq!(pair.run(&format!("BF.INFO {words}")).0, Reply::integers(&[expected]), "{words}");
    }
    let layers = pair.run("BF.DEBUG most").0;
    assert!(layers.elements()[1].text().starts_with("bytes:8 bits:64 "), "{layers:?}");
    assert_eq!(pair.run("BF.INFO zero EXPANSION").1, Reply::Array(vec![Reply::NullBulk]));
    pair.run("DEL NONSCALING");
    assert_eq!(pair.agree("BF.RESERVE NONSCALING 0.01 100"), Reply::simple("OK"));
    let replies = pair.run("BF.INFO NONSCALING EXPANSION");
    assert_eq!(replies, (Reply::Array(vec![Reply::NullBulk]), Reply::integers(&[2])));
}

#[test]
fn reserve_accepts_seventeen_more_arguments_for_our_options() {
    let mut pair = Pair::start(Protocol::Resp2);
    let (theirs, ours) = pair.run("BF.RESERVE key 0.01 100 EXPANSION 4 SEED 42");
    let many = Reply::error("ERR wrong number of arguments for 'bf.reserve' command");
    assert_eq!((&theirs, &ours), (&many, &Reply::simple("OK")));
    assert!(Difference::RoomForOptions.allows(&theirs, &ours));
    assert_eq!(
        pair.agree("BF.RESERVE key 0.01 100 EXPANSION 4 SEED 42 LAYOUT native 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"),
        many
    );
    assert_eq!(pair.run("BF.RESERVE key 0.01 100 1 2 3 4"), (many, unknown_option("1")));
}

#[test]
fn info_has_more_fields_than_redisbloom_knows() {
    let mut pair = Pair::start(Protocol::Resp2);
    pair.agree("BF.ADD key item");
    for field in ["ERROR", "seed", "Layout", "FILL", "FPR"] {
        let words = format!("BF.INFO key {field}");
        let (theirs, ours) = differ(&mut pair, Difference::FurtherFields, false, &words);
        assert_eq!(theirs, Reply::error("Invalid information value"));
        assert_eq!(ours.elements().len(), 1);
        assert_eq!(pair.agree(&words.replace("key", "nokey")), Reply::error("ERR not found"));
    }
}

#[test]
fn a_small_filter_that_grew_has_one_layer_and_several_in_redisbloom() {
    let mut pair = Pair::start(Protocol::Resp2);
    assert_eq!(pair.agree("BF.RESERVE key 1e-18 2"), Reply::simple("OK"));
    assert_eq!(pair.agree("BF.MADD key a b"), Reply::integers(&[1, 1]));
    assert_eq!(pair.agree("BF.INFO key FILTERS"), Reply::integers(&[1]));
    assert_eq!(pair.agree("BF.INFO key CAPACITY"), Reply::integers(&[2]));
    assert_eq!(pair.agree("BF.MADD key c d e f g h i"), Reply::integers(&[1; 7]));
    assert_eq!(pair.run("BF.INFO key FILTERS"), (Reply::integers(&[3]), Reply::integers(&[1])));
    let (theirs, ours) = pair.run("BF.INFO key CAPACITY");
    assert_eq!(theirs, Reply::integers(&[2 + 4 + 8]));
    assert!(ours.elements()[0].integer() >= 9, "{ours:?}");
    let (theirs, ours) = pair.run("BF.DEBUG key");
    let sizes = |reply: &Reply| -> Vec<String> {
        let layers = reply.elements()[1..].iter().map(Reply::text);
        layers
            .filter_map(|layer| layer.split(' ').find_map(|fact| fact.strip_prefix("size:")).map(str::to_owned))
            .collect()
    };
    assert_eq!((sizes(&theirs), sizes(&ours)), (vec!["2".into(), "4".into(), "3".into()], vec!["9".into()]));
    for line in ["BF.INFO key ITEMS", "BF.INFO key EXPANSION", "BF.CARD key", "BF.MEXISTS key a b c d e f g h i j"] {
        pair.agree(line);
    }
}

/// From 7.0 on, servers know the arity of our commands, and reject a wrong number of arguments before the command runs.
/// Outside of transactions and scripts, the reply is the same, so this is not a [`Difference`].
#[test]
fn transactions_and_scripts_reject_a_wrong_number_of_arguments_before_the_command_runs() {
    if server_version() < (7, 0) {
        return;
    }
    let mut pair = Pair::start(Protocol::Resp2);
    pair.agree("MULTI");
    pair.agree("BF.ADD key item");
    let arity = Reply::error("ERR wrong number of arguments for 'bf.add' command");
    assert_eq!(pair.run("BF.ADD key"), (Reply::simple("QUEUED"), arity.clone()));
    let (theirs, ours) = pair.run("EXEC");
    assert_eq!(theirs, Reply::Array(vec![Reply::Integer(1), arity.clone()]));
    assert_eq!(ours, Reply::error("EXECABORT Transaction discarded because of previous errors."));
    let (theirs, ours) = pair.run_words(&["EVAL", "return redis.pcall('BF.ADD', KEYS[1])", "1", "key"]);
    assert_eq!(theirs, arity);
    assert_eq!(ours, Reply::error("ERR Wrong number of args calling Redis command from script"));
}

#[test]
fn a_filter_of_the_lowest_error_rate_grows_but_not_in_redisbloom() {
    let mut pair = Pair::start(Protocol::Resp2);
    assert_eq!(pair.agree("BF.RESERVE key 1e-320 1 EXPANSION 1"), Reply::simple("OK"));
    let replies: Vec<_> = (0..40).map(|item| pair.run(&format!("BF.ADD key {item}"))).collect();
    assert!(replies.iter().all(|(_, ours)| *ours == Reply::Integer(1)), "{replies:?}");
    assert!(
        replies.iter().any(|(theirs, _)| *theirs == Reply::error("ERR problem inserting into filter")),
        "{replies:?}"
    );
}
