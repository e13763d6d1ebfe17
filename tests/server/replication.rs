//! A replica answers as its master does, whatever its own defaults are, and gets nothing that changed nothing.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, Value};

use crate::support::model::{
    Model, Random, calls, digest, digest_of, filter_info, info, info_field, info_number, item, many, replica_of,
    server_version, try_many, various, wait_for_replica, wait_until, with_debug,
};
use crate::support::{Server, Setup, ask, error, error_text, run, run_words};

/// A master, and replicas whose defaults differ from its own.
struct Pair {
    master: Server,
    replica: Server,
}

impl Pair {
    fn start() -> Pair {
        Pair::of(master_setup().start())
    }

    fn of(master: Server) -> Pair {
        let replica = replica_setup(&master).start();
        let pair = Pair { master, replica };
        let (mut master, mut replica) = pair.clients();
        wait_for_replica(&mut master, &mut replica);
        pair
    }

    fn clients(&self) -> (Connection, Connection) {
        (self.master.connect(), self.replica.connect())
    }
}

pub fn master_setup() -> Setup {
    with_debug(Setup::oxbloom())
        .module_arguments("error-rate 0.02 initial-size 20 lookahead-size 1")
        .set("repl-diskless-sync-delay 0")
}

pub fn replica_setup(master: &Server) -> Setup {
    let setup = with_debug(Setup::oxbloom()).module_arguments("error-rate 0.3 initial-size 5 expansion-factor 7");
    replica_of(master, setup.set("repl-diskless-sync-delay 0"))
}

fn assert_alike(models: &[Model], master: &mut Connection, replica: &mut Connection) {
    wait_for_replica(master, replica);
    for model in models {
        assert_eq!(model.observe(master), model.observe(replica), "{}", model.key);
    }
    assert_eq!(digest(master), digest(replica));
}

#[test]
fn a_replica_that_joins_late_gets_every_filter() {
    for (diskless, load) in [("no", "disabled"), ("yes", "disabled"), ("yes", "swapdb")] {
        let master = master_setup().set(format!("repl-diskless-sync {diskless}")).start();
        let mut client = master.connect();
        let mut models = various(&mut client);
        let replica = replica_setup(&master).set(format!("repl-diskless-load {load}")).start();
        let mut reader = replica.connect();
        assert_alike(&models, &mut client, &mut reader);
        models.iter_mut().filter(|model| !model.is_fixed()).for_each(|model| {
            model.add(&mut client, 30_000..33_000);
        });
        assert_alike(&models, &mut client, &mut reader);
    }
}

#[test]
fn a_replica_follows_creation_and_growth() {
    let pair = Pair::start();
    let (mut master, mut replica) = pair.clients();
    let mut models = various(&mut master);
    for key in ["add", "madd", "insert"] {
        models.push(Model::new(key));
    }
    for n in 0..300 {
        for (command, words) in [("BF.ADD", &["add"][..]), ("BF.INSERT", &["insert", "ITEMS"])] {
            let words: Vec<Vec<u8>> =
                [command].iter().chain(words).map(|word| word.as_bytes().to_vec()).chain([item(n)]).collect();
            run_words(&mut master, &words).unwrap();
        }
        models.iter_mut().filter(|model| ["add", "insert"].contains(&&*model.key)).for_each(|model| {
            model.items.insert(n);
        });
    }
    models.iter_mut().find(|model| model.key == "madd").unwrap().add(&mut master, 0..5000);
    assert_alike(&models, &mut master, &mut replica);
    for key in ["add", "madd", "insert", "linear"] {
        let seeds = [&mut master, &mut replica].map(|client| info_field::<String>(client, key, "SEED"));
        assert_eq!(seeds[0], seeds[1]);
        let layers = [&mut master, &mut replica].map(|client| ask::<Vec<String>>(client, &format!("BF.DEBUG {key}")));
        assert_eq!(layers[0], layers[1]);
        assert!(layers[0].len() > 3, "{key} has not grown");
    }
    // Seeds are not the same for all.
    assert_ne!(info_field::<String>(&mut master, "add", "SEED"), info_field::<String>(&mut master, "madd", "SEED"));
}

