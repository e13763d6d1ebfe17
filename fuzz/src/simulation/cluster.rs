//! Servers that replicate, and their files: see [`super`].

use std::collections::BTreeMap;
use std::rc::Rc;

use models::history::{Action, Event};
use models::random::Random;
use redis_module::raw;
use xxhash_rust::xxh3::xxh3_64;

use crate::server::{self, Age, Circumstances, INSTANCES, Reply, Words};

/// The time at which simulations start, in milliseconds since 1970.
const START: i64 = 1_700_000_000_000;

/// The number of entries in the backlog of a master, from which a replica can continue.
const BACKLOG: usize = 60;

/// The flags for commands of a master, and of a file.
const FOLLOWING: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_SLAVE;
const LOADING: u32 = raw::REDISMODULE_CTX_FLAGS_LOADING;

/// The commands that a master replicated for one command of a client.
struct Entry {
    commands: Vec<Words>,
    tick: u64,
    /// The digest of the first key after the commands.
    digest: Option<u64>,
}

/// The commands that restore all keys of a server, and the length of its log at the time. A snapshot is a RESTORE of
/// each key.
#[derive(Default)]
struct File {
    commands: Vec<Words>,
    len: usize,
}

/// The connection of a replica to the master.
enum Link {
    Down,
    Up,
    /// The snapshot is on its way.
    Synchronising(File),
}

struct Server {
    is_master: bool,
    /// The identifier of the stream that the log is from.
    stream: u64,
    /// The stream that this one continues, and the length of the log at the time.
    previous: Option<(u64, usize)>,
    /// All entries that made the content of the server.
    log: Vec<Rc<Entry>>,
    file: File,
    /// True if the entries since the file are on disk, too.
    is_append_only: bool,
    link: Link,
    /// The difference of the server's clock from the true time, in milliseconds.
    skew: i64,
}

pub(super) struct Cluster {
    servers: Vec<Server>,
    pub(super) master: usize,
    /// The number of streams so far.
    streams: u64,
    /// The time of the history: a number that grows with each command.
    pub(super) tick: u64,
    /// The true time, in milliseconds since the start.
    pub(super) now: i64,
    pub(super) history: Vec<Event>,
}

