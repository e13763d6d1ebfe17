//! Truncated files, and files with flipped bits. The server rejects them with a log line, or their filters are intact.
//!
//! Our filters have checksums. Classic filters have RedisBloom's format, which has none: only the server's checksum of
//! the whole file detects their flipped bits.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use redis::{Connection, Value};
use tempfile::TempDir;

use super::recorded::RecordedAnswers;
use models::random::Random;
use testkit::filter_model::{FilterModel, use_in_every_way};
use testkit::info::LAYOUTS;
use testkit::memory::{EXIT_MESSAGE, limited};
use testkit::payload::strings;
use testkit::persistence::{aof_files, commands_in, rewrite_aof};
use testkit::server::{server_version, with_aof, with_debug};
use testkit::{Setup, ask, copy_of, run};

/// The log lines of servers that reject a file, and of replicas that reject the data of their master.
pub(crate) const REJECTIONS: &[&str] = &[
    "rejected a filter in a file or payload: ",
    "rejected a chunk of the append-only file: ",
    "rejected a payload of the append-only file: ",
    // The damaged header of a classic filter can describe a filter that does not fit in memory.
    EXIT_MESSAGE,
    "Short read",
    "Internal error in RDB reading",
    "Wrong RDB checksum",
    "Wrong signature",
    "Can't handle RDB format version",
    "RDB file contains module data",
    "rror reading the",
    "Unknown RDB",
    "Unknown command",
    "Bad file format reading the append only file",
    "Unexpected end of file reading the append only file",
    "the truncated file is not the last file",
    "Failed trying to load",
    "trying to sync with",
    "Fatal error loading",
];

/// The log line of a server that reports a bug and exits because damage made two keys equal.
const DUPLICATED_KEY: &str = "RDB has duplicated key";

/// Returns true if a server crashed in its own code for reading values. This happens if damage changed the type of a
/// key, since old servers do not validate values of their own types.
fn crashed_in_own_type(log: &str) -> bool {
    log.contains("crashed by signal") && log.contains("(rdbLoadObject") && !log.contains("liboxbloom.so(")
}

pub(crate) fn assert_rejected(log: &str) {
    let allowed: &[&str] = if log.contains(DUPLICATED_KEY) {
        &[BUG_REPORT]
    } else if crashed_in_own_type(log) {
        &[BUG_REPORT, "crashed by signal"]
    } else {
        assert!(REJECTIONS.iter().any(|rejection| log.contains(rejection)), "the log has no rejection:\n{log}");
        &[]
    };
    let others = CRASHES.iter().filter(|crash| !allowed.contains(crash));
    others.for_each(|crash| assert!(!log.contains(crash), "{log}"));
}

pub(crate) fn assert_no_crash(log: &str) {
    CRASHES.iter().for_each(|crash| assert!(!log.contains(crash), "{log}"));
}

const BUG_REPORT: &str = "BUG REPORT";
const CRASHES: [&str; 4] = [BUG_REPORT, "crashed by signal", "ASSERTION FAILED", "internal error in"];

const KINDS: [(&str, &str, u64); 4] = [
    ("empty", "0.01 1000", 0),
    ("fixed", "0.01 300 NONSCALING", 300),
    ("grown", "0.01 100 EXPANSION 2", 600),
    ("roomy", "0.001 10000", 500),
];

/// Creates filters of all layouts, small enough that damage can hit each of their parts. Returns their answers.
pub(crate) fn fill(client: &mut Connection) -> RecordedAnswers {
    let mut models = Vec::new();
    for ((layout, words), (kind, parameters, items)) in LAYOUTS.into_iter().flat_map(|l| KINDS.map(|kind| (l, kind))) {
        let mut model = FilterModel::new(&format!("{layout}-{kind}"));
        assert_eq!(run(client, &format!("BF.RESERVE {} {parameters} {words}", model.key)), Ok(Value::Okay));
        for first in (0..items).step_by(50) {
            model.add(client, first..first + 50);
        }
        models.push(model);
    }
    RecordedAnswers::of(models, client)
}

/// Checks a server that accepted damaged data. With the server's checksum, all filters must be intact. Without it,
/// existing filters with checksums of their own must be intact, and those of other projects must be usable.
pub(crate) fn check_accepted(checksum: &str, recorded: &RecordedAnswers, client: &mut Connection) {
    match checksum {
        "yes" => recorded.check(client),
        _ => check_without_checksum(recorded, client),
    }
}

