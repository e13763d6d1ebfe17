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

#[test]
fn reserve_rejects_unknown_options_which_redisbloom_ignores() {
    let mut pair = Pair::start(Protocol::Resp2);
    for (words, option) in
        [("BF.RESERVE one 0.01 100 NOTHING", "NOTHING"), ("BF.RESERVE two 0.01 100 EXPANSION 2 SCALING", "SCALING")]
    {
        let (theirs, ours) = differ(&mut pair, Difference::UnknownOptionIsRejected, false, words);
        assert_eq!((theirs, ours), (Reply::simple("OK"), unknown_option(option)));
    }
    assert_eq!(pair.agree("BF.RESERVE one 2 100 NOTHING"), Reply::error("ERR (0 < error rate range < 1) "));
    assert_eq!(pair.agree("BF.INSERT one XYZ ITEMS item"), Reply::error(UNKNOWN));
}

#[test]
fn a_repeated_option_is_rejected_and_redisbloom_takes_one_of_both() {
    let mut pair = Pair::start(Protocol::Resp2);
    let difference = Difference::RepeatedOptionIsRejected;
    let rejected = Reply::error(REPEATED);
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.RESERVE first 0.01 100 NONSCALING NONSCALING");
    assert_eq!((theirs, ours), (Reply::simple("OK"), rejected.clone()));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.INSERT last CAPACITY 5 CAPACITY 6 ITEMS a");
    assert_eq!((theirs, ours), (Reply::integers(&[1]), rejected.clone()));
    assert_eq!(pair.run("BF.INFO last CAPACITY").0, Reply::integers(&[6]));
    let words = "BF.RESERVE first 0.01 100 EXPANSION 2 EXPANSION";
    let (theirs, ours) = differ(&mut pair, difference, false, words);
    assert_eq!((theirs, ours), (Reply::error("ERR item exists"), Reply::error("ERR no expansion")));
}

