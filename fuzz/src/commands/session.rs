//! Runs a script, and checks the promises after each command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Once;

use models::counting::CountingModel;
use models::keyspace::KeyspaceModel;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{HEADER_CURSOR, Header, Origin};
use redis_module::raw;
use xxhash_rust::xxh3::xxh3_64;

use crate::commands::items::{items_of, unpacked};
use crate::commands::script::{EVICTS, FROM_MASTER, FULL, LOADS, OUT_OF_MEMORY, RESP3, Script};
use crate::decoding::copies::{MEMORY_LIMIT, whole};
use crate::decoding::file::{CUCKOO_FILES, VALKEY_FILE};
use crate::input::Reader;
use crate::server::{
    self, Age, CLASSIC, CUCKOO, Circumstances, INSTANCES, NATIVE, NATIVE_CUCKOO, Outcome, Reply, VALKEY, Words,
    whole_number,
};

/// Runs a script.
pub fn commands(bytes: &[u8]) {
    let mut script = Script { rest: Reader(bytes), cursor: b"0".to_vec(), data: Vec::new() };
    if let Some(session) = Session::start(&mut script) {
        session.run(&mut script);
    }
}

/// Runs the commands of a script, which begin with this data. The module is only loaded for the first script, since each
/// load allocates what lives as long as the process.
pub(crate) fn run(commands: &[u8], data: Vec<u8>) {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| load(Age::New, Words::new()).expect("sound arguments"));
    Session::default().run(&mut Script { rest: Reader(commands), cursor: b"0".to_vec(), data });
}

/// Returns a copy of a filter of the server, from its header and its chunks.
fn copied(key: &[u8], header: &[u8]) -> Filter {
    let mut copy = Filter::from_header(header).expect("a header");
    for (cursor, chunk) in whole(&server::copy_of(SERVER, key).expect("a filter")).into_iter().skip(1) {
        copy.load_chunk(cursor, &chunk).expect("a chunk");
    }
    copy
}

/// Loads the module with these arguments.
fn load(age: Age, given: Words) -> Result<(), String> {
    // In this process, settings survive when the module is loaded again, so all of them are set.
    let defaults = "error-rate 0.01 initial-size 100 expansion-factor 2 layout native lookahead on lookahead-size 1 \
                    cf-layout native cf-bucket-size 2 cf-initial-size 64 dialect redisbloom";
    let defaults = defaults.split(' ').map(|word| word.as_bytes().to_vec());
    let limit = [b"filter-memory-limit".to_vec(), MEMORY_LIMIT.to_string().into_bytes()];
    server::load(age, &defaults.chain(given).chain(limit).collect::<Words>())
}

/// The instances: the server, its follower, and a server that loads its rewritten append-only file.
const SERVER: usize = 0;

const FOLLOWER: usize = 1;
const RESTARTED: usize = 2;

#[derive(Default)]
struct Session {
    /// The model of the server's filters.
    model: KeyspaceModel<Vec<u8>>,
    /// The digests of the server's filters at the last check.
    digests: BTreeMap<Vec<u8>, u64>,
    /// Copies that follow the server's filters, with their cursors.
    copies: BTreeMap<Vec<u8>, (Filter, Vec<u8>)>,
}

impl Session {
    fn start(script: &mut Script<'_>) -> Option<Session> {
        let age = if script.rest.u8()? & 1 == 0 { Age::New } else { Age::Old };
        let given = script.words()?;
        let loaded =
            if given.iter().all(|word| is_granted(word)) { load(age, given) } else { Err("not asked".to_owned()) };
        if let Err(reason) = loaded {
            assert!(!reason.is_empty());
            load(age, Words::new()).expect("sound arguments");
        }
        Some(Session::default())
    }

    /// Runs all commands of a script.
    fn run(mut self, script: &mut Script<'_>) {
        while self.step(script).is_some() {}
        self.check_all();
        (0..INSTANCES).for_each(server::flush);
    }