impl Cluster {
    /// Loads the module, and starts a master with one or two replicas.
    pub(super) fn start(random: &mut Random) -> Cluster {
        server::load(Age::New, &super::line("error-rate 0.01 initial-size 10 layout native")).expect("sound arguments");
        let new = |index| Server {
            is_master: index == 0,
            stream: 0,
            previous: None,
            log: Vec::new(),
            file: File::default(),
            is_append_only: random.chance(50),
            link: Link::Up,
            skew: 0,
        };
        let mut servers: Vec<_> = (0..INSTANCES).map(new).collect();
        servers.truncate(2 + random.below(2) as usize);
        Cluster { servers, master: 0, streams: 1, tick: 1, now: 0, history: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Returns the servers that accept commands of clients: the master, and a former one that does not know it.
    pub(super) fn masters(&self) -> Vec<usize> {
        (0..self.len()).filter(|&server| self.servers[server].is_master).collect()
    }

    /// Returns all servers but the master.
    pub(super) fn replicas(&self) -> Vec<usize> {
        (0..self.len()).filter(|&server| server != self.master).collect()
    }

    pub(super) fn clock(&self, server: usize) -> i64 {
        START + self.now + self.servers[server].skew
    }

    pub(super) fn set_skew(&mut self, server: usize, skew: i64) {
        self.servers[server].skew = skew;
    }

    /// Adds an event that began at `invoked` and is complete to the history.
    pub(super) fn record(&mut self, server: usize, invoked: u64, action: Action) {
        let clock = self.clock(server).cast_unsigned();
        self.history.push(Event { server, invoked, completed: self.tick, clock, action });
    }

    /// Adds an event to the history, at a time of its own.
    fn record_next(&mut self, server: usize, action: Action) {
        self.tick += 1;
        self.record(server, self.tick, action);
    }

    /// Runs a command of a client, and replicates it.
    pub(super) fn run(&mut self, server: usize, words: &Words, circumstances: Circumstances) -> Reply {
        self.tick += 1;
        server::set_clock(server, self.clock(server));
        let (reply, commands) = match server::run(server, words, circumstances) {
            Some(outcome) => (outcome.reply, outcome.replicated),
            None if server::apply(server, words, circumstances) => (Reply::Integer(1), vec![words.clone()]),
            None => (Reply::Null, Vec::new()),
        };
        if let Some([_, key, ..]) = commands.first().map(Vec::as_slice) {
            let digest = digest(server, key);
            self.servers[server].log.push(Rc::new(Entry { commands, tick: self.tick, digest }));
        }
        reply
    }

    fn apply(&self, server: usize, commands: &[Words], flags: u32) {
        server::set_clock(server, self.clock(server));
        for words in commands {
            let applied = server::apply(server, words, Circumstances { flags, ..Circumstances::default() });
            assert!(applied, "server {server} cannot apply {words:?}");
        }
    }

    /// Applies an entry of a log. Then the server must have the same filter as the master had.
    fn follow(&self, server: usize, entry: &Entry, flags: u32) {
        self.apply(server, &entry.commands, flags);
        let is_equal = digest(server, &entry.commands[0][1]) == entry.digest;
        let names = entry.commands.iter().map(|words| String::from_utf8_lossy(&words[..2].join(&b' ')).into_owned());
        assert!(is_equal, "server {server} differs after {:?} of tick {}", names.collect::<Vec<_>>(), entry.tick);
    }

    /// Delivers up to `count` entries to a replica.
    pub(super) fn deliver(&mut self, replica: usize, count: usize) {
        let Link::Up = self.servers[replica].link else { return };
        let from = self.servers[replica].log.len();
        let entries: Vec<_> = self.servers[self.master].log[from..].iter().take(count).cloned().collect();
        entries.iter().for_each(|entry| self.follow(replica, entry, FOLLOWING));
        self.servers[replica].log.extend(entries);
    }

    /// Returns the number of servers that have all that the master has.
    pub(super) fn copies(&self) -> usize {
        let len = self.servers[self.master].log.len();
        let has_all = |&replica: &usize| {
            let Server { link, log, .. } = &self.servers[replica];
            matches!(link, Link::Up) && log.len() == len
        };
        1 + self.replicas().into_iter().filter(has_all).count()
    }

    pub(super) fn cut(&mut self, replica: usize) {
        self.servers[replica].link = Link::Down;
    }

    /// Connects a replica to the master, or completes its synchronisation. A former master becomes a replica.
    pub(super) fn connect(&mut self, replica: usize) {
        self.servers[replica].is_master = false;
        match std::mem::replace(&mut self.servers[replica].link, Link::Up) {
            Link::Up => {}
            Link::Down if self.is_start(replica) && self.missing(replica) <= BACKLOG => {
                self.servers[replica].stream = self.servers[self.master].stream;
            }
            Link::Down => self.servers[replica].link = Link::Synchronising(self.snapshot(self.master)),
            Link::Synchronising(file) => {
                self.record_next(replica, Action::Lost { since: 0 });
                server::flush(replica);
                self.apply(replica, &file.commands, LOADING);
                let log = self.servers[self.master].log[..file.len].to_vec();
                let stream = self.servers[self.master].stream;
                let server = &mut self.servers[replica];
                server.log = log;
                server.stream = stream;
                server.file = file;
                self.record_caught_up(replica, self.master);
            }
        }
    }

    /// Returns true if the log of a server is the start of the master's.
    fn is_start(&self, server: usize) -> bool {
        let (master, server) = (&self.servers[self.master], &self.servers[server]);
        let continues = |(stream, len): (u64, usize)| server.stream == stream && server.log.len() <= len;
        continues((master.stream, master.log.len())) || master.previous.is_some_and(continues)
    }

    fn missing(&self, replica: usize) -> usize {
        self.servers[self.master].log.len() - self.servers[replica].log.len()
    }

    /// Records that a server has what another one has, as far as its log goes.
    fn record_caught_up(&mut self, server: usize, with: usize) {
        let next = self.servers[with].log.get(self.servers[server].log.len());
        let until = next.map_or(self.tick, |next| next.tick - 1);
        self.record_next(server, Action::CaughtUp { with, until });
    }

    fn snapshot(&self, server: usize) -> File {
        let restore = |key: &[u8]| {
            let (data_type, value) = server::save(server, key).expect("a filter");
            vec![vec![b"RESTORE".to_vec(), key.to_vec(), data_type.to_string().into_bytes(), value]]
        };
        self.file(server, restore)
    }

    /// Returns a file with the commands that `restore` returns for each key.
    fn file(&self, server: usize, restore: impl Fn(&[u8]) -> Vec<Words>) -> File {
        let mut commands = Vec::new();
        for key in server::keys(server) {
            commands.extend(restore(&key));
            if let Some(time) = server::expire_time(server, &key) {
                commands.push(vec![b"PEXPIREAT".to_vec(), key, time.to_string().into_bytes()]);
            }
        }
        File { commands, len: self.servers[server].log.len() }
    }

    /// Saves a server. An append-only file starts with a snapshot, or with the commands of the module.
    pub(super) fn save(&mut self, server: usize, random: &mut Random) {
        let has_commands = self.servers[server].is_append_only && random.chance(50);
        let rewritten = |key: &[u8]| server::rewrite(server, key);
        self.servers[server].file = if has_commands { self.file(server, rewritten) } else { self.snapshot(server) };
    }

    /// Restarts a server from its file. An append-only file may have lost its last `lost` entries.
    pub(super) fn restart(&mut self, server: usize, lost: usize) {
        let before = digests(server);
        let Server { file, log, is_append_only, .. } = &self.servers[server];
        let kept = if *is_append_only { log.len().saturating_sub(lost).max(file.len) } else { file.len };
        server::flush(server);
        self.apply(server, &file.commands, LOADING);
        log[file.len..kept].iter().for_each(|entry| self.follow(server, entry, LOADING));
        match log.get(kept) {
            Some(next) => self.record_next(server, Action::Lost { since: next.tick - 1 }),
            None => assert_eq!(digests(server), before, "server {server} changed in a restart"),
        }
        let restarted = &mut self.servers[server];
        restarted.log.truncate(kept);
        restarted.link = Link::Down;
        // Only a snapshot has the identifier of the stream, and only a replica continues it.
        if restarted.is_master || restarted.is_append_only {
            self.begin_stream(server, None);
        }
    }

    fn begin_stream(&mut self, server: usize, previous: Option<(u64, usize)>) {
        self.servers[server].stream = self.streams;
        self.servers[server].previous = previous;
        self.streams += 1;
        if server == self.master {
            self.servers.iter_mut().for_each(|server| server.link = Link::Down);
        }
    }

    /// Promotes a replica that followed the master, mostly the most advanced one. The old master becomes a replica, or
    /// goes on until it is connected to the new one.
    pub(super) fn fail_over(&mut self, random: &mut Random) {
        let is_candidate = |&server: &usize| self.is_start(server) && !self.servers[server].is_master;
        let candidates: Vec<_> = self.replicas().into_iter().filter(is_candidate).collect();
        let Some(&first) = candidates.iter().min_by_key(|&&server| self.missing(server)) else { return };
        let by_majority = candidates.len() == self.replicas().len() && random.chance(70);
        let promoted = if by_majority { first } else { random.one_of(&candidates) };
        self.record_caught_up(promoted, self.master);
        self.record_next(promoted, Action::Promoted { by_majority });
        self.servers[self.master].is_master = random.chance(50);
        self.servers[promoted].is_master = true;
        self.master = promoted;
        let previous = (self.servers[promoted].stream, self.servers[promoted].log.len());
        self.begin_stream(promoted, Some(previous));
    }

    /// Connects all servers, delivers everything, and records what they have.
    pub(super) fn heal(&mut self) {
        for replica in self.replicas() {
            while !matches!(self.servers[replica].link, Link::Up) {
                self.connect(replica);
            }
            self.deliver(replica, usize::MAX);
            self.record_caught_up(replica, self.master);
        }
        self.record_next(self.master, Action::Healed { digests: (0..self.len()).map(digests).collect() });
    }
}

/// Returns a digest of a filter and the time at which its key expires.
fn digest(server: usize, key: &[u8]) -> Option<u64> {
    let expiry = server::expire_time(server, key).unwrap_or(0).to_le_bytes();
    server::digest(server, key).map(|digest| xxh3_64(&[digest, expiry.to_vec()].concat()))
}

/// Returns the digest of each key.
fn digests(server: usize) -> BTreeMap<String, u64> {
    let named = |key: Vec<u8>| Some((String::from_utf8_lossy(&key).into_owned(), digest(server, &key)?));
    server::keys(server).into_iter().filter_map(named).collect()
}
