//! Real servers for the tests: started on a free loopback port in a temporary folder, and gone when dropped.
//!
//! `SERVER_BIN` names the server under test (default: `redis-server`), `OXBLOOM_MODULE` the module (default: the release
//! build), `REDISBLOOM_MODULE` the incumbent (default: where `make setup` puts it). What is missing is a failure.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod bag;
pub mod memory;
pub mod model;
pub mod payload;
pub mod proxy;
pub mod space;
pub mod wire;

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::fs;
use std::hash::BuildHasher as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue, RedisResult, Value};
use tempfile::TempDir;

/// How long a server may take to start, to load its data, or to synchronize.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The server under test.
pub fn server_binary() -> String {
    std::env::var("SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned())
}

/// The module under test.
pub fn oxbloom() -> PathBuf {
    module("OXBLOOM_MODULE", "target/release/liboxbloom.so", "make build")
}

/// RedisBloom 2.8.2.
pub fn redisbloom() -> PathBuf {
    module("REDISBLOOM_MODULE", "target/incumbent/redisbloom.so", "make setup")
}

/// The module under test, built with a command that panics.
pub fn oxbloom_with_faults() -> PathBuf {
    module("OXBLOOM_FAULTY_MODULE", "target/debug/liboxbloom.so", "cargo build --features fault-injection")
}

/// A module built from here, unless `variable` has the path of another.
pub fn module(variable: &str, default: &str, remedy: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| repository().join(default), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `{remedy}`, or set {variable}", path.display());
    path
}

/// Where the workspace is.
pub fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).expect("a workspace")
}

/// How to start a server.
pub struct Setup {
    module: Option<PathBuf>,
    module_arguments: String,
    settings: Vec<String>,
    folder: Option<TempDir>,
    limit_address_space: Option<u64>,
    prefix: Vec<String>,
}

impl Setup {
    /// A server with the module under test.
    pub fn oxbloom() -> Setup {
        Setup::with_module(oxbloom())
    }

    /// A server with another module.
    pub fn with_module(module: PathBuf) -> Setup {
        Setup { module: Some(module), ..Setup::without_module() }
    }

    /// A server with no module at all.
    pub fn without_module() -> Setup {
        Setup {
            module: None,
            module_arguments: String::new(),
            settings: Vec::new(),
            folder: None,
            limit_address_space: None,
            prefix: Vec::new(),
        }
    }

    /// A line of the configuration file.
    pub fn set(mut self, line: impl Into<String>) -> Setup {
        self.settings.push(line.into());
        self
    }

    /// Arguments of `loadmodule`.
    pub fn module_arguments(mut self, arguments: &str) -> Setup {
        self.module_arguments = arguments.to_owned();
        self
    }

    /// Starts where another server stopped, on its files.
    pub fn on(mut self, folder: TempDir) -> Setup {
        self.folder = Some(folder);
        self
    }

    /// The most address space, in bytes, that the process may have.
    pub fn limit_address_space(mut self, bytes: u64) -> Setup {
        self.limit_address_space = Some(bytes);
        self
    }

    /// Another program, with its arguments, that is to run the server.
    pub fn under(mut self, prefix: Vec<String>) -> Setup {
        self.prefix = prefix;
        self
    }

    /// Starts the server and waits until it serves.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server; its log if it does not come to serve.
    pub fn try_start(self) -> Result<Server, String> {
        self.attempt(&[])
    }

    /// Starts the server, which must refuse to, and log one of `reasons`; the log.
    pub fn refused(self, reasons: &[&str]) -> String {
        let log = self.attempt(reasons).err().expect("a server that does not start");
        assert!(reasons.iter().any(|reason| log.contains(reason)), "refused for none of {reasons:?}:\n{log}");
        log
    }

    /// Starts the server; its log if it does not come to serve, or gives one of `reasons` not to.
    ///
    /// Some servers go on to examine a damaged file for ever, so that the reason is enough, and an end is not waited for.
    pub fn attempt(mut self, reasons: &[&str]) -> Result<Server, String> {
        let mut folder = self.folder.take().unwrap_or_else(|| TempDir::new().expect("a temporary folder"));
        // Another process may take the port between our look and the server's start: then try the next one.
        for _ in 0..10 {
            let port = free_port();
            self.write_configuration(&folder, port);
            let mut server = Server { process: self.spawn(&folder), port, folder: Some(folder) };
            match server.wait_until_ready(reasons) {
                Ok(()) => return Ok(server),
                Err(reason) => {
                    let log = server.log();
                    if !log.contains("Address already in use") {
                        return Err(format!("{reason}\n{log}"));
                    }
                }
            }
            folder = server.kill();
        }
        Err("no free port".to_owned())
    }

    fn write_configuration(&self, folder: &TempDir, port: u16) {
        // With `everysec` a write to the append-only file may wait for a synchronization that is under way; tests read the
        // file at once.
        let mut lines = format!("bind 127.0.0.1\nport {port}\nsave \"\"\nappendfsync no\nlogfile log\n");
        if let Some(module) = &self.module {
            let _ = writeln!(lines, "loadmodule {} {}", module.display(), self.module_arguments);
        }
        let _ = writeln!(lines, "{}", self.settings.join("\n"));
        fs::write(folder.path().join("server.conf"), lines).expect("a configuration file");
        let _ = fs::remove_file(folder.path().join("log"));
    }

