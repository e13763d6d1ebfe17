//! The intended differences from RedisBloom.
//!
//! [`Difference::all_of`] returns the differences that a command line may cause. One more difference depends on the
//! filter: a native filter has one layer for all its growth. [`compare`](super::compare) handles it.

use super::compare::number;
use super::lines::Line;
use super::{Pair, Protocol};
use testkit::server::server_version;
use testkit::wire::Reply;

const BAD_SEED: &str = "ERR bad seed: SEED takes a whole number from 0 to 18446744073709551615";
const BAD_LAYOUT: &str = "ERR bad layout: LAYOUT takes native or classic";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const UNKNOWN: &str = "Unknown argument received";
const REPEATED: &str = "ERR repeated argument: give each option once";
const NO_SEED: &str = "ERR classic filters have no seed: leave out SEED, or add LAYOUT native";
const NO_MEMORY: &str =
    "ERR Insufficient memory to create filter: more than can be addressed, choose a smaller capacity or expansion";

/// An intended difference. In each case, users cannot want what RedisBloom does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// BF.EXISTS and BF.MEXISTS report an error for a key of another type, as all other commands do. RedisBloom replies
    /// that no item exists.
    WrongTypeIsAnError,
    /// BF.RESERVE rejects unknown options. RedisBloom ignores them.
    UnknownOptionIsRejected,
    /// An option may be given once. RedisBloom takes the first or the last, depending on the command.
    RepeatedOptionIsRejected,
    /// BF.RESERVE and BF.INSERT accept SEED and LAYOUT. RedisBloom does not know these options.
    FurtherOptions,
    /// BF.RESERVE accepts more arguments, for our options. RedisBloom rejects such a number of arguments.
    RoomForOptions,
    /// A key is never an option. RedisBloom's BF.RESERVE reads a key named EXPANSION or NONSCALING as an option.
    KeyIsNotAnOption,
    /// The options of BF.INSERT are whole words. RedisBloom looks only at their first letters.
    OptionsAreWholeWords,
    /// An expansion beyond 32 bits is rejected. RedisBloom drops the upper bits, and the rest may be 0.
    ExpansionIsNotTruncated,
    /// An expansion of 0 means NONSCALING, as in Redis 8. RedisBloom rejects it.
    ZeroExpansionIsNonscaling,
    /// A capacity that exceeds any memory is rejected. In RedisBloom, the product of capacity and bits per item
    /// overflows, and the filter has 64 bits. (Somewhat lower capacities crash RedisBloom.)
    CapacityDoesNotOverflow,
    /// BF.INFO has more fields, which must be named. RedisBloom does not know these names.
    FurtherFields,
}

impl Difference {
    /// Returns the differences that a line may cause.
    pub(crate) fn all_of(line: &Line, holds_other_type: bool) -> Vec<Difference> {
        let mut found = Vec::new();
        let command = line.command();
        let arguments = line.arguments();
        match command.as_str() {
            "BF.EXISTS" | "BF.MEXISTS" if holds_other_type => found.push(Difference::WrongTypeIsAnError),
            "BF.INFO" if arguments.len() == 1 => {
                let further: [&[u8]; 5] = [b"ERROR", b"SEED", b"LAYOUT", b"FILL", b"FPR"];
                if further.iter().any(|field| arguments[0].eq_ignore_ascii_case(field)) {
                    found.push(Difference::FurtherFields);
                }
            }
            "BF.RESERVE" => {
                if (8..=12).contains(&line.words.len()) {
                    found.push(Difference::RoomForOptions);
                }
                if [&b"EXPANSION"[..], b"NONSCALING"].iter().any(|word| line.key().eq_ignore_ascii_case(word)) {
                    found.push(Difference::KeyIsNotAnOption);
                }
                if arguments.get(1).is_some_and(|capacity| number(capacity) > Some(1 << 60)) {
                    found.push(Difference::CapacityDoesNotOverflow);
                }
                find_in_options(
                    arguments.get(2..).unwrap_or(&[]),
                    &["EXPANSION", "SEED", "LAYOUT"],
                    &["NONSCALING"],
                    &mut found,
                );
            }
            "BF.INSERT" => {
                let valued = ["CAPACITY", "ERROR", "EXPANSION", "SEED", "LAYOUT"];
                find_in_options(arguments, &valued, &["NONSCALING", "NOCREATE"], &mut found);
            }
            _ => {}
        }
        found
    }

    /// Returns true if one of the differences explains why the replies differ.
    pub(crate) fn explain(differences: &[Difference], theirs: &Reply, ours: &Reply) -> bool {
        let explain = |ours| differences.iter().any(|difference| difference.allows(theirs, ours));
        // If our side rejects only the capacity, other differences are applied as if it had replied OK.
        let would_succeed =
            differences.contains(&Difference::CapacityDoesNotOverflow) && *ours == Reply::error(NO_MEMORY);
        explain(ours) || (would_succeed && explain(&Reply::simple("OK")))
    }

