//! Forges numbers in the headers and chunks of filters, with checksums that match, and uses what loads.
//!
//! ```text
//!  script   kind, number of edits (u8 each), edits, entries
//!  edit     field, value (u8 each)
//!  entries  table, number (u8 each), or then numbers from which a part is composed
//! ```
//!
//! Whatever loads, and whatever operations make of it, can be saved and loaded again. An operation takes at most 100
//! ms. A filter takes at most ten times the bytes that were loaded, what its header claims, twice what the same
//! additions take in an empty filter with the same parameters, and [`BYTES_PER_ADDITION`]: each may be the first in its
//! segment. The size of a classic filter's next layer is claimed, too, so that one may also take what its additions
//! were admitted to, and those of a filter that it is merged with. Composed segments can be so deep that their table
//! has large directories.
//!
//! The whole module then restores the same file, and runs all commands on it, with the checks of
//! [`commands`](crate::commands).

use std::num::NonZeroU64;

use oxbloom_filter::internals::codec::{self, Encoding, Header, Origin, Sink as _};
use oxbloom_filter::internals::{InsertOptions, Kind, MergeOp};
use oxbloom_filter::{DecodeError, Filter};
use testkit::forgery::content::Forgery;
use testkit::forgery::entries::{ENTRIES, Entries};
use testkit::forgery::kinds::KINDS;
use testkit::forgery::sealed::Sealed;
use testkit::payload::Part;

use crate::commands::{script::script_of, session};
use crate::decoding::copies::{MEMORY_LIMIT, saved, through_a_dump, whole};
use crate::decoding::figures::DIRECTORY_BYTES;
use crate::decoding::file::{CUCKOO_FILES, VALKEY_FILE};
use crate::input::{Reader, Writer, item};
use crate::part::{self, Shape};
use crate::watchdog::timed;

/// A time that is not a multiple of any slice, in milliseconds since 1970.
const NOW: u64 = 1_600_000_000_123;

const WINDOW: u64 = 8000;

/// The number of items in an addition.
const ITEMS: u64 = 40;

const BYTES_PER_ADDITION: u64 = 1024;

/// The commands on a restored filter.
const BLOOM_COMMANDS: &str = "\
RESTORE a $
BF.MEXISTS a *
BF.MCOUNT a *
BF.MERGE b 2 a a
BF.MERGE b 1 a INTERSECT
BF.FOLD b
BF.ADD a new
BF.INSERT a TTL 1 ITEMS * short
BF.INSERT a AT 1600000001000 ITEMS * later
BF.INSERT a AT 1 ITEMS early
BF.MADD a * new other
BF.COUNT a 3
BF.DEL a 5
BF.MDEL a *
BF.INFO a
BF.CARD a
BF.DEBUG a
BF.INFO a FPR
COPY a c
REWRITE
RELOAD
BF.ADD c newer";

const CUCKOO_COMMANDS: &str = "\
RESTORE a $
CF.MEXISTS a *
CF.ADD a new
CF.ADDNX a other
CF.INSERT a ITEMS * new
CF.INSERTNX a ITEMS * newer
CF.COUNT a 3
CF.DEL a 5
CF.COMPACT a
CF.INFO a
CF.DEBUG a
COPY a c
CF.CONVERT c
CF.ADD c new
REWRITE
RELOAD
CF.ADD c newer";

/// Runs a script: see the module's documentation.
pub fn forged(bytes: &[u8]) {
    run(&mut Reader(bytes));
}

/// Returns all scripts with one edit, or with one kind of entries, and their names.
pub fn single_edits() -> Vec<(String, Vec<u8>)> {
    let mut scripts = Vec::new();
    for (number_of_kind, kind) in (0..).zip(KINDS) {
        let forgery = Forgery::of(&kind.filter(item, NOW, WINDOW));
        for (index, field) in (0..).zip(forgery.fields()) {
            for (number, value) in (0..).zip(forgery.values(field)) {
                let name = format!("{}: {:?} {} = {value}", kind.name, field.0, field.1.name);
                scripts.push((name, vec![number_of_kind, 1, index, number]));
            }
        }
        for table in 0..forgery.tables() as u8 {
            for (number, entries) in (0..).zip(ENTRIES) {
                let name = format!("{}: table {table}: {entries:?}", kind.name);
                scripts.push((name, vec![number_of_kind, 0, table, number]));
            }
        }
    }
    scripts
}

