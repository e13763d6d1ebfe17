//! A replica gives the same replies as its master, whatever its own defaults are. Commands that changed nothing are not
//! replicated.

use redis::{Connection, Value};

use models::random::Random;
use testkit::command::{item, try_many};
use testkit::filter_model::{FilterModel, various};
use testkit::info::{assert_figures_add_up, calls, digest, digest_of, filter_info, info_field, info_number};
use testkit::keyspace_workload::KeyspaceWorkload;
use testkit::replication::{Pair, start_replica, wait_for_replica};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::{Setup, ask, error, error_text, run, run_words};

/// Starts a master, and a replica with other defaults.
pub(crate) fn pair() -> Pair {
    Pair::start(master_setup(), replica_setup())
}

pub(crate) fn master_setup() -> Setup {
    with_debug(Setup::oxbloom())
        .module_arguments("error-rate 0.02 initial-size 20 lookahead-size 1 cf-initial-size 20")
        .set("repl-diskless-sync-delay 0")
}

pub(crate) fn replica_setup() -> Setup {
    with_debug(Setup::oxbloom())
        .module_arguments("error-rate 0.3 initial-size 5 expansion-factor 7 cf-layout classic cf-bucket-size 5")
        .set("repl-diskless-sync-delay 0")
}

fn assert_alike(models: &[FilterModel], master: &mut Connection, replica: &mut Connection) {
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
        let replica = start_replica(&master, replica_setup().set(format!("repl-diskless-load {load}")));
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
    let pair = pair();
    let (mut master, mut replica) = pair.clients();
    let mut models = various(&mut master);
    for key in ["add", "madd", "insert"] {
        models.push(FilterModel::new(key));
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
        assert_eq!(layers[0].len(), 3, "{key} has not grown");
    }
    // Seeds differ between filters.
    assert_ne!(info_field::<String>(&mut master, "add", "SEED"), info_field::<String>(&mut master, "madd", "SEED"));
}

#[test]
fn a_replica_creates_cuckoo_filters_with_all_options() {
    let pair = pair();
    let (mut master, mut replica) = pair.clients();
    for (key, command) in [
        ("added", "CF.ADD added a"),
        ("reserved", "CF.RESERVE reserved 100 BUCKETSIZE 4 MAXITERATIONS 7 EXPANSION 4 SEED 5 ERROR 0.001"),
        ("seeded", "CF.INSERT seeded CAPACITY 100 SEED 5 ERROR 0.001 ITEMS a a b"),
        ("new", "CF.INSERTNX new LAYOUT native CAPACITY 50 ITEMS a a b"),
        ("classic", "CF.INSERT classic LAYOUT classic CAPACITY 50 ITEMS a a b"),
        ("expiring", "CF.INSERT expiring EX 1000 ITEMS a"),
        ("expiring-classic", "CF.INSERTNX expiring-classic PX 1000000 LAYOUT classic ITEMS a b"),
    ] {
        run(&mut master, command).unwrap();
        wait_for_replica(&mut master, &mut replica);
        let infos = [&mut master, &mut replica].map(|client| ask::<String>(client, &format!("CF.DEBUG {key}")));
        assert_eq!(infos[0], infos[1], "{command}");
        assert_eq!(digest(&mut master), digest(&mut replica), "{command}");
        let times = [&mut master, &mut replica].map(|client| ask::<i64>(client, &format!("PTTL {key}")));
        assert!(times.iter().all(|&time| (time > 900_000) == key.starts_with("expiring")), "{command}: {times:?}");
    }
}

#[test]
fn commands_that_changed_nothing_are_not_replicated() {
    let pair = pair();
    let (mut master, mut replica) = pair.clients();
    let mut model = FilterModel::new("key");
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
    // All new items arrive in one more command.
    assert!(model.add(&mut master, 1500..2400) > 0);
    wait_for_replica(&mut master, &mut replica);
    assert_eq!(calls(&mut replica, "bf.madd"), before[0] + 1);
    assert_alike(&[model], &mut master, &mut replica);
}

#[test]
fn transactions_scripts_and_functions_replicate() {
    let pair = pair();
    let (mut master, mut replica) = pair.clients();
    let mut model = FilterModel::new("multi");
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
    // The client can wait until the replica has its writes.
    assert_eq!(ask::<i64>(&mut master, "WAIT 1 240000"), 1);
    assert_alike(&[model], &mut master, &mut replica);
    for key in keys {
        assert_eq!(filter_info(&mut master, key), filter_info(&mut replica, key));
        assert_eq!(digest_of(&mut master, key), digest_of(&mut replica, key));
    }
    assert_eq!(ask::<Vec<u64>>(&mut replica, "BF.MEXISTS lua 1 2"), [1, 1]);
}