#[test]
fn a_replica_gets_nothing_that_changed_nothing() {
    let pair = Pair::start();
    let (mut master, mut replica) = pair.clients();
    let mut model = Model::new("key");
    model.add(&mut master, 0..2000);
    run(&mut master, "BF.ADD single item").unwrap();
    wait_for_replica(&mut master, &mut replica);
    let counted =
        |replica: &mut Connection| ["bf.madd", "bf.add", "bf.reserve", "bf.insert"].map(|name| calls(replica, name));
    let before = counted(&mut replica);
    for _ in 0..20 {
        assert_eq!(model.add(&mut master, 0..2000), 0);
        assert_eq!(run(&mut master, "BF.ADD single item"), Ok(Value::Int(0)));
        run(&mut master, "BF.INSERT single ITEMS item item").unwrap();
        error(&mut master, "BF.RESERVE single 0.1 10");
        error(&mut master, "BF.INSERT absent NOCREATE ITEMS item");
        run(&mut master, "BF.MEXISTS key item").unwrap();
    }
    wait_for_replica(&mut master, &mut replica);
    assert_eq!(counted(&mut replica), before);
    // What is new comes as one command more.
    assert!(model.add(&mut master, 1500..2400) > 0);
    wait_for_replica(&mut master, &mut replica);
    assert_eq!(calls(&mut replica, "bf.madd"), before[0] + 1);
    assert_alike(&[model], &mut master, &mut replica);
}

#[test]
fn transactions_scripts_and_functions_replicate() {
    let pair = Pair::start();
    let (mut master, mut replica) = pair.clients();
    let mut model = Model::new("multi");
    let mut pipe = redis::pipe();
    pipe.atomic();
    for n in 0..200 {
        pipe.cmd("BF.ADD").arg("multi").arg(item(n));
        model.items.insert(n);
    }
    let new: Vec<u64> = pipe.query(&mut master).unwrap();
    assert_eq!(new.len(), 200);

    let script = "redis.call('BF.RESERVE', KEYS[1], 0.01, 10) redis.call('SET', KEYS[2], 'x') \
                  return redis.call('BF.INSERT', KEYS[1], 'ITEMS', ARGV[1], ARGV[2], ARGV[1])";
    let numbers: Vec<u64> =
        redis::from_redis_value(run_words(&mut master, &["EVAL", script, "2", "lua", "text", "1", "2"]).unwrap())
            .unwrap();
    assert_eq!(numbers, [1, 1, 0]);

    let mut keys = vec!["multi", "lua"];
    if server_version() >= (7, 0) {
        let library = "#!lua name=bloom\nredis.register_function('bloom_add', \
                       function(keys, args) return redis.call('BF.MADD', keys[1], unpack(args)) end)";
        run_words(&mut master, &["FUNCTION", "LOAD", library]).unwrap();
        let new = run_words(&mut master, &["FCALL", "bloom_add", "1", "function", "a", "b", "a"]).unwrap();
        assert_eq!(redis::from_redis_value::<Vec<u64>>(new).unwrap(), [1, 1, 0]);
        keys.push("function");
    }
    // The client that wrote can wait until a replica has it.
    assert_eq!(ask::<i64>(&mut master, "WAIT 1 30000"), 1);
    assert_alike(&[model], &mut master, &mut replica);
    for key in keys {
        assert_eq!(filter_info(&mut master, key), filter_info(&mut replica, key));
        assert_eq!(digest_of(&mut master, key), digest_of(&mut replica, key));
    }
    assert_eq!(ask::<Vec<u64>>(&mut replica, "BF.MEXISTS lua 1 2"), [1, 1]);
}