fn run(rest: &mut Reader<'_>) -> Option<()> {
    let kind = KINDS[usize::from(rest.u8()?) % KINDS.len()];
    let filter = kind.filter(item, NOW, WINDOW);
    let mut forgery = Forgery::of(&filter);
    let mut case = kind.name.to_owned();
    let original = forgery.clone();
    let fields = original.fields();
    for _ in 0..rest.u8()? & 3 {
        let field = fields[usize::from(rest.u8()?) % fields.len()];
        let values = original.values(field);
        let value = values[usize::from(rest.u8()?) % values.len()];
        case += &format!(", {:?} {} = {value}", field.0, field.1.name);
        forgery.set(field, value);
    }
    let (mut other, mut directories) = (None, 0);
    if let Some((table, number)) = rest.u8().zip(rest.u8())
        && forgery.tables() > 0
    {
        let table = usize::from(table) % forgery.tables();
        match ENTRIES.get(usize::from(number)) {
            Some(&entries) => {
                case += &format!(", table {table}: {entries:?}");
                if let Entries::Run(first, number) = entries {
                    let mut with_others = forgery.clone();
                    with_others.put(table, Entries::Run(first + number, number));
                    other = with_others.sealed(MEMORY_LIMIT).and_then(|sealed| load_stream("other entries", &sealed));
                }
                forgery.put(table, entries);
            }
            None if filter.windowed().is_none() => {
                case += ", composed entries";
                forgery.replace(table, part::composed(rest, &Shape::of(&filter))?);
                directories = DIRECTORY_BYTES as u64;
            }
            None => {}
        }
    }
    let sealed = timed(&format!("{case}: sealing"), || forgery.sealed(MEMORY_LIMIT))?;
    let in_files = [Some(&sealed.values[..]), sealed.short.as_ref().map(std::slice::from_ref)];
    let in_files = in_files.map(|values| {
        let file = file_of(values?);
        use_in_module(&file, sealed.encoding, filter.kind());
        timed(&format!("{case}: loading a file"), || {
            load_saved(&file, filter.kind(), sealed.encoding, MEMORY_LIMIT).ok()
        })
    });
    let in_bytes = timed(&format!("{case}: from_bytes"), || Filter::from_bytes(&sealed.bytes()).ok());
    // A client may go on with a filter after one of its chunks was rejected.
    let mut loaded: Vec<Filter> = load_stream(&case, &sealed).into_iter().collect();
    for filter in in_files.into_iter().flatten().chain(in_bytes) {
        if loaded.iter().all(|other| whole(other) != whole(&filter)) {
            loaded.push(filter);
        }
    }
    for filter in loaded {
        let mut subject = Subject::new(&case, filter, other.as_ref(), &sealed);
        subject.allowed += directories;
        subject.use_in_every_way();
    }
    Some(())
}

fn add(
    filter: &mut Filter,
    numbers: std::ops::Range<u64>,
    now: u64,
    lifetime: Option<NonZeroU64>,
) -> Result<(), usize> {
    let hashes: Vec<_> = numbers.map(|number| filter.hash(&item(number))).collect();
    let (mut new, mut renewed) = (vec![false; hashes.len()], vec![false; hashes.len()]);
    let options = InsertOptions { now, lifetime, ..InsertOptions::default() };
    let mut left = admitted(filter);
    let result = filter.insert_hashes(&hashes, &mut new, &mut renewed, &options, &mut |bytes| {
        let is_little = bytes <= left;
        left -= if is_little { bytes } else { 0 };
        is_little
    });
    result.map_err(|interrupted| interrupted.handled)
}

/// Returns the bytes that additions are admitted to. Those of tables take few.
fn admitted(filter: &Filter) -> u64 {
    if has_layers(filter) { MEMORY_LIMIT } else { 16 * MEMORY_LIMIT }
}

/// Returns true if the filter grows by layers, whose sizes its header claims.
fn has_layers(filter: &Filter) -> bool {
    !filter.kind().is_own()
}