    /// Runs a command. Returns `None` at the end of the script.
    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let bits = script.rest.u8()?;
        let words = script.words()?;
        let has = |bit: u8| bits & bit != 0;
        let flag = |bit: u8, flag: u32| if has(bit) { flag } else { 0 };
        let circumstances = Circumstances {
            flags: flag(FROM_MASTER, raw::REDISMODULE_CTX_FLAGS_REPLICATED)
                | flag(RESP3, raw::REDISMODULE_CTX_FLAGS_RESP3)
                | flag(EVICTS, raw::REDISMODULE_CTX_FLAGS_EVICT),
            out_of_memory: has(OUT_OF_MEMORY) && !has(FROM_MASTER),
            full: has(FULL),
        };
        let following = if has(LOADS) {
            raw::REDISMODULE_CTX_FLAGS_LOADING
        } else {
            raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_SLAVE
        };
        let following = Circumstances { flags: following, ..Circumstances::default() };
        let name = words.first()?.to_ascii_lowercase();
        // Keys may expire while a client's command runs, but not during any other command.
        let is_ours = [b"bf.", b"cf."].iter().any(|prefix| name.starts_with(*prefix));
        if has(FROM_MASTER) || !is_ours {
            server::delete_expired();
        }
        if is_ours {
            if !has(FROM_MASTER) || is_grantable(&name, &words) {
                self.command(script, &name, &words, circumstances, following);
            }
        } else {
            // These commands never come from a master: a replica must apply any file of its master, or exit.
            let flags = circumstances.flags & !raw::REDISMODULE_CTX_FLAGS_REPLICATED;
            let circumstances = Circumstances { flags, ..circumstances };
            self.command_of_the_server(script, &name, &words, circumstances, following);
        }
        Some(())
    }

    /// Runs a command of the module.
    fn command(
        &mut self,
        script: &mut Script<'_>,
        name: &[u8],
        words: &Words,
        circumstances: Circumstances,
        following: Circumstances,
    ) {
        let outcome = server::run(SERVER, words, circumstances);
        server::delete_expired();
        let Some(outcome) = outcome else { return };
        let named: BTreeSet<&Vec<u8>> = words[1..].iter().collect();
        let had_filter = words.get(1).is_some_and(|key| self.digests.contains_key(key));
        let replicate = || {
            for words in &outcome.replicated {
                assert!(server::apply(FOLLOWER, words, following), "{words:?}");
            }
        };
        if had_filter {
            replicate()
        } else {
            with_other_defaults(replicate)
        }
        for key in &named {
            assert_eq!(server::expire_time(SERVER, key), server::expire_time(FOLLOWER, key), "{words:?}");
            if self.look(key) {
                assert!(outcome.signalled.contains(*key) && !outcome.replicated.is_empty(), "{words:?}");
            }
        }
        match outcome.reply.elements() {
            [Reply::Integer(cursor), Reply::Bulk(data)] => {
                script.cursor = cursor.to_string().into_bytes();
                script.data.clone_from(data);
            }
            [Reply::Bulk(cursor), Reply::Bulk(data)] if name == b"bf.changes" => {
                script.cursor.clone_from(cursor);
                if let [_, key] = &words[..] {
                    self.copies.insert(key.clone(), (copied(key, data), cursor.clone()));
                }
            }
            _ => {}
        }
        let is_from_master = circumstances.flags & raw::REDISMODULE_CTX_FLAGS_REPLICATED != 0;
        self.follow(name, words, &outcome, had_filter, is_from_master);
        if !outcome.signalled.is_empty() {
            named.into_iter().for_each(|key| self.check(key));
        }
    }

    /// Inserts what became new in a filter into its copy, which must then be equal. Drops the copy if the server says so.
    fn poll(&mut self, key: &[u8]) {
        let Some((mut copy, cursor)) = self.copies.remove(key) else { return };
        let words = [b"BF.CHANGES", key, b"SINCE", &cursor, b"COUNT", b"65536"].map(<[u8]>::to_vec);
        let outcome = server::run(SERVER, &words, Circumstances::default()).expect("a command of the module");
        if let [Reply::Bulk(cursor), Reply::Bulk(changes)] = outcome.reply.elements() {
            copy.insert_changes(changes).expect("changes that fit");
            let original = server::copy_of(SERVER, key).expect("a filter that is followed");
            assert!(whole(&copy) == whole(&original), "the copy of {key:?} differs");
            self.copies.insert(key.to_vec(), (copy, cursor.clone()));
        }
    }

    /// Reads the digest of a key's filter, which must be the same on the follower. Returns true if it changed.
    fn look(&mut self, key: &[u8]) -> bool {
        self.poll(key);
        let digest = server::digest(SERVER, key);
        assert!(digest == server::digest(FOLLOWER, key), "{key:?} differs on the follower");
        match digest.map(|digest| xxh3_64(&digest)) {
            Some(digest) => self.digests.insert(key.to_vec(), digest) != Some(digest),
            None => self.digests.remove(key).is_some(),
        }
    }

    /// Applies a command to the model, and checks its reply.
    fn follow(&mut self, name: &[u8], words: &Words, outcome: &Outcome, had_filter: bool, is_from_master: bool) {
        let Outcome { reply, .. } = outcome;
        let Some(key) = words.get(1).filter(|_| !reply.is_error()) else { return };
        if server::rolls(SERVER, key) {
            self.model.put(key, Some(CountingModel::uncertain()));
            return;
        }
        let (items, options) = items_of(name, words);
        let numbers = if name.ends_with(b"packed") { unpacked(reply, items.len()) } else { reply.integers() };
        match name {
            b"bf.reserve" | b"cf.reserve" => self.model.create(key),
            // A master replicates it only if it created the filter.
            b"bf.insert" if is_from_master && items.is_empty() => self.model.create(key),
            b"cf.add" | b"cf.addnx" | b"cf.insert" | b"cf.insertnx" => {
                let filter = self.model.get_or_create(key);
                for (item, stored) in items.iter().zip(numbers) {
                    assert!(stored < 1 || !name.ends_with(b"nx") || !filter.contains(item), "{item:?} was present");
                    if stored == 1 {
                        filter.add(item.clone());
                    }
                }
            }
            b"bf.add" | b"bf.madd" | b"bf.insert" | b"bf.addpacked" => {
                let absent_only = options.iter().any(|word| word.eq_ignore_ascii_case(b"NX"));
                // In a BF.INSERT from a master, NX is RedisBloom's NONSCALING, unless an option is valkey-bloom's.
                let is_valkeys = |word: &Vec<u8>| {
                    [&b"TIGHTENING"[..], b"VALIDATESCALETO", b"SEED"].iter().any(|name| word.eq_ignore_ascii_case(name))
                };
                let is_redisblooms = is_from_master && name == b"bf.insert" && !options.iter().any(is_valkeys);
                let absent_only = absent_only && !is_redisblooms;
                let filter = self.model.get_or_create(key);
                for (item, new) in items.iter().zip(numbers) {
                    assert!(new == 0 || !filter.contains(item), "{item:?} was present, but reported as new");
                    if new == 1 || !absent_only {
                        filter.add(item.clone());
                    }
                }
            }
            b"bf.del" | b"bf.mdel" | b"bf.delpacked" | b"cf.del" => {
                let filter = self.model.get_or_create(key);
                for (item, removed) in items.iter().zip(numbers) {
                    assert!(removed == 1 || !filter.contains(item), "{item:?} was present, but not removed");
                    if removed == 1 {
                        filter.remove(item);
                    }
                }
            }
            b"bf.exists" | b"bf.mexists" | b"bf.existspacked" | b"bf.count" | b"bf.mcount" | b"cf.exists"
            | b"cf.mexists" | b"cf.count" => {
                let Some(filter) = self.model.get(key) else { return };
                for (item, count) in items.iter().zip(numbers) {
                    assert!(count > 0 || !filter.contains(item), "{item:?} is missing");
                }
            }
            b"bf.load" => self.model.put(key, Some(CountingModel::uncertain())),
            b"bf.merge" => self.follow_merge(key, words, had_filter),
            b"bf.loadchunk" | b"cf.loadchunk" => {
                let data_type = server::data_type(SERVER, key);
                let has_checksums = [NATIVE, NATIVE_CUCKOO].map(Some).contains(&data_type);
                // A header from a master replaces the filter.
                let is_header = words[2] == HEADER_CURSOR.to_string().into_bytes() && !words[3].is_empty();
                // Other chunks keep the items, except chunks of a classic filter from a master, which overwrite it.
                if !had_filter || is_header || !has_checksums && is_from_master {
                    self.model.put(key, Some(CountingModel::uncertain()));
                } else {
                    self.model.get_or_create(key);
                }
            }
            _ => {}
        }
    }

    fn follow_merge(&mut self, key: &[u8], words: &Words, had_filter: bool) {
        let count = words.get(2).and_then(|count| whole_number(count)).expect("a number that the module accepted");
        let (sources, options) = words[3..].split_at(count as usize);
        let has = |option: &[u8]| options.iter().any(|word| word.eq_ignore_ascii_case(option));
        let is_named = sources.iter().any(|source| source == key);
        let operands = sources.iter().map(Vec::as_slice).filter(|source| *source != key);
        let is_operand = had_filter && (is_named || !has(b"REPLACE"));
        let operands = is_operand.then_some(key).into_iter().chain(operands);
        let is_union = !has(b"INTERSECT");
        let operands: Vec<&[u8]> = operands.collect();
        self.model.merge(key, &operands, is_union);
    }

    /// Panics if an item of a filter is missing, or if its count is too low.
    fn check(&self, key: &[u8]) {
        let Some(filter) = self.model.get(key).filter(|filter| !filter.is_empty()) else { return };
        let ask = |command: &str| {
            let words = [command.as_bytes(), key].into_iter().map(<[u8]>::to_vec).chain(filter.items().cloned());
            let outcome = server::run(SERVER, &words.collect::<Words>(), Circumstances::default());
            outcome.expect("a command of the module").reply
        };
        if server::is_cuckoo(SERVER, key) {
            assert!(ask("CF.MEXISTS").integers() == vec![1; filter.items().len()], "an item of {key:?} is missing");
            for item in filter.items() {
                let words = [b"CF.COUNT".to_vec(), key.to_vec(), item.clone()];
                let outcome = server::run(SERVER, &words, Circumstances::default());
                let count = outcome.expect("a command of the module").reply.integers()[0];
                assert!(filter.allows(item, count.cast_unsigned()), "the count of an item of {key:?} is too low");
            }
            return;
        }
        assert!(ask("BF.MEXISTS").integers() == vec![1; filter.items().len()], "an item of {key:?} is missing");
        let counts = ask("BF.MCOUNT");
        let is_enough =
            filter.items().zip(counts.integers()).all(|(item, count)| filter.allows(item, count.cast_unsigned()));
        assert!(counts.is_error() || is_enough, "the count of an item of {key:?} is too low");
    }

    /// Panics unless all filters are complete and unchanged since the last check.
    fn check_all(&mut self) {
        server::delete_expired();
        for key in server::keys(SERVER) {
            assert!(!self.look(&key), "{key:?} changed without a command");
            self.check(&key);
        }
        assert_eq!(server::keys(SERVER), server::keys(FOLLOWER));
        server::check_figures();
    }

    /// Runs a command of the mock server, on a key or on all keys.
    fn command_of_the_server(
        &mut self,
        script: &mut Script<'_>,
        name: &[u8],
        words: &Words,
        circumstances: Circumstances,
        following: Circumstances,
    ) {
        let both = [SERVER, FOLLOWER];
        let Some(key) = words.get(1) else {
            match name {
                b"reload" => self.reload(),
                b"rewrite" => self.rewrite(),
                _ => {}
            }
            return;
        };
        let mut changed = key;
        match (name, words.get(2)) {
            (b"set", None) => {
                both.into_iter().for_each(|space| server::set_text(space, key));
                self.model.delete(key);
            }
            (b"del", None) => {
                both.into_iter().for_each(|space| server::delete(space, key));
                self.model.delete(key);
            }
            (b"expire", None) => {
                server::expire(SERVER, key);
                server::delete(FOLLOWER, key);
                self.model.delete(key);
                self.digests.remove(key);
                return;
            }
            (b"rename", Some(to)) => {
                let renamed = both.map(|space| server::rename(space, key, to));
                assert!(renamed[0] == renamed[1]);
                if renamed[0] {
                    self.model.rename(key, to);
                    self.look(key);
                    changed = to;
                }
            }
            (b"copy", Some(to)) if key != to && server::copy(SERVER, key, to, circumstances) => {
                assert!(server::copy(FOLLOWER, key, to, following));
                self.model.copy(key, to);
                changed = to;
            }
            (b"save", None) => {
                if let Some((data_type, file)) = server::save(SERVER, key) {
                    let kind = match data_type {
                        CLASSIC => 4,
                        CUCKOO => CUCKOO_FILES + 4,
                        NATIVE_CUCKOO => CUCKOO_FILES + 7,
                        VALKEY => VALKEY_FILE,
                        _ => 7,
                    };
                    script.data = [&[kind], &*file].concat();
                }
            }
            (b"restore", Some(file)) => {
                let Some((kind, file)) = file.split_first() else { return };
                let (classic, native) = if *kind < CUCKOO_FILES { (CLASSIC, NATIVE) } else { (CUCKOO, NATIVE_CUCKOO) };
                let (file, versions_on) = match i32::from(*kind % CUCKOO_FILES) {
                    _ if *kind == VALKEY_FILE => ((VALKEY, file), 0),
                    version @ 0..=6 => ((classic, file), version - 4),
                    version => ((native, file), version - 7),
                };
                if server::restore(SERVER, key, file, versions_on, circumstances) {
                    assert!(server::restore(FOLLOWER, key, file, versions_on, following));
                    self.model.put(key, Some(CountingModel::uncertain()));
                }
            }
            (b"defragment", None) => server::defragment(SERVER, key),
            (b"config", Some(value)) if is_granted(value) && is_granted(key) => drop(server::configure(key, value)),
            _ => {}
        }
        self.look(changed);
        self.check(changed);
    }

    /// Saves each filter to a file, and loads it again.
    fn reload(&mut self) {
        let loading = Circumstances { flags: raw::REDISMODULE_CTX_FLAGS_LOADING, ..Circumstances::default() };
        for key in server::keys(SERVER) {
            if let Some((data_type, file)) = server::save(SERVER, &key) {
                let time = server::expire_time(SERVER, &key);
                assert!(server::restore(SERVER, &key, (data_type, &file), 0, loading));
                // A file has the time of each key beside its value.
                time.into_iter().for_each(|time| server::set_expire_time(SERVER, &key, time));
            }
        }
        self.check_all();
    }

    /// Runs the commands of a rewritten append-only file on an empty server.
    fn rewrite(&mut self) {
        let loading = Circumstances { flags: raw::REDISMODULE_CTX_FLAGS_LOADING, ..Circumstances::default() };
        for key in server::keys(SERVER) {
            for words in server::rewrite(SERVER, &key) {
                let outcome = server::run(RESTARTED, &words, loading).expect("a command of the module");
                assert!(outcome.reply == Reply::Simple(b"OK".to_vec()), "{:?}", outcome.reply);
            }
            assert!(server::digest(SERVER, &key) == server::digest(RESTARTED, &key), "{key:?} differs after a rewrite");
            server::delete(RESTARTED, &key);
        }
    }
}