#[test]
fn a_replica_reads_and_refuses_to_write_until_it_is_promoted() {
    let pair = Pair::start();
    let (mut master, mut replica) = pair.clients();
    let mut model = Model::new("key");
    model.add(&mut master, 0..500);
    wait_for_replica(&mut master, &mut replica);
    model.observe(&mut replica);
    assert_eq!(ask::<u64>(&mut replica, "BF.CARD key"), ask::<u64>(&mut master, "BF.CARD key"));
    let dump = |client: &mut Connection| ask::<(u64, Vec<u8>)>(client, "BF.SCANDUMP key 0");
    assert_eq!(dump(&mut replica), dump(&mut master));
    for command in [
        "BF.ADD key x",
        "BF.MADD key x",
        "BF.INSERT key ITEMS x",
        "BF.RESERVE new 0.1 10",
        "BF.LOADCHUNK new 1 x",
        "BF.DEL key x",
        "BF.MDEL key x",
    ] {
        assert_eq!(error(&mut replica, command), "READONLY You can't write against a read only replica.");
    }
    assert_eq!(run(&mut replica, "REPLICAOF NO ONE"), Ok(Value::Okay));
    model.add(&mut replica, 500..1500);
    // Grown by what the filter was created with; new ones by the replica's own defaults.
    assert_eq!(info_field::<u64>(&mut replica, "key", "EXPANSION"), 2);
    run(&mut replica, "BF.ADD new item").unwrap();
    assert_eq!(info_field::<u64>(&mut replica, "new", "EXPANSION"), 7);
    let observed = model.observe(&mut replica);
    // The old master comes back as a replica of the new one.
    run(&mut master, &format!("REPLICAOF 127.0.0.1 {}", pair.replica.port)).unwrap();
    wait_for_replica(&mut replica, &mut master);
    assert_eq!(model.observe(&mut master), observed);
    assert_eq!(digest(&mut replica), digest(&mut master));
}

#[test]
fn a_replica_that_lost_its_link_catches_up() {
    let pair = Pair::of(master_setup().set("repl-backlog-size 16mb").start());
    let (mut master, mut replica) = pair.clients();
    let mut models = various(&mut master);
    wait_for_replica(&mut master, &mut replica);
    let before = info_number(&mut master, "stats", "sync_partial_ok");
    let full = info_number(&mut master, "stats", "sync_full");
    assert!(ask::<u64>(&mut master, "CLIENT KILL TYPE replica") >= 1);
    models.iter_mut().filter(|model| !model.is_fixed()).for_each(|model| {
        model.add(&mut master, 40_000..42_000);
    });
    wait_until("the replica resumes", || info_number(&mut master, "stats", "sync_partial_ok") > before);
    assert_alike(&models, &mut master, &mut replica);
    assert_eq!(info_number(&mut master, "stats", "sync_full"), full);
}

#[test]
fn a_replica_of_a_replica_answers_the_same() {
    let pair = Pair::start();
    let last = replica_setup(&pair.replica).start();
    let (mut master, mut replica) = pair.clients();
    let mut end = last.connect();
    wait_until("the chain is up", || info(&mut end, "replication", "master_link_status") == "up");
    let models = various(&mut master);
    assert_alike(&models, &mut master, &mut replica);
    assert_alike(&models, &mut replica, &mut end);
    assert_eq!(digest(&mut master), digest(&mut end));
}

#[test]
fn a_replica_gets_a_filter_that_is_loaded_in_part() {
    let master = master_setup().start();
    let mut client = master.connect();
    let mut model = Model::new("whole");
    model.add(&mut client, 0..500);
    let mut iterator = 0;
    let mut replica = None;
    loop {
        let (next, data): (u64, Vec<u8>) = ask(&mut client, &format!("BF.SCANDUMP whole {iterator}"));
        if next == 0 {
            break;
        }
        let number = next.to_string();
        run_words(&mut client, &[b"BF.LOADCHUNK".as_slice(), b"copy", number.as_bytes(), &data]).unwrap();
        if replica.is_none() {
            replica = Some(replica_setup(&master).start());
            let mut reader = replica.as_ref().unwrap().connect();
            wait_for_replica(&mut client, &mut reader);
            assert_eq!(digest(&mut client), digest(&mut reader));
        }
        iterator = next;
    }
    let copy = model.at("copy");
    assert_alike(&[model, copy], &mut client, &mut replica.expect("started above").connect());
}