fn check_without_checksum(recorded: &RecordedAnswers, client: &mut Connection) {
    let exists = |model: &FilterModel, client: &mut Connection| ask::<bool>(client, &format!("EXISTS {}", model.key));
    recorded.check_if(client, |model, client| exists(model, client) && has_checksums(&model.key));
    for model in recorded.models().filter(|model| !has_checksums(&model.key)) {
        if exists(model, client) {
            use_in_every_way(client, &model.key);
        }
    }
}

/// Returns true if the filter of a key has our own encoding, and so checksums.
fn has_checksums(key: &str) -> bool {
    !["classic", "valkey"].iter().any(|layout| key.starts_with(layout))
}

/// A snapshot, and the positions of the values in it.
struct Snapshot {
    bytes: Vec<u8>,
    values: Vec<Range<usize>>,
    /// The positions of headers and chunks of filters with checksums.
    strings: Vec<Range<usize>>,
    recorded: RecordedAnswers,
}

impl Snapshot {
    fn take(checksum: &str) -> Snapshot {
        let setup = Setup::oxbloom().set("rdbcompression no").set(format!("rdbchecksum {checksum}"));
        let server = setup.start();
        let mut client = server.connect();
        let recorded = fill(&mut client);
        run(&mut client, "SAVE").unwrap();
        let bytes = fs::read(server.folder().join("dump.rdb")).unwrap();
        let (mut values, mut all_strings) = (Vec::new(), Vec::new());
        for model in recorded.models() {
            // A payload is a byte for the type, the bytes that the module wrote, and the server's footer of ten bytes.
            let payload: Vec<u8> = ask(&mut client, &format!("DUMP {}", model.key));
            let written = &payload[1..payload.len() - 10];
            let start =
                bytes.windows(written.len()).position(|window| window == written).expect("the filter in the file");
            values.push(start..start + written.len());
            if has_checksums(&model.key) {
                all_strings
                    .extend(strings(&payload).iter().map(|place| start + place.start - 1..start + place.end - 1));
            }
        }
        Snapshot { bytes, values, strings: all_strings, recorded }
    }

    /// Returns a copy with a flipped bit, mostly in a filter, and there mostly in the header.
    fn flipped(&self, random: &mut Random) -> Vec<u8> {
        let value = &self.values[random.below(self.values.len() as u64) as usize];
        let place = match random.below(4) {
            0 => 0..self.bytes.len(),
            1 => value.clone(),
            _ => value.start..value.end.min(value.start + 150),
        };
        self.flipped_in(random, &place)
    }

    fn flipped_in(&self, random: &mut Random, place: &Range<usize>) -> Vec<u8> {
        let mut damaged = self.bytes.clone();
        flip(random, &mut damaged[place.clone()]);
        damaged
    }
}

fn flip(random: &mut Random, bytes: &mut [u8]) {
    let at = random.below(bytes.len() as u64) as usize;
    let bit = random.below(8);
    println!("bit {bit} of byte {at} of {}", bytes.len());
    bytes[at] ^= 1 << bit;
}

/// Returns the setup of a server that starts with a snapshot.
fn on(snapshot: &[u8]) -> Setup {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("dump.rdb"), snapshot).unwrap();
    limited(with_debug(Setup::oxbloom())).on(folder)
}

#[test]
fn a_truncated_snapshot_is_rejected() {
    let mut random = Random::unpredictable();
    for checksum in ["yes", "no"] {
        let Snapshot { bytes, values, .. } = Snapshot::take(checksum);
        on(&bytes).start();
        let (start, end) = (values[0].start as u64, bytes.len() as u64);
        for length in (0..8).map(|_| start + random.below(end - start)).chain([end - 1]) {
            let log = on(&bytes[..length as usize]).must_not_start(&["Short read"]);
            assert_no_crash(&log);
        }
    }
}

#[test]
fn a_snapshot_with_a_flipped_bit_is_rejected_or_its_filters_are_intact() {
    let mut random = Random::unpredictable();
    for checksum in ["yes", "no"] {
        let snapshot = Snapshot::take(checksum);
        snapshot.recorded.check(&mut on(&snapshot.bytes).start().connect());
        let mut rejected = 0;
        for _ in 0..40 {
            match on(&snapshot.flipped(&mut random)).attempt(REJECTIONS) {
                Err(log) => {
                    assert_rejected(&log);
                    rejected += 1;
                }
                Ok(server) => {
                    check_accepted(checksum, &snapshot.recorded, &mut server.connect());
                    assert_no_crash(&server.log());
                }
            }
        }
        println!("{rejected} of 40 were rejected");
        // The filters' own checksums reject this damage, with or without the server's checksum.
        for _ in 0..20 {
            let place = &snapshot.strings[random.below(snapshot.strings.len() as u64) as usize];
            on(&snapshot.flipped_in(&mut random, place)).must_not_start(&["rejected a filter in a file or payload: "]);
        }
        // Damages only the checksum of the file.
        let mut damaged = snapshot.bytes;
        *damaged.last_mut().unwrap() ^= 1;
        if checksum == "yes" {
            on(&damaged).must_not_start(&["Wrong RDB checksum"]);
        }
    }
}