/// Runs `f` with other defaults, if the server offers CONFIG to modules.
fn with_other_defaults(f: impl FnOnce()) {
    const OTHERS: [(&str, &str); 7] = [
        ("error-rate", "0.3"),
        ("initial-size", "7"),
        ("expansion-factor", "5"),
        ("layout", "classic"),
        ("cf-layout", "classic"),
        ("cf-bucket-size", "7"),
        ("cf-expansion-factor", "4"),
    ];
    let own = OTHERS.map(|(name, _)| server::configured(name.as_bytes()));
    let others = OTHERS.map(|(_, other)| Some(other.as_bytes().to_vec()));
    let configure = |values: &[Option<Vec<u8>>; 7]| {
        for ((name, _), value) in OTHERS.iter().zip(values) {
            assert!(value.as_ref().is_none_or(|value| server::configure(name.as_bytes(), value)));
        }
    };
    let has_settings = own.iter().all(Option::is_some);
    if has_settings {
        configure(&others);
    }
    f();
    if has_settings {
        configure(&own);
    }
}

/// The maximum number in a command from a master. A replica must allocate the memory for it, or exit.
const GRANTED: i64 = 100;

/// Returns true if an argument cannot lead to large allocations, as a large number or a setting for memory can.
fn is_granted(word: &[u8]) -> bool {
    let is_little = whole_number(word).is_none_or(|number| (0..=GRANTED).contains(&number));
    is_little && !word.to_ascii_lowercase().windows(6).any(|part| part == b"memory")
}