/// Keys that random commands are about.
const KEYS: u64 = 6;

/// Items that they are about, but for those of [`ABSENT`](crate::support::model::ABSENT).
const ITEMS: u64 = 4000;

/// A master's key space as random commands leave it: for each filter the items that must be there.
#[derive(Default)]
struct Space(BTreeMap<String, BTreeSet<u64>>);

impl Space {
    fn step(&mut self, random: &mut Random, client: &mut Connection) -> String {
        let key = format!("key{}", random.below(KEYS));
        let other = format!("key{}", random.below(KEYS));
        match random.below(20) {
            0..3 => self.add(client, "BF.ADD", &key, &[], &[random.below(ITEMS)]),
            3..7 => {
                let numbers = some_items(random, 80);
                self.add(client, "BF.MADD", &key, &[], &numbers)
            }
            7..10 => {
                let options = insert_options(random);
                let numbers = some_items(random, 40);
                self.add(client, "BF.INSERT", &key, &options, &numbers)
            }
            10 | 11 => {
                let mut words = vec!["BF.RESERVE".to_owned(), key.clone()];
                words.push(random.one_of(&["0.5", "0.1", "0.01", "0.000001"]).to_owned());
                words.push(random.one_of(&["1", "10", "100", "1000"]).to_owned());
                match random.below(4) {
                    0 => words.push("NONSCALING".to_owned()),
                    1 => words.extend(["EXPANSION".to_owned(), (1 + random.below(4)).to_string()]),
                    2 => words.extend(["SEED".to_owned(), random.next().to_string()]),
                    _ => {}
                }
                if random.chance(30) {
                    words.push("COUNTING".to_owned());
                }
                if run_words(client, &words).is_ok() {
                    self.0.insert(key, BTreeSet::new());
                }
                words.join(" ")
            }
            12 => {
                let command = format!("{} {key}", random.one_of(&["DEL", "UNLINK"]));
                run(client, &command).unwrap();
                self.0.remove(&key);
                command
            }
            13 => {
                let command = format!("COPY {key} {other}{}", random.one_of(&["", " REPLACE"]));
                // A key cannot be copied onto itself.
                if key != other && ask::<i64>(client, &command) == 1 {
                    self.put(&other, self.0.get(&key).cloned());
                }
                command
            }
            14 => {
                let command = format!("RENAME {key} {other}");
                if run(client, &command).is_ok() && key != other {
                    let items = self.0.remove(&key);
                    self.put(&other, items);
                }
                command
            }
            15 => {
                let brief = random.below(3) == 0;
                let command = format!("PEXPIRE {key} {}", if brief { 1 } else { 1_000_000 });
                if ask::<i64>(client, &command) == 1 && brief {
                    wait_until("a key has expired", || ask::<i64>(client, &format!("EXISTS {key}")) == 0);
                    self.0.remove(&key);
                }
                command
            }
            16 => self.load_chunks(random, client, &key, &other),
            17 => {
                let Ok(Value::BulkString(payload)) = run(client, &format!("DUMP {key}")) else {
                    return format!("DUMP {key}");
                };
                run_words(client, &[b"RESTORE".as_slice(), other.as_bytes(), b"0", &payload, b"REPLACE"]).unwrap();
                self.put(&other, self.0.get(&key).cloned());
                format!("RESTORE {other} 0 (dump of {key}) REPLACE")
            }
            18 => {
                if random.below(3) > 0 {
                    return String::new();
                }
                run(client, &format!("SET {key} text")).unwrap();
                self.0.remove(&key);
                format!("SET {key} text")
            }
            _ => self.transaction(random, client, &key, &other),
        }
    }

    fn put(&mut self, key: &str, items: Option<BTreeSet<u64>>) {
        match items {
            Some(items) => self.0.insert(key.to_owned(), items),
            None => self.0.remove(key),
        };
    }

