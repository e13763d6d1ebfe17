//! Forged numbers in payloads and chunks, with checksums that match. Whatever a server accepts, and whatever its
//! commands make of it, can be saved, rewritten and replicated; no command takes long, and the figures in INFO stay
//! right.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use models::random::Random;
use oxbloom_filter::internals::codec::HEADER_CURSOR;
use redis::{Connection, Value};
use testkit::filter_model::Family;
use testkit::forgery::content::Forgery;
use testkit::forgery::entries::ENTRIES;
use testkit::forgery::kinds::KINDS;
use testkit::forgery::sealed::Sealed;
use testkit::info::{Sums, add_gauges, assert_figures, digest, digest_of, is_foreign, layout_of};
use testkit::memory::limited;
use testkit::payload::Payload;
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, start_replica, wait_for_replica};
use testkit::server::{with_aof, with_debug};
use testkit::{Server, Setup, ask, error_text, run, run_words};

/// The maximum processor time of all commands with a forged filter, and so of each, in milliseconds.
const MAX_MILLISECONDS: u64 = 100;

/// The maximum memory that a header may claim, in bytes.
const MAX_MEMORY: u64 = 256 << 10;

/// The window of filters that forget, in milliseconds: they forget nothing during the test.
const WINDOW: u64 = 24 * 3600 * 1000;

/// The memory that an addition may take, in bytes: it may be the first in its segment.
const BYTES_PER_ADDITION: u64 = 1024;

/// The memory that a classic cuckoo filter may take for copies of items, in bytes, whatever its expansion is: twice the
/// largest layer that is added to an almost empty one.
const SPARSE_LAYERS: u64 = 2 << 24;

/// A master that gets forged filters.
struct Attacked {
    server: Server,
    client: Connection,
    /// The number of filters that were accepted.
    accepted: u64,
    /// The family of the filters that are offered now.
    family: Family,
    /// The sums of their figures.
    sums: Sums,
}

impl Attacked {
    /// Offers a forgery as a payload, and as a header and chunks.
    fn offer(&mut self, case: &str, original: &Payload, sealed: &Sealed) {
        let key = format!("f{}", self.accepted);
        let payload = original.with_parts(sealed.encoding, &sealed.values);
        if self.timed(case, &[b"RESTORE", key.as_bytes(), b"0", &payload]).is_ok() {
            self.use_in_every_way(&format!("{case}, restored"), &key, sealed);
        }
        let key = format!("f{}", self.accepted);
        let mut is_accepted = false;
        for (cursor, chunk) in &sealed.stream {
            let cursor = cursor.to_string();
            let command = self.command("LOADCHUNK");
            is_accepted |= self.timed(case, &[command.as_bytes(), key.as_bytes(), cursor.as_bytes(), chunk]).is_ok();
        }
        if is_accepted {
            self.use_in_every_way(&format!("{case}, loaded"), &key, sealed);
        }
    }

    /// Returns a command of the family.
    fn command(&self, verb: &str) -> String {
        format!("{}.{verb}", self.family.prefix())
    }

    /// Runs a command, which must not take long. It may be rejected.
    fn timed(&mut self, case: &str, words: &[&[u8]]) -> Result<Value, String> {
        let command = String::from_utf8_lossy(words[0]);
        let begin = processor_time(&self.server);
        let reply = run_words(&mut self.client, words).map_err(|error| error_text(&error));
        let taken = processor_time(&self.server) - begin;
        // A conversion adds each fingerprint to a table, and forged fingerprints are in a few of its segments.
        let max = if command == "CF.CONVERT" { 10 * MAX_MILLISECONDS } else { MAX_MILLISECONDS };
        assert!(taken <= max, "{case}: {command} takes {taken} ms");
        if let Err(error) = &reply {
            assert!(!error.contains("internal error"), "{case}: {command}: {error}");
            assert!(!error.contains("the system has no more"), "{case}: {command}: {error}");
            assert!(self.server.is_alive(), "{case}: {command}: {error}\n{}", self.server.log());
        }
        reply
    }