    fn spawn(&self, folder: &TempDir) -> Child {
        let mut words = self.prefix.iter().cloned().chain([server_binary()]);
        let mut command = Command::new(words.next().expect("at least the server"));
        command.args(words).arg("server.conf").current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // What glibc's allocator has at hand, no limit refuses. So that tests of limits know how much that is, threads share it,
        // and what is large goes back to the system at once.
        command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "131072");
        if let Some(bytes) = self.limit_address_space {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: between fork and exec, `setrlimit` is safe to call and touches nothing of ours.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        }
        command.spawn().unwrap_or_else(|error| panic!("{} cannot be run: {error}", server_binary()))
    }
}

/// A port that is free. It is below those that the system gives to connections: nobody takes it by chance.
fn free_port() -> u16 {
    const PORTS: Range<u64> = 20_000..32_000;
    loop {
        let port = (PORTS.start + RandomState::new().hash_one(()) % (PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Whether this process is a server that answers at once. One that does not may still accept connections, and at its port
/// there may be another.
fn answers(process: u32, port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
        stream.write_all(b"INFO server\r\nPING\r\n")?;
        let mut lines = BufReader::new(stream).lines();
        let own = format!("process_id:{process}");
        let is_own = lines.by_ref().map_while(Result::ok).any(|line| line == own);
        Ok(is_own && lines.map_while(Result::ok).any(|line| line == "+PONG"))
    };
    ask().unwrap_or(false)
}

/// A running server.
pub struct Server {
    process: Child,
    pub port: u16,
    folder: Option<TempDir>,
}

impl Server {
    fn wait_until_ready(&mut self, reasons: &[&str]) -> Result<(), String> {
        const GRACE: Duration = Duration::from_millis(200);
        let started = Instant::now();
        let mut refused: Option<Instant> = None;
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().expect("our own child") {
                return Err(format!("the server ended: {status}"));
            }
            if answers(self.process.id(), self.port) {
                return Ok(());
            }
            if refused.is_some_and(|refused| refused.elapsed() > GRACE) {
                return Err("the server refused to start".to_owned());
            }
            if refused.is_none() && !reasons.is_empty() {
                let log = self.log();
                refused = reasons.iter().any(|reason| log.contains(reason)).then(Instant::now);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the server did not come to serve".to_owned())
    }

    /// A connection that speaks RESP2.
    pub fn connect(&self) -> Connection {
        self.connect_with("")
    }

    /// A connection that speaks RESP3.
    pub fn connect_resp3(&self) -> Connection {
        self.connect_with("?protocol=resp3")
    }

    fn connect_with(&self, options: &str) -> Connection {
        let client = Client::open(format!("redis://127.0.0.1:{}/{options}", self.port)).expect("a valid address");
        client.get_connection().unwrap_or_else(|error| panic!("{error}:\n{}", self.log()))
    }

    /// The log, into which servers write what they are sent as it is.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder().join("log")).unwrap_or_default()).into_owned()
    }

    /// Where the server keeps its files.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("taken only when the server is consumed").path()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server as `kill -9` does, and leaves its files.
    pub fn kill(mut self) -> TempDir {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.folder.take().expect("taken only here")
    }

    /// Whether the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("our own child").is_none()
    }

    /// Shuts the server down as an operator does, without a snapshot; its files, and how it ended.
    pub fn shut_down(mut self) -> (TempDir, ExitStatus) {
        // There is no reply: the connection ends.
        let _ = run(&mut self.connect(), "SHUTDOWN NOSAVE");
        let status = self.process.wait().expect("our own child");
        (self.folder.take().expect("taken only when the server is consumed"), status)
    }

    /// Whether the server still answers.
    pub fn is_alive(&self) -> bool {
        run(&mut self.connect(), "PING") == Ok(Value::SimpleString("PONG".to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server's files, for another server to start on.
pub fn copy_of(folder: &Path) -> TempDir {
    let copy = TempDir::new().expect("a temporary folder");
    copy_all(folder, copy.path());
    copy
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a folder that can be read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a file or folder").is_dir() {
            fs::create_dir(&target).expect("a new folder");
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file that can be copied");
        }
    }
}

/// Runs a command given as words, and returns the server's own reply.
pub fn run(connection: &mut Connection, words: &str) -> RedisResult<Value> {
    run_words(connection, &words.split_ascii_whitespace().collect::<Vec<_>>())
}

/// As [`run`], with words that may be any bytes.
pub fn run_words<W: AsRef<[u8]>>(connection: &mut Connection, words: &[W]) -> RedisResult<Value> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word.as_ref());
    });
    command.query(connection)
}

/// Runs a command that must succeed, and reads its reply as `T`.
pub fn ask<T: FromRedisValue>(connection: &mut Connection, words: &str) -> T {
    let value = run(connection, words).unwrap_or_else(|error| panic!("{words}: {error}"));
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Runs a command that must fail, and returns the error as the server worded it.
pub fn error(connection: &mut Connection, words: &str) -> String {
    match run(connection, words) {
        Ok(value) => panic!("{words} should have failed, but returned {value:?}"),
        Err(error) => error_text(&error),
    }
}

/// The words of a server's error.
pub fn error_text(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => error.to_string(),
    }
}
