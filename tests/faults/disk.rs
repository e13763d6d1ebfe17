//! A full disk: the server reports it, continues to answer, keeps its data, and saves again when there is room.
//!
//! The disk is a small file system in memory that only the server sees. Mounting it requires root or user namespaces,
//! which some containers lack. Every test therefore also uses a second way to make writes fail: a limit on the size of
//! files.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::Command;

use redis::Connection;
use tempfile::TempDir;

use testkit::command::try_many;
use testkit::filter_model::{FilterModel, Observed, various};
use testkit::info::{info, info_number};
use testkit::persistence::{rewrite_aof, wait_for_bgsave};
use testkit::server::{wait_until, with_aof};
use testkit::{Server, Setup, copy_of, error, error_text, run};

/// The reason why writes fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shortage {
    /// The file system has no room.
    Space,
    /// The file would become too large.
    Size,
}

/// The free space of a full disk, or the limited size of a file, in bytes. Every save needs more.
const LEFT: u64 = 64 << 10;

/// The size of the file system.
const ROOM: &str = "64m";

/// Returns the command prefix that runs a program with its own file system in the folder `data`.
fn mounted(unshare: &str) -> Vec<String> {
    let script = format!("mkdir -p data && mount -t tmpfs -o size={ROOM} tmpfs data && exec \"$0\" \"$@\"");
    ["unshare", unshare, "sh", "-c", &script].map(str::to_owned).to_vec()
}

impl Shortage {
    /// Returns the kinds that this system supports, each with its command prefix.
    fn all() -> Vec<(Shortage, Vec<String>)> {
        let size = "mkdir -p data && trap '' XFSZ && exec \"$0\" \"$@\"";
        let mut all = vec![(Shortage::Size, ["sh", "-c", size].map(str::to_owned).to_vec())];
        let works = |prefix: &Vec<String>| {
            let folder = TempDir::new().unwrap();
            let mut command = Command::new(&prefix[0]);
            command.args(&prefix[1..]).arg("true").current_dir(folder.path());
            command.output().is_ok_and(|output| output.status.success())
        };
        let space = ["-m", "-Urm"].map(mounted).into_iter().find(works);
        if space.is_none() {
            // This bypasses macros, since the test harness captures their output.
            let _ = writeln!(std::io::stderr(), "cannot mount a file system here: only testing with limited files");
        }
        all.extend(space.map(|prefix| (Shortage::Space, prefix)));
        all
    }
}

/// A server, and the disk for its files.
struct Disk {
    shortage: Shortage,
    server: Server,
    /// The server's folder. While it is open here, its file system outlives the server.
    data: File,
    /// A file without a name that fills the disk.
    ballast: Option<File>,
}

impl Disk {
    fn start((shortage, prefix): (Shortage, Vec<String>), setup: Setup) -> Disk {
        let server = setup.set("dir data").under(prefix).start();
        let data = File::open(format!("/proc/{}/cwd", server.pid())).unwrap();
        Disk { shortage, server, data, ballast: None }
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.data.as_raw_fd()).into()
    }

    fn fill(&mut self) {
        match self.shortage {
            Shortage::Size => self.limit_files(LEFT),
            Shortage::Space => {
                let path = self.path().join("ballast");
                let mut ballast = File::create_new(&path).unwrap();
                fs::remove_file(path).unwrap();
                while ballast.write(&[0; 64 << 10]).is_ok() {}
                let length = ballast.metadata().unwrap().len();
                ballast.set_len(length - LEFT).unwrap();
                self.ballast = Some(ballast);
            }
        }
    }

    fn clear(&mut self) {
        match self.shortage {
            Shortage::Size => self.limit_files(u64::MAX),
            // Closing the file is not enough, since a process that is just starting may also have it open.
            Shortage::Space => self.ballast.take().unwrap().set_len(0).unwrap(),
        }
    }

    /// Limits the size of files that the server and its future children write.
    fn limit_files(&self, bytes: u64) {
        let pid = self.server.pid() as libc::pid_t;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointers are valid or null, and the process is our child.
        let changed = unsafe {
            libc::prlimit(pid, libc::RLIMIT_FSIZE, std::ptr::null(), &mut limit) == 0 && {
                limit.rlim_cur = limit.rlim_max.min(bytes);
                libc::prlimit(pid, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) == 0
            }
        };
        assert!(changed, "{}", std::io::Error::last_os_error());
    }

    /// Panics unless another server that starts with these files has the content of each model.
    fn check_files(&self, setup: Setup, models: &[FilterModel]) {
        let server = setup.on(copy_of(&self.path())).start();
        let mut client = server.connect();
        models.iter().for_each(|model| drop(model.observe(&mut client)));
    }

    /// Panics unless the server logged that it could not write, with the reason.
    fn check_log(&self) {
        let reason = match self.shortage {
            Shortage::Space => "No space left on device",
            Shortage::Size => "File too large",
        };
        // If part of the data fitted, the server logs a short write without a reason.
        let log = self.server.log();
        assert!([reason, "Short write"].iter().any(|words| log.contains(words)), "{log}");
    }
}

fn add_to_all(models: &mut [FilterModel], client: &mut Connection, first: u64) {
    models.iter_mut().filter(|model| !model.is_fixed()).for_each(|model| {
        model.add(client, first..first + 1000);
    });
}