    /// Adds items; those that the server acknowledged are there from now on.
    fn add(
        &mut self,
        client: &mut Connection,
        command: &str,
        key: &str,
        options: &[String],
        numbers: &[u64],
    ) -> String {
        let mut words: Vec<Vec<u8>> = [command, key].map(|word| word.as_bytes().to_vec()).to_vec();
        words.extend(options.iter().map(|option| option.as_bytes().to_vec()));
        words.extend(numbers.iter().map(|&number| item(number)));
        let mut packed = redis::Cmd::new();
        packed.arg(&words);
        // The elements of a reply, the last of which may be an error.
        let reply = client.req_packed_command_raw(&packed);
        let acknowledged = match &reply {
            Value::Int(_) => 1,
            Value::Array(answers) => answers.iter().filter(|answer| matches!(answer, Value::Int(_))).count(),
            _ => 0,
        };
        if !matches!(reply, Value::ServerError(_)) {
            self.0.entry(key.to_owned()).or_default().extend(&numbers[..acknowledged]);
        }
        format!("{command} {key} {} {numbers:?}", options.join(" "))
    }

    /// Copies a filter in chunks, which may stop half-way, and go on when the copy has got items of its own.
    fn load_chunks(&mut self, random: &mut Random, client: &mut Connection, from: &str, to: &str) -> String {
        if from == to || !self.0.contains_key(from) {
            return String::new();
        }
        run(client, &format!("DEL {to}")).unwrap();
        self.0.insert(to.to_owned(), BTreeSet::new());
        let stop_after = random.below(8);
        let mut iterator = 0;
        for step in 0.. {
            let (next, data): (u64, Vec<u8>) = ask(client, &format!("BF.SCANDUMP {from} {iterator}"));
            if next == 0 {
                let items = self.0[from].clone();
                self.0.entry(to.to_owned()).or_default().extend(items);
                break;
            }
            let number = next.to_string();
            // A copy that grew on its own has no place for what comes later.
            let loaded = run_words(client, &[b"BF.LOADCHUNK".as_slice(), to.as_bytes(), number.as_bytes(), &data]);
            if step == 0 {
                assert_eq!(loaded, Ok(Value::Okay), "the header of {from}, for {to}");
            }
            if loaded.is_err() || step == stop_after {
                break;
            }
            if random.below(6) == 0 {
                let number = random.below(ITEMS);
                self.add(client, "BF.ADD", to, &[], &[number]);
            }
            iterator = next;
        }
        format!("BF.LOADCHUNK {to} (from {from})")
    }

    /// Several commands at once: in a transaction, or a script.
    fn transaction(&mut self, random: &mut Random, client: &mut Connection, key: &str, other: &str) -> String {
        let numbers = some_items(random, 30);
        let keys = [key, other];
        if random.below(2) == 0 {
            let mut pipe = redis::pipe();
            pipe.atomic().ignore_errors();
            for key in keys {
                pipe.cmd("BF.MADD").arg(key).arg(numbers.iter().map(|&n| item(n)).collect::<Vec<_>>());
            }
            let _: redis::RedisResult<Value> = pipe.query(client);
        } else {
            let script = "for i, key in ipairs(KEYS) do redis.pcall('BF.MADD', key, unpack(ARGV)) end";
            let mut words = ["EVAL", script, "2", key, other].map(|word| word.as_bytes().to_vec()).to_vec();
            words.extend(numbers.iter().map(|&number| item(number)));
            run_words(client, &words).unwrap();
        }
        // What was acknowledged is not looked at here, so ask again: what is there stays.
        for key in keys {
            if ask::<String>(client, &format!("TYPE {key}")) == "oxbloom--" {
                self.0.entry(key.to_owned()).or_default();
                self.add(client, "BF.MADD", key, &[], &numbers);
            }
        }
        format!("transaction on {keys:?} {numbers:?}")
    }
}

