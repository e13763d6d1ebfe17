//! The intended differences from RedisBloom.
//!
//! [`Difference::all_of`] returns the differences that a command line may cause. One more difference depends on the
//! filter: a native filter has one layer for all its growth. [`compare`](super::compare) handles it. Each difference
//! has a test that shows both sides, in [`bloom`] or [`cuckoo`].

mod bloom;
mod cuckoo;

use super::Pair;
use super::compare::number;
use super::lines::Line;
use testkit::wire::Reply;

const BAD_SEED: &str = "ERR bad seed: SEED must be a whole number from 0 to 18446744073709551615";
const BAD_LAYOUT: &str = "ERR bad layout: LAYOUT must be native, classic or valkey";
const BAD_CUCKOO_LAYOUT: &str = "ERR bad layout: LAYOUT must be native or classic";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const UNKNOWN: &str = "Unknown argument received";
const REPEATED: &str = "ERR repeated argument: give each option once";
const NO_SEED: &str = "ERR classic filters have no seed: leave out SEED, or add LAYOUT native";
const NO_RATE: &str = "ERR classic cuckoo filters have no error rate: leave out ERROR, or add LAYOUT native";
const BAD_RATE: &str = "ERR (0 < error rate range < 1) ";
const BAD_TIME: &str = "ERR invalid expire time: EX, PX, EXAT and PXAT must be a whole number above 0";
const FOREIGN_CHUNK: &str =
    "ERR received a chunk of another filter, or one from before its last write: copy again from iterator 0";
const NO_MEMORY: &str =
    "ERR Insufficient memory to create filter: more than can be addressed, choose a smaller capacity or expansion";

/// An intended difference. In each case, users cannot want what RedisBloom does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// All commands report an error for a key of another type. In RedisBloom, BF.EXISTS, BF.MEXISTS, CF.EXISTS,
    /// CF.MEXISTS and CF.COUNT reply that no item exists, CF.DEL and CF.COMPACT that there is no filter.
    WrongTypeIsAnError,
    /// BF.RESERVE and CF.RESERVE reject unknown options. RedisBloom ignores them.
    UnknownOptionIsRejected,
    /// An option may be given once. RedisBloom takes the first or the last, depending on the command.
    RepeatedOptionIsRejected,
    /// The commands that create filters accept SEED and LAYOUT, and those for cuckoo filters also ERROR and the times
    /// at which keys expire. RedisBloom does not know these options.
    FurtherOptions,
    /// BF.RESERVE accepts more arguments, for our options. RedisBloom rejects such a number of arguments.
    RoomForOptions,
    /// A key is never an option. RedisBloom's BF.RESERVE and CF.RESERVE read a key that is named like an option as the
    /// option.
    KeyIsNotAnOption,
    /// The options of BF.INSERT, CF.INSERT and CF.INSERTNX are whole words. RedisBloom looks only at their first
    /// letters.
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
    /// CF.RESERVE says what is wrong with an argument. RedisBloom only says that their number is odd.
    ArgumentIsNamed,
    /// The error for a cuckoo filter that is too large says so. In RedisBloom, it only says that there is no memory.
    LimitIsNamed,
    /// CF.SCANDUMP dumps an empty filter, so that it can be copied. In RedisBloom, its dump is empty.
    EmptyFilterIsDumped,
    /// CF.SCANDUMP continues at any cursor within a layer. RedisBloom repeats the whole layer, and its next cursor
    /// belongs to no chunk.
    DumpContinuesAtCursor,
    /// CF.LOADCHUNK of a client loads no slots over others, so that no item is lost. In RedisBloom, it does.
    ChunkOverwritesNothing,
    /// CF.LOADCHUNK rejects a chunk beyond the end. RedisBloom loads it into its newest layer.
    ChunkMustFit,
    /// CF.LOADCHUNK rejects headers that no filter has. RedisBloom accepts some, and its server dies of some filters
    /// that it then has.
    HeaderIsChecked,
}

/// The options of a command that creates filters.
struct Syntax {
    /// RedisBloom's options with a value.
    valued: &'static [&'static str],
    /// RedisBloom's options without a value.
    flags: &'static [&'static str],
    /// The first letters by which RedisBloom recognizes options. If there are none, it ignores other words.
    letters: &'static [char],
    /// The options that only this module has, all with a value.
    further: &'static [&'static str],
}

const BLOOM_RESERVE: Syntax =
    Syntax { valued: &["EXPANSION"], flags: &["NONSCALING"], letters: &[], further: &["SEED", "LAYOUT"] };