pub(crate) fn observe_all(models: &[FilterModel], client: &mut Connection) -> Vec<Observed> {
    models.iter().map(|model| model.observe(client)).collect()
}

/// Adds new items in batches of a hundred, until the server rejects a batch.
fn add_until_rejected(model: &mut FilterModel, client: &mut Connection) -> redis::RedisError {
    for first in (200_000..).step_by(100) {
        let numbers: Vec<u64> = (first..first + 100).collect();
        match try_many(client, "BF.MADD", &model.key, &numbers) {
            Ok(_) => model.items.extend(numbers),
            Err(error) => return error,
        }
    }
    unreachable!("no disk is endless")
}

#[test]
fn a_snapshot_on_a_full_disk_leaves_the_last_one_intact() {
    for shortage in Shortage::all() {
        let mut disk = Disk::start(shortage, Setup::oxbloom().set("save 3600 1000000"));
        let mut client = disk.server.connect();
        let mut models = various(&mut client);
        run(&mut client, "SAVE").unwrap();
        let (saved, snapshot) = (models.clone(), fs::read(disk.path().join("dump.rdb")).unwrap());
        add_to_all(&mut models, &mut client, 100_000);
        let expected = observe_all(&models, &mut client);

        disk.fill();
        assert!(error(&mut client, "SAVE").starts_with("ERR"));
        run(&mut client, "BGSAVE").unwrap();
        wait_until("the save has failed", || info_number(&mut client, "persistence", "rdb_bgsave_in_progress") == 0);
        assert_eq!(info(&mut client, "persistence", "rdb_last_bgsave_status"), "err");
        disk.check_log();
        assert!(error(&mut client, "BF.ADD doubled item").starts_with("MISCONF"));
        assert_eq!(observe_all(&models, &mut client), expected);
        assert_eq!(fs::read(disk.path().join("dump.rdb")).unwrap(), snapshot);
        disk.check_files(Setup::oxbloom(), &saved);

        disk.clear();
        run(&mut client, "BGSAVE").unwrap();
        wait_for_bgsave(&mut client);
        disk.check_files(Setup::oxbloom(), &models);
        add_to_all(&mut models, &mut client, 110_000);
        run(&mut client, "SAVE").unwrap();
        disk.check_files(Setup::oxbloom(), &models);
    }
}

#[test]
fn a_rewrite_on_a_full_disk_leaves_the_log_intact() {
    for (shortage, preamble) in
        Shortage::all().into_iter().flat_map(|shortage| [(shortage.clone(), "yes"), (shortage, "no")])
    {
        let mut disk = Disk::start(shortage, with_aof(preamble));
        let mut client = disk.server.connect();
        let mut models = various(&mut client);
        rewrite_aof(&mut client);
        add_to_all(&mut models, &mut client, 100_000);
        let expected = observe_all(&models, &mut client);

        disk.fill();
        run(&mut client, "BGREWRITEAOF").unwrap();
        wait_until("the rewrite has failed", || info(&mut client, "persistence", "aof_last_bgrewrite_status") == "err");
        disk.check_log();
        assert_eq!(observe_all(&models, &mut client), expected);
        disk.check_files(with_aof(preamble), &models);

        disk.clear();
        wait_until("the log is writable", || info(&mut client, "persistence", "aof_last_write_status") == "ok");
        add_to_all(&mut models, &mut client, 110_000);
        disk.check_files(with_aof(preamble), &models);
        rewrite_aof(&mut client);
        add_to_all(&mut models, &mut client, 120_000);
        disk.check_files(with_aof(preamble), &models);
    }
}

#[test]
fn an_addition_is_kept_in_memory_until_the_log_has_room() {
    for shortage in Shortage::all() {
        let mut disk = Disk::start(shortage, with_aof("yes"));
        let mut client = disk.server.connect();
        let mut models = various(&mut client);
        let written = models.clone();
        disk.fill();
        let model = models.iter_mut().find(|model| model.key == "doubled").unwrap();
        let rejected = error_text(&add_until_rejected(model, &mut client));
        assert!(rejected.starts_with("MISCONF"), "{rejected}");
        assert_eq!(info(&mut client, "persistence", "aof_last_write_status"), "err");
        disk.check_log();
        let expected = observe_all(&models, &mut client);
        disk.check_files(with_aof("yes"), &written);

        disk.clear();
        wait_until("the log is written", || info(&mut client, "persistence", "aof_last_write_status") == "ok");
        assert_eq!(observe_all(&models, &mut client), expected);
        disk.check_files(with_aof("yes"), &models);
        add_to_all(&mut models, &mut client, 110_000);
        disk.check_files(with_aof("yes"), &models);
    }
}

#[test]
fn with_appendfsync_always_a_server_exits_rather_than_acknowledge_an_addition_that_it_cannot_log() {
    for shortage in Shortage::all() {
        let mut disk = Disk::start(shortage, with_aof("yes").set("appendfsync always"));
        let mut client = disk.server.connect();
        let mut models = various(&mut client);
        disk.fill();
        let model = models.iter_mut().find(|model| model.key == "doubled").unwrap();
        let lost = add_until_rejected(model, &mut client);
        assert!(lost.is_io_error() || lost.is_connection_dropped(), "{lost}");
        wait_until("the server has exited", || disk.server.log().contains("Can't recover from AOF write error"));
        disk.check_log();
        disk.check_files(with_aof("yes"), &models);
    }
}
