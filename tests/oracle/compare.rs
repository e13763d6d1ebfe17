//! Compares two replies to a line, as far as two filters can agree.

use std::collections::{HashMap, HashSet};

use super::DEFAULT_CAPACITY;
use super::differences::Difference;
use super::lines::Line;
use testkit::wire::Reply;

/// Our filters with an error rate up to this one are assumed to have no false positive in a test. (RedisBloom's
/// smallest filters have some: of their 64 bits, the probes of an item hit only a few.)
const RELIABLE: f64 = 1e-15;

/// RedisBloom halves the error rate with each layer. Below this rate, it may become 0, and then all further additions
/// fail.
const VANISHING: f64 = 1e-200;

/// The usual capacities, expansions and cursors are lower.
const HUGE: i64 = 10_000_000;

/// A cuckoo filter with a higher expansion takes all memory when it has grown twice.
const USUAL_EXPANSION: i64 = 8;

const CUCKOO_FULL: &str = "Filter is full";
const CUCKOO_EXPANDED: &str = "Maximum expansions reached";
const FULL: &str = "ERR non scaling filter is full";

/// The state of the key space, which must be the same on both sides.
#[derive(Default)]
pub(crate) struct Comparison {
    keys: HashMap<Vec<u8>, Content>,
    /// True if the filters of both sides must be the same, bit for bit. Cuckoo filters always are.
    strict: bool,
    /// The number of lines whose replies had an intended difference.
    pub explained: usize,
    /// True if the replies to the last line had one.
    is_last_explained: bool,
}

enum Content {
    Filter(Filter),
    OtherType,
}

#[derive(Default)]
struct Filter {
    /// All items that were added, or were false positives when they were added.
    items: HashSet<Vec<u8>>,
    reliable: bool,
    /// The capacity that the filter was created with.
    capacity: i64,
    /// True if only one side had a false positive. The numbers of items may differ from then on.
    diverged: bool,
}

impl Filter {
    fn created_by(line: &Line) -> Filter {
        Filter { reliable: error_rate(line) <= RELIABLE, capacity: capacity(line), ..Filter::default() }
    }

    /// Compares the replies to the addition of an item.
    fn compare_addition(&mut self, item: &[u8], theirs: &Reply, ours: &Reply) -> Result<(), String> {
        if theirs.is_error() || ours.is_error() {
            let full = [theirs, ours].map(|reply| *reply == Reply::error(FULL));
            // A full filter accepts false positives.
            let seems_present = [theirs, ours].map(|reply| reply.as_bool() == Some(false));
            let one_is_wrong = !self.items.contains(item)
                && ((full[0] && seems_present[1] && !self.reliable) || (full[1] && seems_present[0]));
            self.diverged |= one_is_wrong;
            let allowed = theirs == ours || (self.diverged && (full[0] || full[1]));
            return if allowed { Ok(()) } else { Err("the errors differ".to_owned()) };
        }
        self.compare_item(item, theirs, ours, false)?;
        self.items.insert(item.to_vec());
        Ok(())
    }

    /// Compares the replies about an item. Both must equal `present` if the item was added before.
    fn compare_item(&mut self, item: &[u8], theirs: &Reply, ours: &Reply, present: bool) -> Result<(), String> {
        let both = (theirs.as_bool(), ours.as_bool());
        let (Some(theirs_answer), Some(ours_answer)) = both else {
            return Err("a reply is neither true nor false".to_owned());
        };
        same_type(theirs, ours)?;
        let known = self.items.contains(item);
        if known && (theirs_answer, ours_answer) != (present, present) {
            return Err(format!("'{}' was added", item.escape_ascii()));
        }
        if !known && self.reliable && ours_answer == present {
            return Err(format!("'{}' was not added", item.escape_ascii()));
        }
        self.diverged |= !known && theirs_answer != ours_answer;
        Ok(())
    }
}

impl Comparison {
    pub(crate) fn new(strict: bool) -> Comparison {
        Comparison { strict, ..Comparison::default() }
    }

    /// Compares the replies to a line. Returns an error if they differ in an unintended way.
    pub(crate) fn compare(&mut self, line: &Line, theirs: &Reply, ours: &Reply) -> Result<(), String> {
        let holds_other_type = matches!(self.keys.get(line.key()), Some(Content::OtherType));
        let differences = Difference::all_of(line, holds_other_type);
        self.is_last_explained = theirs != ours && Difference::explain(&differences, theirs, ours);
        if self.is_last_explained {
            self.explained += 1;
            return Ok(());
        }
        if self.strict {
            self.follow(&line.command(), line, ours);
            return if theirs == ours { Ok(()) } else { Err("the replies differ".to_owned()) };
        }
        self.compare_same(line, theirs, ours)
    }

