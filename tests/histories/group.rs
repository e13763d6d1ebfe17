//! A group of servers: a master and its replicas. They reach each other through links that can be cut, one for each
//! pair, and each server has a clock of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use redis::Value;
use tempfile::TempDir;

use models::history::Action;
use models::random::Random;
use testkit::clock::{set_offset, with_false_clock};
use testkit::proxy::{Direction, Proxy};
use testkit::replication::start_replica;
use testkit::server::{wait_until, with_debug};
use testkit::{Server, Setup};

use crate::connection::Client;
use crate::kinds::KINDS;
use crate::record::{Record, Time};
use crate::sentinels::Sentinels;
use models::kinds::Kind;

/// The number of kinds of filters in a history, so that each filter gets many commands.
const USED_KINDS: usize = 4;

pub(crate) struct Group {
    pub(crate) record: Record,
    /// The link of each server to each other one. Sentinels know a single address of each server: that of its link to
    /// itself, which then serves all others.
    links: Vec<Vec<Proxy>>,
    members: Vec<Member>,
    master: AtomicUsize,
    /// The IDs of the data of all masters that the test itself chose, in order.
    pub(crate) ids: Mutex<Vec<String>>,
    pub(crate) sentinels: Option<Sentinels>,
    /// The kinds of filters that the clients use.
    pub(crate) kinds: Vec<&'static Kind>,
    settings: Vec<String>,
    clocks: TempDir,
    surprises: Mutex<Vec<String>>,
}

struct Member {
    server: Mutex<Option<Server>>,
    port: AtomicU16,
    starts: AtomicUsize,
    folder: PathBuf,
}

/// The files of a server that was killed.
pub(crate) struct Killed {
    folder: TempDir,
    /// The time since which the server may have lost everything.
    lost_since: Option<Time>,
}

/// The bytes that are lost between a server and all others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    All,
    FromServer,
    ToServer,
    /// None, but the link is slow.
    Slow,
}