fn file_of(values: &[Part]) -> Vec<u8> {
    let mut file = Writer::default();
    for value in values {
        match value {
            Part::Unsigned(number) => file.unsigned(*number),
            Part::Double(number) => file.double(*number),
            Part::String(bytes) => file.string(bytes),
        }
    }
    file.0
}

/// Runs all commands on the filter of a file, in the whole module.
fn use_in_module(file: &[u8], encoding: u64, kind: Kind) {
    let version = encoding.min(6) as u8;
    let (kind, commands) = match kind {
        Kind::Classic => (version, BLOOM_COMMANDS),
        Kind::Cuckoo => (CUCKOO_FILES + version, CUCKOO_COMMANDS),
        Kind::NativeCuckoo => (CUCKOO_FILES + 7, CUCKOO_COMMANDS),
        Kind::Valkey => (VALKEY_FILE, BLOOM_COMMANDS),
        _ => (7, BLOOM_COMMANDS),
    };
    session::run(&script_of(commands), [&[kind], file].concat());
}

/// Loads a file of a version, unless it claims more than `max_memory` bytes. Only filters of RedisBloom have several
/// versions.
fn load_saved(file: &[u8], kind: Kind, version: u64, max_memory: u64) -> Result<Filter, DecodeError> {
    Encoding::of(kind).read(version, &mut Reader(file), &mut |bytes| bytes <= max_memory)
}

/// Loads a stream, as a client and as a replica. Replicas accept more classic headers.
fn load_stream(case: &str, sealed: &Sealed) -> Option<Filter> {
    let [client, replica] = [Origin::Client, Origin::Replication].map(|origin| {
        let header = Header::decode(&sealed.stream.first()?.1, origin).ok()?;
        let mut filter = header.build().expect("little memory");
        for (cursor, chunk) in &sealed.stream[1..] {
            timed(&format!("{case}: loading a chunk"), || {
                let _ = codec::load_chunk(&mut filter, *cursor, chunk, origin, &mut |_| true);
            });
        }
        Some(filter)
    });
    let is_same = client.as_ref().is_none_or(|client| replica.as_ref().map(whole) == Some(whole(client)));
    assert!(is_same, "{case}: a client and a master load different filters");
    replica
}

/// A filter that was loaded.
struct Subject<'a> {
    case: &'a str,
    filter: Filter,
    /// An empty filter with the same parameters, which gets the same additions.
    fresh: Filter,
    /// A filter to merge with, which was forged with other entries.
    other: Option<&'a Filter>,
    /// The bytes that the loaded data and the additions may take.
    allowed: u64,
}