#[test]
fn seed_and_layout_are_options_which_redisbloom_does_not_know() {
    let mut pair = Pair::start(Protocol::Resp2);
    let difference = Difference::FurtherOptions;
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.INSERT key SEED 42 ITEMS item");
    assert_eq!((theirs, ours), (Reply::error(UNKNOWN), Reply::integers(&[1])));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.INSERT key SEED x ITEMS item");
    assert_eq!((theirs, ours), (Reply::error(UNKNOWN), Reply::error(BAD_SEED)));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.RESERVE other 0.01 100 SEED x");
    assert_eq!((theirs, ours), (Reply::simple("OK"), Reply::error(BAD_SEED)));
    assert_eq!(pair.agree("BF.RESERVE ignored 0.01 100 SEED 42"), Reply::simple("OK"));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.INSERT classic LAYOUT classic ITEMS item");
    assert_eq!((theirs, ours), (Reply::error(UNKNOWN), Reply::integers(&[1])));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.INSERT none LAYOUT flat ITEMS item");
    assert_eq!((theirs, ours), (Reply::error(UNKNOWN), Reply::error(BAD_LAYOUT)));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.RESERVE third 0.01 100 LAYOUT flat");
    assert_eq!((theirs, ours), (Reply::simple("OK"), Reply::error(BAD_LAYOUT)));
    assert_eq!(pair.agree("BF.RESERVE accepted 0.01 100 LAYOUT classic"), Reply::simple("OK"));
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
fn a_key_may_be_named_like_an_option_which_redisbloom_reads_as_the_option() {
    let mut pair = Pair::start(Protocol::Resp2);
    let difference = Difference::KeyIsNotAnOption;
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.RESERVE expansion 0.01 100");
    assert_eq!((theirs, ours), (Reply::error("ERR bad expansion"), Reply::simple("OK")));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.RESERVE NONSCALING 0.01 100 EXPANSION 3");
    assert_eq!((theirs, ours), (Reply::error("Nonscaling filters cannot expand"), Reply::simple("OK")));
    pair.run("DEL NONSCALING");
    assert_eq!(pair.agree("BF.RESERVE NONSCALING 0.01 100"), Reply::simple("OK"));
    let (theirs, ours) = pair.run("BF.INFO NONSCALING EXPANSION");
    assert_eq!((theirs, ours), (Reply::Array(vec![Reply::NullBulk]), Reply::integers(&[2])));
}

#[test]
fn options_of_insert_are_whole_words_and_redisbloom_looks_at_their_first_letters() {
    let mut pair = Pair::start(Protocol::Resp2);
    for option in
        ["ITEM a", "COPACITY 5 ITEMS a", "ERRORS 0.1 ITEMS a", "EXPAND 2 ITEMS a", "NO ITEMS a", "NOS ITEMS a"]
    {
        let words = format!("BF.INSERT {} {option}", option.split(' ').next().unwrap());
        let (theirs, ours) = differ(&mut pair, Difference::OptionsAreWholeWords, false, &words);
        assert_eq!((theirs, ours), (Reply::integers(&[1]), Reply::error(UNKNOWN)), "{option}");
    }
    let words = "BF.INSERT nokey NOCX ITEMS a";
    let (theirs, ours) = differ(&mut pair, Difference::OptionsAreWholeWords, false, words);
    assert_eq!((theirs, ours), (Reply::error("ERR not found"), Reply::error(UNKNOWN)));
}

#[test]
fn an_expansion_beyond_32_bits_is_rejected_and_redisbloom_truncates_it() {
    let mut pair = Pair::start(Protocol::Resp2);
    let difference = Difference::ExpansionIsNotTruncated;
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.RESERVE key 0.01 100 EXPANSION 4294967299");
    assert_eq!((theirs, ours), (Reply::simple("OK"), Reply::error("ERR bad expansion")));
    assert_eq!(pair.run("BF.INFO key EXPANSION").0, Reply::integers(&[3]));
    let (theirs, ours) = differ(&mut pair, difference, false, "BF.INSERT other EXPANSION 4294967296 ITEMS a");
    assert_eq!((theirs, ours), (Reply::integers(&[1]), Reply::error("Bad argument received")));
    assert_eq!(pair.run("BF.INFO other EXPANSION").0, Reply::integers(&[0]));
    assert_eq!(pair.agree("BF.RESERVE most 0.01 100 EXPANSION 4294967295"), Reply::simple("OK"));
}

#[test]
fn an_expansion_of_0_means_nonscaling_and_redisbloom_rejects_it() {
    let mut pair = Pair::start(Protocol::Resp2);
    let difference = Difference::ZeroExpansionIsNonscaling;
    for (words, rejected, reply) in [
        ("BF.RESERVE a 0.01 100 EXPANSION 0", "ERR expansion should be greater or equal to 1", Reply::simple("OK")),
        ("BF.RESERVE b 0.01 100 EXPANSION 0 NONSCALING", "Nonscaling filters cannot expand", Reply::simple("OK")),
        ("BF.INSERT c EXPANSION 0 ITEMS x", "Bad argument received", Reply::integers(&[1])),
    ] {
        let (theirs, ours) = differ(&mut pair, difference, false, words);
        assert_eq!((theirs, ours), (Reply::error(rejected), reply));
    }
    assert_eq!(pair.run("BF.INFO a EXPANSION").1, Reply::Array(vec![Reply::NullBulk]));
}

#[test]
fn a_capacity_beyond_all_memory_is_rejected_and_overflows_in_redisbloom() {
    let mut pair = Pair::start(Protocol::Resp2);
    let difference = Difference::CapacityDoesNotOverflow;
    let most = i64::MAX;
    let (theirs, ours) = differ(&mut pair, difference, false, &format!("BF.RESERVE key 0.01 {most}"));
    assert_eq!((theirs, ours), (Reply::simple("OK"), Reply::error(NO_MEMORY)));
    let layers = pair.run("BF.DEBUG key").0;
    assert!(layers.elements()[1].text().starts_with("bytes:8 bits:64 "), "{layers:?}");
    let (theirs, ours) = differ(&mut pair, difference, false, &format!("BF.INSERT other CAPACITY {most} ITEMS a"));
    assert_eq!((theirs, ours), (Reply::integers(&[1]), Reply::error(NO_MEMORY)));
    assert_eq!(pair.agree("BF.RESERVE beyond 0.01 9223372036854775808"), Reply::error("ERR bad capacity"));
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
fn a_filter_that_grew_has_one_more_layer_and_several_in_redisbloom() {
    let mut pair = Pair::start(Protocol::Resp2);
    assert_eq!(pair.agree("BF.RESERVE key 1e-18 2"), Reply::simple("OK"));
    assert_eq!(pair.agree("BF.MADD key a b"), Reply::integers(&[1, 1]));
    assert_eq!(pair.agree("BF.INFO key FILTERS"), Reply::integers(&[1]));
    assert_eq!(pair.agree("BF.INFO key CAPACITY"), Reply::integers(&[2]));
    assert_eq!(pair.agree("BF.MADD key c d e f g h i"), Reply::integers(&[1; 7]));
    assert_eq!(pair.run("BF.INFO key FILTERS"), (Reply::integers(&[3]), Reply::integers(&[2])));
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
    assert_eq!(
        (sizes(&theirs), sizes(&ours)),
        (vec!["2".into(), "4".into(), "3".into()], vec!["2".into(), "7".into()])
    );
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