    fn compare_same(&mut self, line: &Line, theirs: &Reply, ours: &Reply) -> Result<(), String> {
        if line.command().starts_with("CF.") {
            return compare_shapes(line, theirs, ours);
        }
        let filter = match self.keys.get_mut(line.key()) {
            Some(Content::Filter(filter)) => Some(filter),
            _ => None,
        };
        let diverged = filter.as_ref().is_some_and(|filter| filter.diverged);
        let arrays = matches!((theirs, ours), (Reply::Array(_), Reply::Array(_)));
        match line.command().as_str() {
            "BF.RESERVE" if theirs == ours && !ours.is_error() => {
                self.keys.insert(line.key().to_vec(), Content::Filter(Filter::created_by(line)));
                Ok(())
            }
            "BF.ADD" if theirs.as_bool().is_some() || ours.as_bool().is_some() => {
                self.filter_or_new(line).compare_addition(&line.words[2], theirs, ours)
            }
            "BF.MADD" | "BF.INSERT" if arrays => {
                let filter = self.filter_or_new(line);
                let items = items(line);
                let replies = theirs.elements().iter().zip(ours.elements());
                for (item, (theirs, ours)) in items.iter().zip(replies) {
                    filter.compare_addition(item, theirs, ours)?;
                }
                let same_length = theirs.elements().len() == ours.elements().len();
                if same_length || filter.diverged { Ok(()) } else { Err("the numbers of replies differ".to_owned()) }
            }
            "BF.EXISTS" if ours.as_bool().is_some() => {
                let mut absent = Filter { reliable: true, ..Filter::default() };
                filter.unwrap_or(&mut absent).compare_item(&line.words[2], theirs, ours, true)
            }
            "BF.MEXISTS" if arrays => {
                if theirs.elements().len() != ours.elements().len() {
                    return Err("the numbers of replies differ".to_owned());
                }
                let mut absent = Filter { reliable: true, ..Filter::default() };
                let filter = filter.unwrap_or(&mut absent);
                let replies = theirs.elements().iter().zip(ours.elements());
                let mut items = line.arguments().iter().zip(replies);
                items.try_for_each(|(item, (theirs, ours))| filter.compare_item(item, theirs, ours, true))
            }
            "BF.CARD" if diverged => same_type(theirs, ours),
            "BF.INFO" if !ours.is_error() => {
                compare_info(line, filter.as_deref().ok_or("no such filter")?, theirs, ours)
            }
            "BF.DEBUG" if arrays => compare_debug(diverged, theirs, ours),
            "BF.SCANDUMP" if arrays => compare_dump(line, theirs, ours),
            _ if theirs != ours => Err("the replies differ".to_owned()),
            command => {
                self.follow(command, line, ours);
                Ok(())
            }
        }
    }

    /// Updates the state after one of the server's own commands.
    fn follow(&mut self, command: &str, line: &Line, reply: &Reply) {
        match command {
            "DEL" => {
                self.keys.remove(line.key());
            }
            "SET" => {
                self.keys.insert(line.key().to_vec(), Content::OtherType);
            }
            "RPUSH" if !reply.is_error() => {
                self.keys.insert(line.key().to_vec(), Content::OtherType);
            }
            "RENAME" if !reply.is_error() => {
                if let Some(content) = self.keys.remove(line.key()) {
                    self.keys.insert(line.words[2].clone(), content);
                }
            }
            _ => {}
        }
    }