/// Returns true if a master may have sent this command, which takes little memory. A replica without memory would exit.
fn is_grantable(name: &[u8], words: &Words) -> bool {
    let Some(key) = words.get(1) else { return true };
    let names_little = |words: &[Vec<u8>]| {
        let is_seed = |index: usize| index > 0 && words[index - 1].eq_ignore_ascii_case(b"SEED");
        let is_little = |(index, word): (usize, &Vec<u8>)| is_seed(index) || is_granted(word);
        words.iter().enumerate().all(is_little)
    };
    match name {
        b"bf.reserve" | b"cf.reserve" => names_little(&words[2..]),
        b"bf.add" | b"bf.madd" | b"bf.insert" | b"bf.addpacked" | b"cf.add" | b"cf.addnx" | b"cf.insert"
        | b"cf.insertnx" => {
            let (items, options) = items_of(name, words);
            names_little(options) && server::growth(SERVER, key, &items) <= MEMORY_LIMIT
        }
        b"bf.loadchunk" | b"cf.loadchunk" => {
            let is_header = words.get(2).is_some_and(|word| *word == HEADER_CURSOR.to_string().into_bytes());
            let header = words.get(3).filter(|_| is_header).map(|data| Header::decode(data, Origin::Replication));
            header.is_none_or(|header| header.is_ok_and(|header| header.memory() <= MEMORY_LIMIT))
        }
        _ => true,
    }
}