/// The rewritten append-only log of a server, with all data in one file.
struct Log {
    folder: TempDir,
    /// The path of that file in the folder.
    name: PathBuf,
    bytes: Vec<u8>,
    recorded: RecordedAnswers,
}

impl Log {
    fn rewritten() -> Log {
        let server = with_aof("no").start();
        let mut client = server.connect();
        let recorded = fill(&mut client);
        rewrite_aof(&mut client);
        let folder = server.kill();
        let size = |file: &PathBuf| fs::metadata(file).unwrap().len();
        let file = aof_files(folder.path()).into_iter().max_by_key(size).unwrap();
        let name = file.strip_prefix(folder.path()).unwrap().to_owned();
        Log { bytes: fs::read(&file).unwrap(), folder, name, recorded }
    }

    /// Returns a copy of the folder with these bytes in that file.
    fn with(&self, bytes: &[u8]) -> TempDir {
        let folder = copy_of(self.folder.path());
        fs::write(folder.path().join(&self.name), bytes).unwrap();
        folder
    }

    fn cut(&self, length: usize) -> TempDir {
        self.with(&self.bytes[..length])
    }

    /// Returns a copy of the folder with a flipped bit in a range of the file.
    fn flipped_in(&self, random: &mut Random, place: Range<usize>) -> TempDir {
        let mut damaged = self.bytes.clone();
        flip(random, &mut damaged[place]);
        self.with(&damaged)
    }
}

/// Returns the setup of a server that reads a log, and perhaps accepts a truncated one.
fn with_log(truncated: &str) -> Setup {
    limited(with_aof("no")).set(format!("aof-load-truncated {truncated}"))
}

#[test]
fn a_damaged_rewritten_log_is_rejected_or_its_filters_are_intact() {
    let mut random = Random::unpredictable();
    let log = Log::rewritten();
    log.recorded.check(&mut with_log("no").on(log.with(&log.bytes)).start().connect());
    let commands = commands_in(&log.bytes);
    for _ in 0..10 {
        let place = &commands[random.below(commands.len() as u64) as usize].0;
        let length = place.start + 1 + random.below(place.len() as u64 - 1) as usize;
        println!("cut to {length} of {}", log.bytes.len());
        assert_rejected(&with_log("no").on(log.cut(length)).must_not_start(REJECTIONS));
        // Before version 7, the rewritten part and the later commands are one file, and this setting accepts a
        // truncated one.
        if server_version() >= (7, 0) {
            assert_rejected(&with_log("yes").on(log.cut(length)).must_not_start(REJECTIONS));
        }
    }
    // Damages bytes that only the filters' own checksums protect.
    let is_checked = |words: &[Vec<u8>]| words[0] == b"BF.LOADCHUNK" && !words[1].starts_with(b"classic");
    let chunks: Vec<_> = commands.iter().filter(|(_, words)| is_checked(words)).collect();
    for _ in 0..10 {
        let (place, words) = chunks[random.below(chunks.len() as u64) as usize];
        let end = place.end - b"\r\n".len();
        let damaged = log.flipped_in(&mut random, end - words[3].len()..end);
        with_log("no").on(damaged).must_not_start(&["rejected a chunk of the append-only file: "]);
    }
    let mut rejected = 0;
    for _ in 0..60 {
        match with_log("no").on(log.flipped_in(&mut random, 0..log.bytes.len())).attempt(REJECTIONS) {
            Err(log) => {
                assert_rejected(&log);
                rejected += 1;
            }
            Ok(server) => {
                // A flipped bit in a key damages no chunk: the server skips the chunk, and logs this.
                if !server.log().contains("rejected BF.LOADCHUNK ") {
                    check_without_checksum(&log.recorded, &mut server.connect());
                }
                assert_no_crash(&server.log());
            }
        }
    }
    println!("{rejected} of 60 were rejected");
}