/// The reply to a command as it came, errors and all.
trait RawReply {
    fn req_packed_command_raw(&mut self, command: &redis::Cmd) -> Value;
}

impl RawReply for Connection {
    fn req_packed_command_raw(&mut self, command: &redis::Cmd) -> Value {
        self.send_packed_command(&command.get_packed_command()).expect("a connection");
        self.recv_response().expect("a reply")
    }
}

fn some_items(random: &mut Random, most: u64) -> Vec<u64> {
    (0..=random.below(most)).map(|_| random.below(ITEMS)).collect()
}

fn insert_options(random: &mut Random) -> Vec<String> {
    let mut options = Vec::new();
    for (name, value) in [
        ("CAPACITY", random.one_of(&["1", "30", "500"]).to_owned()),
        ("ERROR", random.one_of(&["0.3", "0.02", "0.0001"]).to_owned()),
        ("EXPANSION", (1 + random.below(3)).to_string()),
        ("SEED", random.next().to_string()),
    ] {
        if random.below(3) == 0 {
            options.extend([name.to_owned(), value]);
        }
    }
    for flag in ["NOCREATE", "NONSCALING", "COUNTING", "NX"] {
        if random.below(6) == 0 {
            options.push(flag.to_owned());
        }
    }
    options.push("ITEMS".to_owned());
    options
}

#[test]
fn after_any_commands_a_replica_answers_as_its_master() {
    let mut randoms: Vec<Random> = [1, 2].map(Random).into();
    randoms.push(Random::unpredictable());
    for mut random in randoms {
        let pair = Pair::start();
        let (mut master, mut replica) = pair.clients();
        let mut space = Space::default();
        let mut history = Vec::new();
        for _ in 0..8 {
            history.clear();
            for _ in 0..60 {
                history.push(space.step(&mut random, &mut master));
            }
            wait_for_replica(&mut master, &mut replica);
            assert_eq!(digest(&mut master), digest(&mut replica), "after {history:#?}");
            let all: Vec<u64> = (0..ITEMS).collect();
            for (key, items) in &space.0 {
                let answers: [Vec<u64>; 2] =
                    [&mut master, &mut replica].map(|client| many(client, "BF.MEXISTS", key, &all));
                assert_eq!(answers[0], answers[1], "{key} after {history:#?}");
                let forgotten = items.iter().find(|&&number| answers[0][number as usize] == 0);
                assert_eq!(forgotten, None, "{key} after {history:#?}");
                assert_eq!(filter_info(&mut master, key), filter_info(&mut replica, key));
                let seeds = [&mut master, &mut replica].map(|client| info_field::<String>(client, key, "SEED"));
                assert_eq!(seeds[0], seeds[1]);
            }
        }
        assert!(calls(&mut replica, "bf.madd") > 0 && calls(&mut replica, "bf.reserve") > 0);
        // A replica that joins now has the same from the snapshot alone.
        let late = replica_setup(&pair.master).start();
        let mut reader = late.connect();
        wait_for_replica(&mut master, &mut reader);
        assert_eq!(digest(&mut master), digest(&mut reader), "after {history:#?}");
    }
}

#[test]
fn a_partial_refusal_replicates_what_was_added() {
    let pair = Pair::start();
    let (mut master, mut replica) = pair.clients();
    run(&mut master, "BF.RESERVE key 0.0001 10 NONSCALING").unwrap();
    let refused = try_many(&mut master, "BF.MADD", "key", &(0..30).collect::<Vec<_>>()).unwrap_err();
    assert!(error_text(&refused).contains("non scaling filter is full"), "{refused}");
    assert_eq!(ask::<u64>(&mut master, "BF.CARD key"), 10);
    let mut model = Model::new("key");
    model.items.extend(model.found(&mut master, &(0..30).collect::<Vec<_>>(), true));
    assert!(model.items.len() >= 10);
    assert_alike(&[model], &mut master, &mut replica);
    assert_eq!(ask::<u64>(&mut replica, "BF.CARD key"), 10);
}
