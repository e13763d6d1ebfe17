//! Real servers: started on a free loopback port in a temporary folder, and gone when dropped.

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
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::{Client, Connection, Value};
use tempfile::TempDir;

use crate::command::run;
use crate::modules::oxbloom;

/// How long a server may take to start, to load its data, or to synchronize.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The server under test.
pub fn server_binary() -> String {
    std::env::var("SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned())
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

/// The server's name, and its version, major and minor: `("Redis", (7, 0))`. Valkey's version is its own, above that of the
/// Redis it descends from.
pub fn server_name_and_version() -> (&'static str, (u32, u32)) {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let output = Command::new(server_binary()).arg("--version").output().expect("a server that can be run");
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let (name, version) = text.split_once(" server v=").unwrap_or_else(|| panic!("no version in '{text}'"));
    let mut numbers = version.split(['.', ' ']).map(|number| number.parse().unwrap_or(0));
    (name, (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

/// The server's version alone.
pub fn server_version() -> (u32, u32) {
    server_name_and_version().1
}

/// A server on which DEBUG may be used: from version 7 on it has to be allowed.
pub fn with_debug(setup: Setup) -> Setup {
    if server_version() >= (7, 0) { setup.set("enable-debug-command yes") } else { setup }
}

/// A server with the module under test that keeps an append-only file, rewritten on demand only.
pub fn with_aof(preamble: &str) -> Setup {
    with_debug(Setup::oxbloom())
        .set("appendonly yes")
        .set(format!("aof-use-rdb-preamble {preamble}"))
        .set("auto-aof-rewrite-percentage 0")
}

/// Waits until `condition` holds, and not longer than [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