    fn filter_or_new(&mut self, line: &Line) -> &mut Filter {
        let new = || Content::Filter(Filter::created_by(line));
        match self.keys.entry(line.key().to_vec()).or_insert_with(new) {
            Content::Filter(filter) => filter,
            Content::OtherType => panic!("{line}: added to a key of another type"),
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
        self.keys.remove(line.key());
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
    // Numbers that Rust cannot parse, such as hexadecimal ones, count as unreliable rates.
    given.map_or(0.0, |word| std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).unwrap_or(1.0))
}

/// Returns the capacity of the filter that a line creates.
fn capacity(line: &Line) -> i64 {
    let given = match line.command().as_str() {
        "BF.RESERVE" => line.words.get(3),
        "BF.INSERT" => option(line, b"CAPACITY"),
        _ => None,
    };
    given.map_or(DEFAULT_CAPACITY, |word| number(word).unwrap_or(0))
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

/// Returns the items that a line adds.
fn items(line: &Line) -> &[Vec<u8>] {
    if line.command() == "BF.MADD" {
        return line.arguments();
    }
    let place = line.arguments().iter().position(|word| word.eq_ignore_ascii_case(b"ITEMS"));
    place.map_or(&[], |place| &line.arguments()[place + 1..])
}

/// Checks that both replies have the same type, whatever their values.
fn same_type(theirs: &Reply, ours: &Reply) -> Result<(), String> {
    let same = std::mem::discriminant(theirs) == std::mem::discriminant(ours);
    if same { Ok(()) } else { Err("the types of the replies differ".to_owned()) }
}

/// Compares replies about a classic cuckoo filter and a native one. They have the same shape, since both know the same
/// keys, but the items that are present may differ, and so may the time when the filter is full.
fn compare_shapes(line: &Line, theirs: &Reply, ours: &Reply) -> Result<(), String> {
    let is_full = |reply: &Reply| [CUCKOO_FULL, CUCKOO_EXPANDED].map(Reply::error).contains(reply);
    if theirs == ours || is_full(theirs) || is_full(ours) {
        return Ok(());
    }
    if theirs.is_error() || ours.is_error() {
        return Err("the errors differ".to_owned());
    }
    same_type(theirs, ours)?;
    match (theirs, ours) {
        (Reply::Array(_), Reply::Array(_)) if line.command() == "CF.SCANDUMP" => Ok(()),
        (Reply::Array(theirs), Reply::Array(ours)) if theirs.len() == ours.len() => {
            theirs.iter().zip(ours).try_for_each(|(theirs, ours)| same_type(theirs, ours))
        }
        (Reply::Map(theirs), Reply::Map(ours)) if theirs.len() == ours.len() => {
            theirs.iter().zip(ours).try_for_each(|(theirs, ours)| {
                same_type(&theirs.1, &ours.1)?;
                if theirs.0 == ours.0 { Ok(()) } else { Err("the fields differ".to_owned()) }
            })
        }
        (Reply::Array(_), _) | (Reply::Map(_), _) => Err("the numbers of replies differ".to_owned()),
        _ => Ok(()),
    }
}

/// Compares all fields, which must be equal as long as the filters have the same number of items. The size may always
/// differ. Once both have grown, ours has two layers and another capacity.
fn compare_info(line: &Line, filter: &Filter, theirs: &Reply, ours: &Reply) -> Result<(), String> {
    same_type(theirs, ours)?;
    let pairs = |reply: &Reply| match reply {
        Reply::Map(pairs) => pairs.clone(),
        single if single.elements().len() == 1 => {
            let label = Reply::Bulk(line.words.get(2).cloned().unwrap_or_default().to_ascii_lowercase());
            vec![(label, single.elements()[0].clone())]
        }
        flat => flat.elements().chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
    };
    let (theirs, ours) = (pairs(theirs), pairs(ours));
    if theirs.len() != ours.len() {
        return Err("the numbers of fields differ".to_owned());
    }
    for ((their_label, their_value), (our_label, our_value)) in theirs.iter().zip(&ours) {
        if their_label != our_label {
            return Err("the fields differ".to_owned());
        }
        same_type(their_value, our_value)?;
        let agree = match our_label.text().to_ascii_lowercase().as_str() {
            _ if filter.diverged => true,
            "size" => true,
            "number of filters" | "filters" => our_value.integer() == their_value.integer().min(2),
            "capacity" if their_value != our_value => {
                let items = filter.items.len() as i64;
                their_value.integer().min(items) > filter.capacity && our_value.integer() >= items
            }
            _ => their_value == our_value,
        };
        if !agree {
            return Err(format!("different {}", our_label.text()));
        }
    }
    Ok(())
}

/// Compares the lines of BF.DEBUG. The first layers have the same items and capacity. Our second layer has the items of
/// all further layers of RedisBloom. The facts in a line have the same names.
fn compare_debug(diverged: bool, theirs: &Reply, ours: &Reply) -> Result<(), String> {
    let (theirs, ours) = (theirs.elements(), ours.elements());
    if diverged {
        return Ok(());
    }
    if theirs.len().min(3) != ours.len() || theirs[0] != ours[0] {
        return Err("the numbers of layers or items differ".to_owned());
    }
    let facts = |line: &Reply| -> Vec<(String, String)> {
        let line = line.text();
        line.split(' ').filter_map(|fact| fact.split_once(':')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    };
    let fact = |line: &Reply, name: &str| -> Option<i64> {
        facts(line).iter().find(|(other, _)| other == name).and_then(|(_, value)| value.parse().ok())
    };
    for (theirs, ours) in theirs.iter().zip(ours).skip(1) {
        let names = facts(theirs).into_iter().zip(facts(ours));
        if let Some((_, (name, _))) = names.into_iter().find(|(theirs, ours)| theirs.0 != ours.0) {
            return Err(format!("the name {name} differs"));
        }
    }
    for name in ["capacity", "size"] {
        if fact(&theirs[1], name) != fact(&ours[1], name) {
            return Err(format!("different {name}"));
        }
    }
    if let Some(further) = ours.get(2) {
        let sizes: Option<i64> = theirs[2..].iter().map(|layer| fact(layer, "size")).sum();
        if fact(further, "size") != sizes || fact(further, "capacity") < sizes {
            return Err("the items in further layers differ".to_owned());
        }
    }
    Ok(())
}

/// Compares replies to BF.SCANDUMP. Only those at the start and at the end of a dump are known in advance.
fn compare_dump(line: &Line, theirs: &Reply, ours: &Reply) -> Result<(), String> {
    let shape = |reply: &Reply| match reply.elements() {
        [Reply::Integer(cursor), Reply::Bulk(data)] => Ok((*cursor, data.is_empty())),
        _ => Err("not a cursor and data".to_owned()),
    };
    let (theirs, ours) = (shape(theirs)?, shape(ours)?);
    let expected = match line.words.get(2).and_then(|cursor| number(cursor)) {
        Some(0) => (1, false),
        Some(1..HUGE) => return Ok(()),
        _ => (0, true),
    };
    if (theirs, ours) == (expected, expected) { Ok(()) } else { Err("the cursors differ".to_owned()) }
}
