//! Compares two replies to a line, as far as two filters can agree.

use std::collections::HashSet;

use super::differences::Difference;
use super::lines::Line;
use testkit::wire::Reply;

/// RedisBloom halves the error rate with each layer. Below this rate, it may become 0, and then all further additions
/// fail.
const VANISHING: f64 = 1e-200;

/// The usual capacities, expansions and cursors are lower.
const HUGE: i64 = 10_000_000;

/// A cuckoo filter with a higher expansion takes all memory when it has grown twice.
const USUAL_EXPANSION: i64 = 8;

/// The errors of a full filter. A native filter and a classic one may be full at different times.
const FULL: [&str; 3] = ["ERR non scaling filter is full", "Filter is full", "Maximum expansions reached"];

/// The state of the key space, which must be the same on both sides.
#[derive(Default)]
pub(crate) struct Comparison {
    /// The keys that hold no filter.
    of_other_types: HashSet<Vec<u8>>,
    /// True if the filters of both sides must be the same, bit for bit.
    strict: bool,
    /// The number of lines whose replies had an intended difference.
    pub explained: usize,
    /// True if the replies to the last line had one.
    is_last_explained: bool,
    /// The number of lines whose replies only had the same shape.
    pub alike: usize,
}

impl Comparison {
    pub(crate) fn new(strict: bool) -> Comparison {
        Comparison { strict, ..Comparison::default() }
    }

    /// Compares the replies to a line. Returns an error if they differ in an unintended way.
    pub(crate) fn compare(&mut self, line: &Line, theirs: &Reply, ours: &Reply) -> Result<(), String> {
        let command = line.command();
        let differences = Difference::all_of(line, self.of_other_types.contains(line.key()));
        self.is_last_explained = theirs != ours && Difference::explain(&differences, theirs, ours);
        if self.is_last_explained {
            self.explained += 1;
        } else if theirs == ours {
            self.follow(&command, line, ours);
        } else if self.strict || !command.contains('.') {
            return Err("the replies differ".to_owned());
        } else {
            self.alike += 1;
            return compare_shapes(&command, theirs, ours);
        }
        Ok(())
    }

    /// Updates the state after one of the server's own commands.
    fn follow(&mut self, command: &str, line: &Line, reply: &Reply) {
        match command {
            "DEL" => {
                self.of_other_types.remove(line.key());
            }
            "SET" | "RPUSH" if !reply.is_error() => {
                self.of_other_types.insert(line.key().to_vec());
            }
            "RENAME" if !reply.is_error() => {
                let is_of_other_type = self.of_other_types.remove(line.key());
                self.of_other_types.remove(&line.words[2]);
                self.of_other_types.extend(is_of_other_type.then(|| line.words[2].clone()));
            }
            _ => {}
        }
    }

    /// Returns true if the line may have left different filters, or one that must not be used any further.
    pub(crate) fn must_start_over(&self, line: &Line) -> bool {
        let differs = match line.command().as_str() {
            "CF.LOADCHUNK" => self.is_last_explained,
            _ => creates(line) && !Difference::all_of(line, false).is_empty(),
        };
        differs || is_unsafe(line)
    }

    /// Forgets the key, which was deleted on both sides.
    pub(crate) fn forget(&mut self, line: &Line) {
        self.of_other_types.remove(line.key());
    }
}

/// Returns true if the line creates filters of its parameters.
fn creates(line: &Line) -> bool {
    ["BF.RESERVE", "BF.INSERT", "CF.RESERVE", "CF.INSERT", "CF.INSERTNX"].contains(&line.command().as_str())
}

/// Returns true if the line may have left a filter that must not be used any further.
pub(crate) fn is_unsafe(line: &Line) -> bool {
    let is_huge = |word: &Vec<u8>| number(word).is_some_and(|number| number > HUGE);
    let vanishes = error_rate(line) > 0.0 && error_rate(line) < VANISHING;
    let explodes = line.command() == "CF.RESERVE" && expansion(line) > Some(USUAL_EXPANSION);
    creates(line) && (vanishes || explodes || line.arguments().iter().any(is_huge))
}

pub(crate) fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Returns the error rate of the filter that a line creates.
fn error_rate(line: &Line) -> f64 {
    let given = match line.command().as_str() {
        "BF.RESERVE" => line.words.get(2),
        "BF.INSERT" => option(line, b"ERROR"),
        _ => return 0.0,
    };
    // Numbers that Rust cannot parse, such as hexadecimal ones, are not so low that filters vanish.
    given.map_or(0.0, |word| std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(1.0))
}

/// Returns the value of an option of BF.INSERT.
fn option<'a>(line: &'a Line, name: &[u8]) -> Option<&'a Vec<u8>> {
    let options = line.arguments().split(|word| word.eq_ignore_ascii_case(b"ITEMS")).next().unwrap_or(&[]);
    let place = options.iter().position(|word| word.eq_ignore_ascii_case(name));
    place.and_then(|place| options.get(place + 1))
}

/// Returns the expansion of the filter that a CF.RESERVE creates.
fn expansion(line: &Line) -> Option<i64> {
    let mut options = line.arguments().iter().skip_while(|word| !word.eq_ignore_ascii_case(b"EXPANSION"));
    options.nth(1).and_then(|value| number(value))
}

/// Compares replies about a native filter and a classic one. They have the same shape, since both know the same keys,
/// but the items that are present may differ, and so may the figures, and the time when the filter is full.
fn compare_shapes(command: &str, theirs: &Reply, ours: &Reply) -> Result<(), String> {
    let is_full = |reply: &Reply| FULL.map(Reply::error).contains(reply);
    match (theirs, ours) {
        _ if theirs == ours || is_full(theirs) || is_full(ours) => Ok(()),
        (Reply::Error(_), _) | (_, Reply::Error(_)) => Err("the errors differ".to_owned()),
        (Reply::Simple(_), Reply::Simple(_)) => Err("the names differ".to_owned()),
        // The end of RedisBloom's dump has no data.
        (Reply::Array(_), Reply::Array(_)) if command == "CF.SCANDUMP" => Ok(()),
        (Reply::Array(theirs), Reply::Array(ours)) => {
            let ends_full = [theirs, ours].iter().any(|replies| replies.last().is_some_and(is_full));
            // BF.DEBUG has a line for each layer.
            if theirs.len() != ours.len() && !ends_full && command != "BF.DEBUG" {
                return Err("the numbers of replies differ".to_owned());
            }
            theirs.iter().zip(ours).try_for_each(|(theirs, ours)| compare_shapes(command, theirs, ours))
        }
        (Reply::Map(theirs), Reply::Map(ours)) => {
            let names = |pairs: &[(Reply, Reply)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            if names(theirs) != names(ours) {
                return Err("the fields differ".to_owned());
            }
            theirs.iter().zip(ours).try_for_each(|(theirs, ours)| compare_shapes(command, &theirs.1, &ours.1))
        }
        _ if std::mem::discriminant(theirs) == std::mem::discriminant(ours) => Ok(()),
        _ => Err("the types of the replies differ".to_owned()),
    }
}