impl Subject<'_> {
    fn new<'a>(case: &'a str, filter: Filter, other: Option<&'a Filter>, sealed: &Sealed) -> Subject<'a> {
        let fresh = filter.empty_like(&mut |_| true).expect("little memory");
        let in_others = if has_layers(&filter) { admitted(&filter) } else { 0 };
        let allowed = 10 * sealed.size() as u64 + sealed.memory + in_others;
        Subject { case, filter, fresh, other, allowed }
    }

    /// Runs an operation, and then checks the filter.
    fn step(&mut self, name: &str, operation: impl Fn(&mut Filter)) {
        let name = format!("{}: {name}", self.case);
        timed(&name, || operation(&mut self.filter));
        operation(&mut self.fresh);
        self.check(&name, &self.filter, 1);
    }

    /// Panics if the filter, made of this number of others, takes too much memory or cannot be saved and loaded.
    fn check(&self, name: &str, filter: &Filter, times: u64) {
        let max = times * (self.allowed + 2 * self.fresh.memory_usage() as u64);
        let taken = filter.memory_usage() as u64;
        assert!(taken <= max, "{name}: takes {taken} bytes, at most {max} are allowed");
        assert!(filter.len() < 1 << 60, "{name}: {} items", filter.len());
        for now in [0, NOW, u64::MAX] {
            assert!(filter.len_at(now) <= filter.len(), "{name}: more items than at the last change");
            assert!((0.0..=1.0).contains(&filter.false_positive_rate_at(now)), "{name}: its rate");
        }
        assert!((0.0..=1.0).contains(&filter.fill()), "{name}: its fill");
        assert!(filter.layers().map(|layer| layer.items).fold(0u64, u64::saturating_add) < 1 << 60, "{name}: items");
        let saved = timed(&format!("{name}, saving"), || filter.to_bytes().expect("little memory"));
        let copy = timed(&format!("{name}, loading"), || Filter::from_bytes(&saved));
        let copy = copy.unwrap_or_else(|error| panic!("{name}: cannot be loaded from bytes: {error}"));
        assert!(copy.to_bytes().expect("little memory") == saved, "{name}: changed when it was loaded");
        let file = self::saved(filter);
        let version = Encoding::of(filter.kind()).version().into();
        let load = || load_saved(&file, filter.kind(), version, u64::MAX);
        let copy = timed(&format!("{name}, loading a file"), load);
        let copy = copy.unwrap_or_else(|error| panic!("{name}: cannot be loaded from a file: {error}"));
        assert!(copy.to_bytes().expect("little memory") == saved, "{name}: changed when its file was loaded");
    }

    fn use_in_every_way(mut self) {
        self.step("loaded", |_| {});
        self.look_up();
        self.merge();
        let times = self.times();
        let mut first = 0;
        let lifetimes = [None, NonZeroU64::new(WINDOW / 8)];
        for (&now, lifetime) in times.iter().zip(lifetimes.into_iter().cycle()) {
            first += ITEMS / 2;
            self.allowed += if has_layers(&self.filter) { admitted(&self.filter) } else { ITEMS * BYTES_PER_ADDITION };
            self.step(&format!("adding at {now} for {lifetime:?} ms"), |filter| {
                let _ = add(filter, first..first + ITEMS, now, lifetime);
            });
        }
        self.look_up();
        self.merge();
        self.step("compacting", Filter::compact);
        if let Some(converted) = self.filter.converted(&mut |_| true).expect("little memory") {
            self.check(&format!("{}: converted", self.case), &converted, 4);
        }
        self.step("a copy", |filter| *filter = filter.try_clone().expect("little memory"));
        self.step("a dump", |filter| *filter = through_a_dump(filter));
        self.step("removing", |filter| {
            for number in 0..2 * ITEMS {
                let _ = filter.remove(item(number));
            }
        });
        for &now in &times {
            self.step(&format!("advancing to {now}"), |filter| {
                filter.advance_to(std::time::Duration::from_millis(now));
            });
        }
        self.look_up();
    }

    /// Returns times before and after the last change. Other filters have no time.
    fn times(&self) -> Vec<u64> {
        let Some(windowed) = self.filter.windowed() else { return vec![NOW; 2] };
        let latest = windowed.slices().latest();
        let around = [latest.saturating_sub(1), latest, latest.saturating_add(WINDOW / 4)];
        [&[0, NOW], &around[..], &[latest.saturating_add(2 * WINDOW), u64::MAX]].concat()
    }

    fn look_up(&self) {
        for now in self.times() {
            timed(&format!("{}: look-ups at {now}", self.case), || {
                for number in 0..2 * ITEMS {
                    let item = item(number);
                    let hash = self.filter.hash(&item);
                    let mut found = [false];
                    self.filter.contains_hashes(&[hash], &mut found, now);
                    assert_eq!(found[0], self.filter.contains_at(&item, now));
                    let mut counts = [0];
                    let counted = self.filter.count_hashes(&[hash], &mut counts);
                    assert!(counted.is_err() || (counts[0] > 0) == found[0]);
                }
            });
        }
    }

    /// Merges the filter with itself and with another.
    fn merge(&self) {
        if self.filter.kind() == Kind::Windowed {
            return;
        }
        let mut fair = self.filter.empty_like(&mut |_| true).expect("little memory");
        let _ = add(&mut fair, ITEMS..3 * ITEMS, NOW, None);
        let itself = ("itself", [&self.filter, &self.filter]);
        let others = [("a fair one", Some(&fair)), ("others", self.other)];
        let others = others.into_iter().filter_map(|(name, other)| Some((name, [&self.filter, other?])));
        for (name, sources) in std::iter::once(itself).chain(others) {
            for op in [MergeOp::Union, MergeOp::Intersection] {
                let name = format!("{}: {op:?} with {name}", self.case);
                let merged = timed(&name, || Filter::merged(&sources, op, &mut |_| true));
                if let Ok(merged) = merged {
                    self.check(&name, &merged, 3);
                }
            }
        }
    }
}