    /// Runs all commands on a filter that was accepted, and copies it.
    fn use_in_every_way(&mut self, case: &str, key: &str, sealed: &Sealed) {
        self.accepted += 1;
        let memory = format!("MEMORY USAGE {key} SAMPLES 0");
        let before: u64 = ask(&mut self.client, &memory);
        let max = 10 * sealed.size() as u64 + sealed.memory + 8192;
        assert!(before <= max, "{case}: takes {before} bytes, at most {max} are allowed");
        let items = (0..40).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let (now, later) = (now(), now() + WINDOW / 2);
        let of_cuckoo = [
            format!("CF.MEXISTS {key} {items}"),
            format!("CF.ADD {key} new"),
            format!("CF.ADDNX {key} other"),
            format!("CF.INSERT {key} ITEMS {items} {items} 101 102 103"),
            format!("CF.INSERTNX {key} ITEMS {items} 104 105 106"),
            format!("CF.COUNT {key} 3"),
            format!("CF.DEL {key} 5"),
            format!("CF.COMPACT {key}"),
            format!("CF.INFO {key}"),
            format!("CF.DEBUG {key}"),
            format!("CF.EXISTS {key} new"),
            format!("COPY {key} {key}-converted"),
            format!("CF.CONVERT {key}-converted"),
            format!("CF.ADD {key}-converted new"),
            format!("DEL {key}-converted"),
        ];
        let of_bloom = [
            format!("BF.MEXISTS {key} {items}"),
            format!("BF.MCOUNT {key} {items}"),
            format!("BF.MERGE {key}-merged 2 {key} {key}"),
            format!("BF.MERGE {key}-merged 1 {key} INTERSECT"),
            format!("DEL {key}-merged"),
            format!("BF.ADD {key} new"),
            format!("BF.INSERT {key} TTL 1 ITEMS {items} short"),
            format!("BF.INSERT {key} AT {now} ITEMS {items} now"),
            format!("BF.INSERT {key} AT {later} ITEMS later"),
            format!("BF.INSERT {key} AT 1 ITEMS early"),
            format!("BF.MADD {key} {items} 101 102 103 104 105 106"),
            format!("BF.COUNT {key} 3"),
            format!("BF.DEL {key} 5"),
            format!("BF.MDEL {key} {items}"),
            format!("BF.INFO {key}"),
            format!("BF.CARD {key}"),
            format!("BF.DEBUG {key}"),
            format!("BF.INFO {key} FPR"),
            format!("BF.EXISTS {key} new"),
        ];
        let lines: &[String] = if self.family == Family::Bloom { &of_bloom } else { &of_cuckoo };
        for words in lines {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let _ = self.timed(case, &words);
        }
        let after: u64 = ask(&mut self.client, &memory);
        let has_layers = layout_of(&mut self.client, key) == "classic_cuckoo";
        let max = max + if has_layers { SPARSE_LAYERS } else { 150 * BYTES_PER_ADDITION };
        assert!(after <= max, "{case}: takes {after} bytes after additions, at most {max} are allowed");
        self.copy(case, key);
        add_gauges(&mut self.client, key, &mut self.sums);
        assert_figures(&mut self.client, &self.sums, case);
    }

    /// Copies a filter as a payload, and as a header and chunks. The copies must be equal. RedisBloom accepts the
    /// headers of its oldest filters from files only, and so do we.
    fn copy(&mut self, case: &str, key: &str) {
        let expected = digest_of(&mut self.client, key);
        let payload: Vec<u8> = ask(&mut self.client, &format!("DUMP {key}"));
        let restored = self.timed(case, &[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]);
        assert_eq!(restored, Ok(Value::Okay), "{case}: its dump");
        assert_eq!(digest_of(&mut self.client, "copy"), expected, "{case}: its dump");
        run(&mut self.client, "DEL copy").unwrap();
        let is_classic = is_foreign(&layout_of(&mut self.client, key));
        let mut cursor = 0u64;
        loop {
            let scan = format!("{} {key} {cursor}", self.command("SCANDUMP"));
            let (next, chunk): (u64, Option<Vec<u8>>) = ask(&mut self.client, &scan);
            let Some(chunk) = chunk.filter(|_| next > 0) else { break };
            cursor = next;
            let command = self.command("LOADCHUNK");
            let loaded = self.timed(case, &[command.as_bytes(), b"copy", cursor.to_string().as_bytes(), &chunk]);
            if cursor == HEADER_CURSOR && loaded.is_err() && is_classic {
                return;
            }
            assert_eq!(loaded, Ok(Value::Okay), "{case}: its chunks");
        }
        assert_eq!(digest_of(&mut self.client, "copy"), expected, "{case}: its chunks");
        run(&mut self.client, "DEL copy").unwrap();
    }
}

/// Returns the processor time of a server, in milliseconds.
fn processor_time(server: &Server) -> u64 {
    let pid = server.pid().try_into().expect("a process number");
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both pointers are valid.
    let status = unsafe { libc::clock_getcpuclockid(pid, &mut clock) | libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "the server has exited:\n{}", server.log());
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as u64
}