    /// Returns true if this difference explains why the replies differ.
    pub(crate) fn allows(self, theirs: &Reply, ours: &Reply) -> bool {
        let ours_is = |text: &str| *ours == Reply::error(text);
        match self {
            Difference::WrongTypeIsAnError => {
                let absent = |reply: &Reply| reply.as_bool() == Some(false);
                let all_absent = matches!(theirs, Reply::Array(items) if items.iter().all(absent));
                ours_is(WRONG_TYPE) && (absent(theirs) || all_absent)
            }
            Difference::UnknownOptionIsRejected => {
                let names_it = matches!(ours, Reply::Error(text) if text.starts_with("ERR unknown option '"));
                names_it && passed_the_numbers(theirs)
            }
            Difference::RepeatedOptionIsRejected => ours_is(REPEATED) || ours_is("ERR no expansion"),
            Difference::FurtherOptions => {
                const BAD: [&str; 3] = [BAD_SEED, BAD_LAYOUT, NO_SEED];
                *theirs == Reply::error(UNKNOWN) || (BAD.into_iter().any(ours_is) && passed_the_numbers(theirs))
            }
            Difference::RoomForOptions => {
                *theirs == Reply::error("ERR wrong number of arguments for 'bf.reserve' command")
            }
            Difference::KeyIsNotAnOption => {
                passed_the_numbers(theirs) && passed_the_numbers(ours) && (theirs.is_error() || ours.is_error())
            }
            Difference::OptionsAreWholeWords => ours_is(UNKNOWN),
            Difference::ExpansionIsNotTruncated => {
                (ours_is("ERR bad expansion") || ours_is("Bad argument received")) && passed_the_options(theirs)
            }
            Difference::ZeroExpansionIsNonscaling => {
                const REJECTED: [&str; 3] = [
                    "ERR expansion should be greater or equal to 1",
                    "Nonscaling filters cannot expand",
                    "Bad argument received",
                ];
                REJECTED.iter().any(|text| *theirs == Reply::error(text)) && passed_the_options(ours)
            }
            Difference::CapacityDoesNotOverflow => ours_is(NO_MEMORY) && !theirs.is_error(),
            Difference::FurtherFields => *theirs == Reply::error("Invalid information value") && !ours.is_error(),
        }
    }
}

/// Finds the differences among the options of BF.RESERVE and BF.INSERT. The options in `valued` have a value, those in
/// `flags` have none.
fn find_in_options(words: &[Vec<u8>], valued: &[&str], flags: &[&str], found: &mut Vec<Difference>) {
    let is_insert = valued.contains(&"CAPACITY");
    let mut seen: Vec<String> = Vec::new();
    let mut next = 0;
    while next < words.len() {
        let word = String::from_utf8_lossy(&words[next]).to_ascii_uppercase();
        let value = words.get(next + 1).and_then(|value| number(value));
        next += 1;
        if is_insert && word == "ITEMS" {
            return;
        }
        if valued.contains(&word.as_str()) {
            next += 1;
            match word.as_str() {
                "SEED" | "LAYOUT" => found.push(Difference::FurtherOptions),
                "EXPANSION" if value == Some(0) => found.push(Difference::ZeroExpansionIsNonscaling),
                "EXPANSION" if value > Some(u32::MAX.into()) => found.push(Difference::ExpansionIsNotTruncated),
                "CAPACITY" if value > Some(1 << 60) => found.push(Difference::CapacityDoesNotOverflow),
                _ => {}
            }
        } else if !flags.contains(&word.as_str()) {
            if !is_insert {
                found.push(Difference::UnknownOptionIsRejected);
            } else if word.starts_with(['I', 'C', 'E', 'N']) {
                found.push(Difference::OptionsAreWholeWords);
            }
            return;
        }
        if seen.contains(&word) {
            found.push(Difference::RepeatedOptionIsRejected);
        }
        seen.push(word);
    }
}

/// Returns true if this is a reply to a BF.RESERVE whose error rate and capacity were accepted.
fn passed_the_numbers(reply: &Reply) -> bool {
    let about_options = [
        "ERR no expansion",
        "ERR bad expansion",
        "ERR expansion should be greater or equal to 1",
        "Nonscaling filters cannot expand",
    ];
    passed_the_options(reply) || about_options.iter().any(|text| *reply == Reply::error(text))
}

/// Returns true if this is a reply to a command whose options were all accepted.
fn passed_the_options(reply: &Reply) -> bool {
    let about_the_key = ["ERR item exists", "ERR not found", WRONG_TYPE];
    !reply.is_error() || about_the_key.iter().any(|text| *reply == Reply::error(text))
}

/// Runs a line, and checks that `difference` alone explains why the replies differ.
fn differ(pair: &mut Pair, difference: Difference, holds_other_type: bool, words: &str) -> (Reply, Reply) {
    let line = Line::from(words);
    let (theirs, ours) = pair.run_words(&line.words);
    assert_eq!(Difference::all_of(&line, holds_other_type), [difference], "{line}");
    assert!(theirs != ours && difference.allows(&theirs, &ours), "{line}\n{theirs:?}\n{ours:?}");
    (theirs, ours)
}

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

/// Returns the error for an option that BF.RESERVE does not have.
fn unknown_option(option: &str) -> Reply {
    Reply::error(&format!("ERR unknown option '{option}': correct or remove it"))
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
fn reserve_accepts_thirteen_more_arguments_for_our_options() {
    let mut pair = Pair::start(Protocol::Resp2);
    let (theirs, ours) = pair.run("BF.RESERVE key 0.01 100 EXPANSION 4 SEED 42");
    let many = Reply::error("ERR wrong number of arguments for 'bf.reserve' command");
    assert_eq!((&theirs, &ours), (&many, &Reply::simple("OK")));
    assert!(Difference::RoomForOptions.allows(&theirs, &ours));
    assert_eq!(pair.agree("BF.RESERVE key 0.01 100 EXPANSION 4 SEED 42 LAYOUT native 1 2 3 4 5 6 7 8 9 10 11"), many);
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