const BLOOM_INSERT: Syntax = Syntax {
    valued: &["CAPACITY", "ERROR", "EXPANSION"],
    flags: &["NONSCALING", "NOCREATE"],
    letters: &['I', 'C', 'E', 'N'],
    further: &["SEED", "LAYOUT"],
};
const CUCKOO_RESERVE: Syntax = Syntax {
    valued: &["BUCKETSIZE", "MAXITERATIONS", "EXPANSION"],
    flags: &[],
    letters: &[],
    further: &["SEED", "LAYOUT", "ERROR", "EX"],
};
const CUCKOO_INSERT: Syntax =
    Syntax { valued: &["CAPACITY"], flags: &["NOCREATE"], letters: &['I', 'C', 'N'], ..CUCKOO_RESERVE };

impl Difference {
    /// Returns the differences that a line may cause.
    pub(crate) fn all_of(line: &Line, holds_other_type: bool) -> Vec<Difference> {
        let mut found = Vec::new();
        let command = line.command();
        let arguments = line.arguments();
        match command.as_str() {
            "BF.EXISTS" | "BF.MEXISTS" | "CF.EXISTS" | "CF.MEXISTS" | "CF.COUNT" | "CF.DEL" | "CF.COMPACT"
                if holds_other_type =>
            {
                found.push(Difference::WrongTypeIsAnError);
            }
            "BF.INFO" if arguments.len() == 1 => {
                let further: [&[u8]; 5] = [b"ERROR", b"SEED", b"LAYOUT", b"FILL", b"FPR"];
                if further.iter().any(|field| arguments[0].eq_ignore_ascii_case(field)) {
                    found.push(Difference::FurtherFields);
                }
            }
            "BF.RESERVE" => {
                if (8..=24).contains(&line.words.len()) {
                    found.push(Difference::RoomForOptions);
                }
                if [&b"EXPANSION"[..], b"NONSCALING"].iter().any(|word| line.key().eq_ignore_ascii_case(word)) {
                    found.push(Difference::KeyIsNotAnOption);
                }
                if arguments.get(1).is_some_and(|capacity| number(capacity) > Some(1 << 60)) {
                    found.push(Difference::CapacityDoesNotOverflow);
                }
                find_in_options(arguments.get(2..).unwrap_or(&[]), &BLOOM_RESERVE, &mut found);
            }
            "BF.INSERT" => find_in_options(arguments, &BLOOM_INSERT, &mut found),
            "CF.RESERVE" => {
                if line.words.len().is_multiple_of(2) {
                    found.push(Difference::ArgumentIsNamed);
                }
                if CUCKOO_RESERVE.valued.iter().any(|word| line.key().eq_ignore_ascii_case(word.as_bytes())) {
                    found.push(Difference::KeyIsNotAnOption);
                }
                if arguments.first().is_some_and(|capacity| number(capacity) > Some(1 << 50)) {
                    found.push(Difference::LimitIsNamed);
                }
                find_in_options(arguments.get(1..).unwrap_or(&[]), &CUCKOO_RESERVE, &mut found);
            }
            "CF.INSERT" | "CF.INSERTNX" => find_in_options(arguments, &CUCKOO_INSERT, &mut found),
            "CF.SCANDUMP" => found.extend([Difference::EmptyFilterIsDumped, Difference::DumpContinuesAtCursor]),
            "CF.LOADCHUNK" => match arguments {
                [cursor, header] if cursor == b"1" && header.len() == 38 => found.push(Difference::HeaderIsChecked),
                _ => found.extend([Difference::ChunkOverwritesNothing, Difference::ChunkMustFit]),
            },
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
                let no_filter = ["Not found", "Cuckoo filter was not found"].map(Reply::error).contains(theirs);
                ours_is(WRONG_TYPE) && (absent(theirs) || all_absent || no_filter)
            }
            Difference::UnknownOptionIsRejected => {
                let names_it = matches!(ours, Reply::Error(text) if text.starts_with("ERR unknown option '"));
                names_it && passed_the_numbers(theirs)
            }
            Difference::RepeatedOptionIsRejected => ours_is(REPEATED) || ours_is("ERR no expansion"),
            Difference::FurtherOptions => {
                const BAD: [&str; 7] = [BAD_SEED, BAD_LAYOUT, BAD_CUCKOO_LAYOUT, NO_SEED, NO_RATE, BAD_TIME, BAD_RATE];
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
            Difference::ArgumentIsNamed => {
                *theirs == Reply::error("ERR wrong number of arguments for 'cf.reserve' command") && ours.is_error()
            }
            Difference::LimitIsNamed => {
                ours_is(NO_MEMORY) && *theirs == Reply::error("ERR Insufficient memory to create filter")
            }
            Difference::EmptyFilterIsDumped => match (theirs, ours) {
                (Reply::Array(theirs), Reply::Array(ours)) => {
                    let is_end = matches!(&theirs[..], [Reply::Integer(0), Reply::NullBulk | Reply::Null]);
                    let is_empty = match &ours[..] {
                        [Reply::Integer(1), Reply::Bulk(header)] => header.len() == 38 && header[..8] == [0; 8],
                        [Reply::Integer(2..), Reply::Bulk(slots)] => slots.iter().all(|&slot| slot == 0),
                        _ => false,
                    };
                    is_end && is_empty
                }
                _ => false,
            },
            Difference::DumpContinuesAtCursor => match (theirs, ours) {
                (Reply::Array(theirs), Reply::Array(ours)) => match [&theirs[..], &ours[..]] {
                    [[Reply::Integer(next), Reply::Bulk(layer)], [Reply::Integer(end), Reply::Bulk(rest)]] => {
                        layer.ends_with(rest) && !rest.is_empty() && next - end == (layer.len() - rest.len()) as i64
                    }
                    _ => false,
                },
                _ => false,
            },
            Difference::ChunkOverwritesNothing => *theirs == Reply::simple("OK") && ours_is(FOREIGN_CHUNK),
            Difference::ChunkMustFit => *theirs == Reply::simple("OK") && ours_is("Couldn't load chunk!"),
            Difference::HeaderIsChecked => *theirs == Reply::simple("OK") && ours_is("Couldn't create filter!"),
        }
    }
}