#[test]
fn a_replica_serves_reads_and_rejects_writes_until_it_is_promoted() {
    let pair = pair();
    let (mut master, mut replica) = pair.clients();
    let mut model = FilterModel::new("key");
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
    // Existing filters grow by their own parameters, and new ones get the replica's defaults.
    assert_eq!(info_field::<u64>(&mut replica, "key", "EXPANSION"), 2);
    run(&mut replica, "BF.ADD new item").unwrap();
    assert_eq!(info_field::<u64>(&mut replica, "new", "EXPANSION"), 7);
    let observed = model.observe(&mut replica);
    // The old master becomes a replica of the new one.
    run(&mut master, &format!("REPLICAOF 127.0.0.1 {}", pair.replica.port)).unwrap();
    wait_for_replica(&mut replica, &mut master);
    assert_eq!(model.observe(&mut master), observed);
    assert_eq!(digest(&mut replica), digest(&mut master));
}

#[test]
fn a_replica_that_lost_its_link_catches_up() {
    let pair = Pair::start(master_setup().set("repl-backlog-size 16mb"), replica_setup());
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
fn a_replica_of_a_replica_gives_the_same_replies() {
    let pair = pair();
    let last = start_replica(&pair.replica, replica_setup());
    let (mut master, mut replica) = pair.clients();
    let mut end = last.connect();
    let models = various(&mut master);
    assert_alike(&models, &mut master, &mut replica);
    assert_alike(&models, &mut replica, &mut end);
    assert_eq!(digest(&mut master), digest(&mut end));
}

#[test]
fn a_replica_gets_a_filter_that_is_loaded_in_part() {
    let master = master_setup().start();
    let mut client = master.connect();
    let mut model = FilterModel::new("whole");
    model.add(&mut client, 0..500);
    let mut cursor = 0;
    let mut replica = None;
    loop {
        let (next, data): (u64, Vec<u8>) = ask(&mut client, &format!("BF.SCANDUMP whole {cursor}"));
        if next == 0 {
            break;
        }
        let number = next.to_string();
        run_words(&mut client, &[b"BF.LOADCHUNK".as_slice(), b"copy", number.as_bytes(), &data]).unwrap();
        if replica.is_none() {
            let started = start_replica(&master, replica_setup());
            assert_eq!(digest(&mut client), digest(&mut started.connect()));
            replica = Some(started);
        }
        cursor = next;
    }
    let copy = model.at("copy");
    assert_alike(&[model, copy], &mut client, &mut replica.expect("started above").connect());
}

#[test]
fn after_any_commands_a_replica_gives_the_same_replies_as_its_master() {
    let mut randoms: Vec<Random> = [1, 2].map(Random).into();
    randoms.push(Random::unpredictable());
    for mut random in randoms {
        let pair = pair();
        let (mut master, mut replica) = pair.clients();
        let mut keyspace = KeyspaceWorkload::new("");
        let mut history = Vec::new();
        for _ in 0..8 {
            history.clear();
            for _ in 0..60 {
                history.push(keyspace.step(&mut random, &mut master));
            }
            wait_for_replica(&mut master, &mut replica);
            assert_eq!(digest(&mut master), digest(&mut replica), "after {history:#?}");
            [&mut master, &mut replica].into_iter().for_each(assert_figures_add_up);
            keyspace.check([&mut master, &mut replica]).unwrap_or_else(|fault| panic!("{fault} after {history:#?}"));
        }
        assert!(calls(&mut replica, "bf.madd") > 0 && calls(&mut replica, "bf.reserve") > 0);
        // A replica that joins now gets the same data from the snapshot alone.
        let late = start_replica(&pair.master, replica_setup());
        let mut reader = late.connect();
        assert_eq!(digest(&mut master), digest(&mut reader), "after {history:#?}");
        assert_figures_add_up(&mut reader);
    }
}

#[test]
fn items_that_were_added_before_a_rejection_are_replicated() {
    let pair = pair();
    let (mut master, mut replica) = pair.clients();
    run(&mut master, "BF.RESERVE key 0.0001 10 NONSCALING").unwrap();
    let rejected = try_many(&mut master, "BF.MADD", "key", &(0..30).collect::<Vec<_>>()).unwrap_err();
    assert!(error_text(&rejected).contains("non scaling filter is full"), "{rejected}");
    assert_eq!(ask::<u64>(&mut master, "BF.CARD key"), 10);
    let mut model = FilterModel::new("key");
    model.items.extend(model.with_reply(&mut master, &(0..30).collect::<Vec<_>>(), true));
    assert!(model.items.len() >= 10);
    assert_alike(&[model], &mut master, &mut replica);
    assert_eq!(ask::<u64>(&mut replica, "BF.CARD key"), 10);
}