/// Returns all forgeries with one edit or with forged entries, and some random ones with two edits.
fn forgeries(original: &Forgery) -> Vec<(String, Forgery)> {
    let mut forgeries = Vec::new();
    let fields = original.fields();
    for &field in &fields {
        for value in original.values(field) {
            let mut forgery = original.clone();
            forgery.set(field, value);
            forgeries.push((format!("{:?} {} = {value}", field.0, field.1.name), forgery));
        }
    }
    for table in 0..original.tables() {
        for entries in ENTRIES {
            let mut forgery = original.clone();
            forgery.put(table, entries);
            forgeries.push((format!("table {table}: {entries:?}"), forgery));
        }
    }
    let random_forgeries = std::env::var("PAYLOADS").map_or(6000, |number| number.parse().expect("a number")) / 40;
    let mut random = Random(0xF0_46ED);
    for _ in 0..random_forgeries {
        let (mut forgery, mut case) = (original.clone(), String::new());
        for _ in 0..2 {
            let field = random.one_of(&fields);
            let value = random.one_of(&original.values(field));
            forgery.set(field, value);
            case += &format!("{:?} {} = {value}; ", field.0, field.1.name);
        }
        forgeries.push((case, forgery));
    }
    forgeries
}

#[test]
fn forged_numbers_are_rejected_or_harmless() {
    let with_small_aof = || limited(with_aof("no")).set("rdbcompression no");
    let replica_setup = with_debug(Setup::oxbloom()).set("rdbcompression no");
    let Pair { master: server, replica } = Pair::start(with_small_aof(), replica_setup);
    let client = server.connect();
    // A command that does not end has then taken too long.
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a valid time");
    let mut attacked = Attacked { server, client, accepted: 0, family: Family::Bloom, sums: Sums::default() };
    for kind in KINDS {
        let filter = kind.filter(|number| number.to_string().into_bytes(), now(), WINDOW);
        let forged = Forgery::of(&filter);
        let is_classic = ["classic", "cuckoo"].iter().any(|name| kind.name.starts_with(name));
        let layout = match kind.name.split(',').next() {
            Some("valkey") => "valkey",
            _ if is_classic && !kind.name.contains("converted") => "classic",
            _ => "native",
        };
        let is_cuckoo = kind.name.contains("cuckoo");
        let (family, capacity) = if is_cuckoo { (Family::Cuckoo, "100") } else { (Family::Bloom, "0.01 100") };
        attacked.family = family;
        let reserve = format!("{} original {capacity} LAYOUT {layout}", attacked.command("RESERVE"));
        run(&mut attacked.client, &reserve).unwrap();
        let original = Payload::parse(&ask::<Vec<u8>>(&mut attacked.client, "DUMP original"));
        run(&mut attacked.client, "DEL original").unwrap();
        let before = attacked.accepted;
        for (case, forgery) in forgeries(&forged) {
            if let Some(sealed) = forgery.sealed(MAX_MEMORY) {
                attacked.offer(&format!("{}: {case}", kind.name), &original, &sealed);
            }
        }
        assert!(attacked.accepted > before + 20, "{}: too few are accepted", kind.name);
    }
    println!("{} forged filters were accepted", attacked.accepted);

    let Attacked { server, mut client, sums, .. } = attacked;
    let expected = digest(&mut client);
    let check = |client: &mut Connection, case: &str| {
        assert_eq!(digest(client), expected, "{case}");
        assert_figures(client, &sums, case);
    };
    let mut follower = replica.connect();
    wait_for_replica(&mut client, &mut follower);
    check(&mut follower, "the replica that got all commands");
    drop(replica);
    let replica = start_replica(&server, with_debug(Setup::oxbloom()));
    check(&mut replica.connect(), "the replica that got a snapshot");
    run(&mut client, "DEBUG RELOAD").unwrap();
    check(&mut client, "DEBUG RELOAD");
    // First the commands themselves, then the rewritten file.
    let server = with_small_aof().on(server.shut_down().0).start();
    check(&mut server.connect(), "the append-only file");
    rewrite_aof(&mut server.connect());
    let server = with_small_aof().on(server.shut_down().0).start();
    check(&mut server.connect(), "the rewritten append-only file");
    run(&mut server.connect(), "FLUSHALL").unwrap();
    assert_figures(&mut server.connect(), &Sums::default(), "without filters");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