impl Group {
    /// Starts a master with its replicas, and Sentinels if they are to choose the master.
    pub(crate) fn start(random: &mut Random, has_sentinels: bool) -> Group {
        let size = if random.chance(30) && !has_sentinels { 5 } else { 3 };
        let settings = vec![
            "appendonly yes".to_owned(),
            "repl-diskless-sync-delay 0".to_owned(),
            "repl-ping-replica-period 1".to_owned(),
            "repl-timeout 3".to_owned(),
            format!("aof-use-rdb-preamble {}", random.one_of(&["yes", "no"])),
            format!("repl-diskless-sync {}", random.one_of(&["yes", "no"])),
            format!("repl-diskless-load {}", random.one_of(&["disabled", "on-empty-db", "swapdb"])),
            format!("repl-backlog-size {}", random.one_of(&["16kb", "64kb", "1mb"])),
        ];
        let first = random.below(KINDS.len() as u64) as usize;
        let step = random.one_of(&[1, 5, 7]);
        let kinds = (0..USED_KINDS).map(|index| &KINDS[(first + index * step) % KINDS.len()]).collect();
        let clocks = TempDir::new().expect("a temporary folder");
        let record = Record::new(size);
        (0..size).for_each(|server| set_offset(&clock_file(clocks.path(), server), 0));
        let setup = |server| setup(&settings, clocks.path(), server);
        let master = setup(0).start();
        let mut servers = vec![master];
        for server in 1..size {
            servers.push(start_replica(&servers[0], setup(server)));
        }
        let links = (0..size).map(|_| servers.iter().map(Proxy::to).collect()).collect();
        let members = servers.into_iter().map(|server| Member {
            port: AtomicU16::new(server.port),
            starts: AtomicUsize::new(0),
            folder: server.folder().to_owned(),
            server: Mutex::new(Some(server)),
        });
        let mut group = Group {
            record,
            links,
            members: members.collect(),
            master: AtomicUsize::new(0),
            ids: Mutex::new(Vec::new()),
            sentinels: None,
            kinds,
            settings,
            clocks,
            surprises: Mutex::new(Vec::new()),
        };
        group.record.say(&format!("{size} servers: {}; {:?}", group.settings.join(", "), group.kinds));
        if has_sentinels {
            (0..size).for_each(|server| group.announce(server));
            group.sentinels = Some(Sentinels::start(group.link(0, 0).port));
        }
        wait_until("all follow", || group.follow_master());
        group
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns the master, or the latest one that is known.
    pub(crate) fn master(&self) -> usize {
        self.master.load(Ordering::SeqCst)
    }

    pub(crate) fn set_master(&self, server: usize) {
        self.master.store(server, Ordering::SeqCst);
    }

    pub(crate) fn port(&self, server: usize) -> u16 {
        self.members[server].port.load(Ordering::SeqCst)
    }

    /// Returns the number of times that a server was restarted, and its log.
    pub(crate) fn log(&self, server: usize) -> (usize, String) {
        let member = &self.members[server];
        let log = fs::read(member.folder.join("log")).unwrap_or_default();
        (member.starts.load(Ordering::SeqCst), String::from_utf8_lossy(&log).into_owned())
    }

    fn link(&self, from: usize, to: usize) -> &Proxy {
        &self.links[from][to]
    }

    /// Returns the links through which others reach a server as their master, and those through which it reaches
    /// others. With Sentinels, these cannot be told from the links of its replicas.
    fn links_of(&self, server: usize) -> (Vec<&Proxy>, Vec<&Proxy>) {
        if self.sentinels.is_some() {
            return (vec![self.link(server, server)], Vec::new());
        }
        let others = || (0..self.size()).filter(move |&other| other != server);
        (
            others().map(|other| self.link(other, server)).collect(),
            others().map(|other| self.link(server, other)).collect(),
        )
    }

    /// Loses bytes between a server and all others.
    pub(crate) fn lose(&self, server: usize, loss: Loss) {
        let (to_it, from_it) = self.links_of(server);
        let (sent, received) = match loss {
            Loss::All => return to_it.iter().chain(&from_it).for_each(|link| link.cut()),
            Loss::Slow => return to_it.iter().chain(&from_it).for_each(|link| link.slow_after(0)),
            Loss::FromServer => (Direction::ToReplica, Direction::ToMaster),
            Loss::ToServer => (Direction::ToMaster, Direction::ToReplica),
        };
        to_it.iter().for_each(|link| link.hold(sent));
        from_it.iter().for_each(|link| link.hold(received));
    }

    pub(crate) fn mend_links(&self) {
        self.links.iter().flatten().for_each(Proxy::mend);
    }

    /// Makes all servers that reply replicas of the master. Returns true if all do.
    pub(crate) fn follow_master(&self) -> bool {
        let master = self.master();
        let mut all_follow = true;
        for server in (0..self.size()).filter(|&server| server != master) {
            let from = if self.sentinels.is_some() { master } else { server };
            let port = self.link(from, master).port;
            all_follow &= Client::new(self, server).ask(&format!("REPLICAOF 127.0.0.1 {port}")).is_some();
        }
        all_follow
    }

    /// Notes the ID of the master's data, which changes when its first replica connects.
    pub(crate) fn remember_id(&self) {
        let Some(state) = Client::new(self, self.master()).replication() else { return };
        let mut ids = self.ids.lock().expect("no thread panics");
        if state.is_master && !ids.contains(&state.id) {
            ids.push(state.id);
        }
    }

    /// Makes a server tell Sentinels and replicas an address that can be cut.
    fn announce(&self, server: usize) {
        let port = self.link(server, server).port;
        for setting in ["replica-announce-ip 127.0.0.1".to_owned(), format!("replica-announce-port {port}")] {
            Client::new(self, server).ask(&format!("CONFIG SET {setting}")).expect("a server that replies");
        }
    }

    /// Returns the server whose address Sentinels know.
    pub(crate) fn of_port(&self, port: u16) -> Option<usize> {
        (0..self.size()).find(|&server| self.link(server, server).port == port)
    }

    /// Stops a server's process, or continues it.
    pub(crate) fn signal(&self, server: usize, signal: &str) {
        let guard = self.members[server].server.lock().expect("no thread panics");
        let pid = guard.as_ref().expect("a running server").pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill can be run").success());
    }

    /// Kills a server. A replica will restart without the master's history, and one that was promoted may not have
    /// written its file yet.
    pub(crate) fn kill(&self, server: usize) -> Killed {
        let invoked = self.record.now();
        let mut client = Client::new(self, server);
        let is_master = client.replication().is_some_and(|state| state.is_master);
        let file = client.info("persistence").unwrap_or_default();
        let idle = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0", "aof_last_bgrewrite_status:ok"];
        let keeps_all = is_master && idle.iter().all(|line| file.contains(line));
        let server_to_kill = self.members[server].server.lock().expect("no thread panics").take();
        let folder = server_to_kill.expect("a running server").kill();
        // It will not execute anything any more.
        (0..2).for_each(|_| self.record.settle(server, self.record.now()));
        Killed { folder, lost_since: (!keeps_all).then_some(invoked) }
    }

    pub(crate) fn restart(&self, server: usize, killed: Killed) {
        let restarted = setup(&self.settings, self.clocks.path(), server).on(killed.folder).start();
        let member = &self.members[server];
        (0..self.size()).for_each(|from| self.link(from, server).lead_to(&restarted));
        member.starts.fetch_add(1, Ordering::SeqCst);
        member.port.store(restarted.port, Ordering::SeqCst);
        *member.server.lock().expect("no thread panics") = Some(restarted);
        if let Some(invoked) = killed.lost_since {
            self.record.note(server, invoked, Action::Lost { since: 0 });
        }
        if self.sentinels.is_some() {
            self.announce(server);
        }
    }

    /// Lets a server's clock jump to the true time and an offset in milliseconds.
    pub(crate) fn turn_clock(&self, server: usize, offset: i64) {
        self.record.turn_clock(server, offset, || set_offset(&clock_file(self.clocks.path(), server), offset));
    }

    /// Notes what may not happen.
    pub(crate) fn surprise(&self, text: String) {
        self.record.say(&text);
        self.surprises.lock().expect("no thread panics").push(text);
    }

    pub(crate) fn surprises(&self) -> Vec<String> {
        self.surprises.lock().expect("no thread panics").clone()
    }

    /// Runs a command that must succeed on a server. Sentinels close the connections of servers that they reconfigure.
    pub(crate) fn command(&self, server: usize, words: &str) -> Value {
        let mut reply = None;
        wait_until(words, || {
            reply = Client::new(self, server).ask(words);
            reply.is_some()
        });
        reply.expect("a reply")
    }

    /// Stops all servers, and returns what was recorded.
    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    /// Returns the digest of a key on a server.
    pub(crate) fn digest(&self, server: usize, key: &str) -> u64 {
        let reply = self.command(server, &format!("DEBUG DIGEST-VALUE {key}"));
        let digests: Vec<String> = redis::from_redis_value(reply).expect("a list");
        u64::from_str_radix(&digests[0][..16], 16).expect("a digest in hexadecimal")
    }
}

fn setup(settings: &[String], clocks: &Path, server: usize) -> Setup {
    let setup = with_false_clock(with_debug(Setup::oxbloom()), &clock_file(clocks, server));
    settings.iter().fold(setup, |setup, line| setup.set(line))
}

fn clock_file(clocks: &Path, server: usize) -> PathBuf {
    clocks.join(server.to_string())
}
