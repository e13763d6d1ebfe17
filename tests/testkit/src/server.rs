//! Real servers: started on a free loopback port in a temporary folder, and killed when dropped.

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

/// The maximum time for a server to start, load its data, or synchronize.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Returns the path of the server under test.
pub fn server_binary() -> String {
    std::env::var("SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned())
}

/// The parameters with which a server is started.
pub struct Setup {
    module: Option<PathBuf>,
    module_arguments: String,
    binary: String,
    settings: Vec<String>,
    folder: Option<TempDir>,
    limit_address_space: Option<u64>,
    prefix: Vec<String>,
    options: Vec<String>,
}

impl Setup {
    /// Returns the parameters of a server with the module under test.
    pub fn oxbloom() -> Setup {
        Setup::with_module(oxbloom())
    }

    /// Returns the parameters of a server with another module.
    pub fn with_module(module: PathBuf) -> Setup {
        Setup { module: Some(module), ..Setup::without_module() }
    }

    /// Returns the parameters of a server without a module.
    pub fn without_module() -> Setup {
        Setup {
            module: None,
            module_arguments: String::new(),
            binary: server_binary(),
            settings: Vec::new(),
            folder: None,
            limit_address_space: None,
            prefix: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Adds a line to the configuration file.
    pub fn set(mut self, line: impl Into<String>) -> Setup {
        self.settings.push(line.into());
        self
    }

    /// Adds an append-only file, which is rewritten only on demand.
    pub fn keeping_aof(self, preamble: &str) -> Setup {
        let setup = self.set("appendonly yes").set("auto-aof-rewrite-percentage 0");
        setup.set(format!("aof-use-rdb-preamble {preamble}"))
    }

    /// Sets the arguments of `loadmodule`.
    pub fn module_arguments(mut self, arguments: &str) -> Setup {
        self.module_arguments = arguments.to_owned();
        self
    }

    /// Starts another server than the one under test.
    pub fn server(mut self, binary: &Path) -> Setup {
        self.binary = binary.display().to_string();
        self
    }

    /// Makes the server start with the files of another one.
    pub fn on(mut self, folder: TempDir) -> Setup {
        self.folder = Some(folder);
        self
    }

    /// Limits the address space of the process to `bytes` bytes.
    pub fn limit_address_space(mut self, bytes: u64) -> Setup {
        self.limit_address_space = Some(bytes);
        self
    }

    /// Runs the server under another program, given with its arguments.
    pub fn under(mut self, prefix: Vec<String>) -> Setup {
        self.prefix = prefix;
        self
    }

    /// Adds an option to the server's command line.
    pub fn option(mut self, option: &str) -> Setup {
        self.options.push(option.to_owned());
        self
    }

    /// Starts the server, and waits until it is ready.
    pub fn start(self) -> Server {
        self.try_start().unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts the server. Returns its log if it does not become ready.
    pub fn try_start(self) -> Result<Server, String> {
        self.attempt(&[])
    }

    /// Starts the server, which must fail to start and log one of `reasons`. Returns the log.
    pub fn must_not_start(self, reasons: &[&str]) -> String {
        let log = self.attempt(reasons).err().expect("a server that does not start");
        assert!(reasons.iter().any(|reason| log.contains(reason)), "failed for none of {reasons:?}:\n{log}");
        log
    }

    /// Starts the server. Returns its log if it does not become ready, or logs one of `reasons`.
    ///
    /// Some servers never finish examining a damaged file, so this does not wait until they exit.
    pub fn attempt(mut self, reasons: &[&str]) -> Result<Server, String> {
        let mut folder = self.folder.take().unwrap_or_else(|| TempDir::new().expect("a temporary folder"));
        // Another process may take the port before the server starts. The loop then tries another port.
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
        // With `everysec`, a write to the append-only file may wait for a running fsync, but tests read the file at
        // once.
        let mut lines = format!("bind 127.0.0.1\nport {port}\nsave \"\"\nappendfsync no\n");
        // An absolute path, since `dir` may put the data into another folder.
        let _ = writeln!(lines, "logfile {}", folder.path().join("log").display());
        if let Some(module) = &self.module {
            let _ = writeln!(lines, "loadmodule {} {}", module.display(), self.module_arguments);
        }
        let _ = writeln!(lines, "{}", self.settings.join("\n"));
        fs::write(folder.path().join("server.conf"), lines).expect("a configuration file");
        let _ = fs::remove_file(folder.path().join("log"));
    }

    fn spawn(&self, folder: &TempDir) -> Child {
        let mut words = self.prefix.iter().chain([&self.binary]);
        let mut command = Command::new(words.next().expect("at least the server"));
        command.args(words).arg("server.conf").args(&self.options).current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // A limit does not apply to free memory that glibc's allocator already holds. With these settings, it holds
        // little: all threads share one arena, and large allocations are returned to the system at once.
        command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "131072");
        if let Some(bytes) = self.limit_address_space {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: between fork and exec, `setrlimit` is safe to call, and touches no memory of ours.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        }
        command.spawn().unwrap_or_else(|error| panic!("{} cannot be run: {error}", self.binary))
    }
}

/// Returns a free port. It is below the ports that the system gives to outgoing connections.
fn free_port() -> u16 {
    const PORTS: Range<u64> = 20_000..32_000;
    loop {
        let port = (PORTS.start + RandomState::new().hash_one(()) % (PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns true if the server at the port has this process ID and replies at once. A server that is not ready may
/// accept connections, and another server may have the port.
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
        let mut failed: Option<Instant> = None;
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().expect("our own child") {
                return Err(format!("the server exited: {status}"));
            }
            if answers(self.process.id(), self.port) {
                return Ok(());
            }
            if failed.is_some_and(|failed| failed.elapsed() > GRACE) {
                return Err("the server did not start".to_owned());
            }
            if failed.is_none() && !reasons.is_empty() {
                let log = self.log();
                failed = reasons.iter().any(|reason| log.contains(reason)).then(Instant::now);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("the server did not become ready".to_owned())
    }

    /// Returns a connection that uses RESP2.
    pub fn connect(&self) -> Connection {
        let client = Client::open(format!("redis://127.0.0.1:{}/", self.port)).expect("a valid address");
        client.get_connection().unwrap_or_else(|error| panic!("{error}:\n{}", self.log()))
    }

    /// Returns the log. Bytes that are not UTF-8 are replaced.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder().join("log")).unwrap_or_default()).into_owned()
    }

    /// Returns the folder of the server's files.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("taken only when the server is consumed").path()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server as `kill -9` does, and returns its files.
    pub fn kill(mut self) -> TempDir {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.folder.take().expect("taken only here")
    }

    /// Returns true if the process still runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().expect("our own child").is_none()
    }

    /// Shuts the server down as an operator does, without a snapshot. Returns its files and its exit status.
    pub fn shut_down(mut self) -> (TempDir, ExitStatus) {
        // SHUTDOWN has no reply: the connection ends.
        let _ = run(&mut self.connect(), "SHUTDOWN NOSAVE");
        let status = self.process.wait().expect("our own child");
        (self.folder.take().expect("taken only when the server is consumed"), status)
    }

    /// Returns true if the server still replies.
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

/// Copies a server's files, so that another server can start with them.
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

/// Returns the server's name, and its major and minor version: `("Redis", (7, 0))`. For Valkey, this is its own
/// version, not that of the Redis that it is compatible with.
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

/// Returns the server's version.
pub fn server_version() -> (u32, u32) {
    server_name_and_version().1
}

/// Allows the DEBUG command on a server, which rejects it by default from version 7 on.
pub fn with_debug(setup: Setup) -> Setup {
    if server_version() >= (7, 0) { setup.set("enable-debug-command yes") } else { setup }
}

/// Returns the parameters of a server with the module under test and an append-only file, which is rewritten only on
/// demand.
pub fn with_aof(preamble: &str) -> Setup {
    with_debug(Setup::oxbloom()).keeping_aof(preamble)
}

/// Waits until `condition` holds, at most for [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out while waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