/// Finds the differences among the options of a command.
fn find_in_options(words: &[Vec<u8>], syntax: &Syntax, found: &mut Vec<Difference>) {
    let mut seen: Vec<String> = Vec::new();
    let mut next = 0;
    while next < words.len() {
        let word = String::from_utf8_lossy(&words[next]).to_ascii_uppercase();
        let value = words.get(next + 1).and_then(|value| number(value));
        let is_one_of = |names: &[&str]| names.contains(&word.as_str());
        next += 1;
        if word == "ITEMS" && !syntax.letters.is_empty() {
            return;
        }
        if is_one_of(syntax.valued) || is_one_of(syntax.further) {
            next += 1;
            let is_of_bloom = syntax.flags.contains(&"NONSCALING");
            match word.as_str() {
                _ if is_one_of(syntax.further) => found.push(Difference::FurtherOptions),
                "CAPACITY" if !is_of_bloom && value > Some(1 << 50) => found.push(Difference::LimitIsNamed),
                _ if !is_of_bloom => {}
                "EXPANSION" if value == Some(0) => found.push(Difference::ZeroExpansionIsNonscaling),
                "EXPANSION" if value > Some(u32::MAX.into()) => found.push(Difference::ExpansionIsNotTruncated),
                "CAPACITY" if value > Some(1 << 60) => found.push(Difference::CapacityDoesNotOverflow),
                _ => {}
            }
        } else if !is_one_of(syntax.flags) {
            if syntax.letters.is_empty() {
                found.push(Difference::UnknownOptionIsRejected);
            } else if word.starts_with(syntax.letters) {
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

/// Returns true if this is a reply to a BF.RESERVE or CF.RESERVE whose error rate and capacity were accepted.
/// (CF.RESERVE compares the capacity with the bucket size, an option.)
fn passed_the_numbers(reply: &Reply) -> bool {
    let about_options = [
        "ERR Insufficient memory to create filter",
        NO_MEMORY,
        "Capacity must be at least (BucketSize * 2)",
        "BUCKETSIZE: value must be an integer between 1 and 255, inclusive.",
        "MAXITERATIONS: value must be an integer between 1 and 65535, inclusive.",
        "EXPANSION: value must be an integer between 0 and 32768, inclusive.",
        "Couldn't parse BUCKETSIZE",
        "Couldn't parse MAXITERATIONS",
        "Couldn't parse EXPANSION",
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

/// Returns the error for an option that a command does not have.
fn unknown_option(option: &str) -> Reply {
    Reply::error(&format!("ERR unknown option '{option}': correct or remove it"))
}

/// A line that causes a difference, RedisBloom's reply, and ours. See [`reply`].
type Case = (Difference, &'static str, &'static str, &'static str);

/// Returns the reply that a case names: `OK`, `[1]` or an error.
fn reply(text: &str) -> Reply {
    match text {
        "OK" => Reply::simple("OK"),
        "[1]" => Reply::integers(&[1]),
        error => Reply::error(error),
    }
}

/// Runs a line, and checks that `difference` alone explains why the replies differ.
fn differ(pair: &mut Pair, difference: Difference, holds_other_type: bool, words: &str) -> (Reply, Reply) {
    let line = Line::from(words);
    let (theirs, ours) = pair.run_words(&line.words);
    let mut explaining = Difference::all_of(&line, holds_other_type);
    explaining.retain(|difference| theirs != ours && difference.allows(&theirs, &ours));
    explaining.dedup();
    assert_eq!(explaining, [difference], "{line}\n{theirs:?}\n{ours:?}");
    (theirs, ours)
}

/// Runs the lines of cases in order, and checks both replies to each.
fn assert_differ(pair: &mut Pair, cases: &[Case]) {
    for &(difference, words, theirs, ours) in cases {
        assert_eq!(differ(pair, difference, false, words), (reply(theirs), reply(ours)), "{words}");
    }
}
