//! Full synchronizations that break off. The replica then has all its old data, no data, or all the new data, but never
//! a part.

use std::thread;

use redis::Connection;

use models::random::Random;
use testkit::filter_model::{FilterModel, various};
use testkit::info::{digest, info, info_number, used_memory};
use testkit::memory::{MIB, create};
use testkit::proxy::{Damage, Place, Proxy};
use testkit::replication::{assert_synchronized, follow, wait_for_replica};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::{Server, Setup, ask, error, run};

/// The maximum number of bytes that a connecting replica gets before the snapshot.
const GREETING: u64 = 10_000;

/// Returns the values of `repl-diskless-load` that this server supports.
fn loads() -> Vec<&'static str> {
    let server = Setup::without_module().start();
    let mut client = server.connect();
    let all = ["disabled", "on-empty-db", "swapdb", "flush-before-load"];
    let loads =
        all.into_iter().filter(|load| run(&mut client, &format!("CONFIG SET repl-diskless-load {load}")).is_ok());
    let loads: Vec<_> = loads.collect();
    assert!(loads.len() >= 3, "{loads:?}");
    loads
}

/// Starts a master with a small replication backlog.
fn forgetful_master(sync: &str) -> Server {
    with_debug(Setup::oxbloom())
        .set(format!("repl-diskless-sync {sync}"))
        .set("repl-diskless-sync-delay 0")
        .set("repl-backlog-size 16kb")
        .set("rdbcompression no")
        .start()
}

fn replica_that_loads(load: &str) -> Setup {
    with_debug(Setup::oxbloom()).set(format!("repl-diskless-load {load}")).set("repl-backlog-size 16kb")
}

/// Changes so much data while the link is down that the replica needs a full synchronization.
fn diverge(client: &mut Connection, models: &mut Vec<FilterModel>) {
    models.iter_mut().filter(|model| !model.is_fixed()).for_each(|model| {
        model.add(client, 30_000..31_000);
    });
    let gone = models.remove(0);
    run(client, &format!("DEL {}", gone.key)).unwrap();
    let mut new = FilterModel::new("new");
    new.add(client, 0..3000);
    models.push(new);
}

/// Cuts the link after `bytes` bytes, and waits until the replica has handled the failure.
fn cut(proxy: &Proxy, bytes: u64, replica: &mut Connection) {
    proxy.plan(Place::OfConnection(bytes), Damage::Cut);
    wait_until("the link is cut", || proxy.is_broken());
    wait_until("the replica has noticed", || {
        info(replica, "replication", "master_link_status") == "down"
            && info_number(replica, "replication", "master_sync_in_progress") == 0
            && info_number(replica, "persistence", "loading") == 0
    });
}

/// Checks that a replica frees the memory of a failed synchronization, which it may do in the background.
fn assert_memory_returns(replica: &mut Connection, before: u64) {
    wait_until("the memory has returned", || used_memory(replica) < before + MIB);
}

#[test]
fn a_replica_has_its_old_data_or_none_whenever_the_link_breaks() {
    let mut random = Random::unpredictable();
    thread::scope(|scope| {
        for load in loads() {
            for sync in ["no", "yes"] {
                let random = Random(random.next_u64());
                scope.spawn(move || cut_again_and_again(load, sync, random));
            }
        }
    });
}

fn cut_again_and_again(load: &str, sync: &str, mut random: Random) {
    let master = forgetful_master(sync);
    let mut client = master.connect();
    let mut models = various(&mut client);
    let proxy = Proxy::to(&master);
    let replica = replica_that_loads(load).start();
    let mut reader = replica.connect();

    let idle = used_memory(&mut reader);
    proxy.cut();
    follow(&mut reader, proxy.port);
    cut(&proxy, GREETING + random.below(MIB), &mut reader);
    assert_eq!(ask::<u64>(&mut reader, "DBSIZE"), 0, "{load} {sync}");
    assert_memory_returns(&mut reader, idle);

    let before = proxy.passed();
    proxy.mend();
    wait_for_replica(&mut client, &mut reader);
    let (whole, old, full) = (proxy.passed() - before, digest(&mut reader), used_memory(&mut reader));
    assert_eq!(old, digest(&mut client), "{load} {sync}");
    assert!(whole > 2 * MIB, "{whole}");
    proxy.cut();
    let old_models = models.clone();
    diverge(&mut client, &mut models);
    for bytes in [random.below(whole), random.below(whole), whole / 2] {
        cut(&proxy, 1 + bytes, &mut reader);
        let flushed = load == "flush-before-load" && ask::<u64>(&mut reader, "DBSIZE") == 0;
        if flushed {
            assert_memory_returns(&mut reader, idle);
            continue;
        }
        assert_eq!(digest(&mut reader), old, "{load} {sync}: cut at {bytes} of {whole}");
        old_models.iter().for_each(|model| {
            model.observe(&mut reader);
        });
        assert_memory_returns(&mut reader, full);
        assert!(load != "flush-before-load" || bytes != whole / 2, "{load} {sync}: the old data is still present");
    }
    proxy.mend();
    assert_synchronized(&mut client, &mut reader, &format!("{load} {sync}"));
    models.iter().for_each(|model| assert_eq!(model.observe(&mut reader), model.observe(&mut client)));
    for alarm in ["bf_rejected_data", "bf_rejected_replicated"] {
        assert_eq!(info_number(&mut reader, "bf", alarm), 0, "{load} {sync}: {alarm}");
    }
    let log = replica.log();
    let skipped = log.lines().find(|line| line.contains("Skipping diskless-load"));
    assert_eq!(skipped, None, "{load} {sync}");
}

#[test]
fn a_replica_answers_from_its_old_data_while_it_loads_the_new() {
    // In earlier versions, all commands wait until the data is loaded.
    if server_version() < (7, 0) {
        return;
    }
    let master = forgetful_master("yes");
    let mut client = master.connect();
    let mut models = various(&mut client);
    let proxy = Proxy::to(&master);
    let replica = replica_that_loads("swapdb")
        .module_arguments("lookahead on lookahead-size 1 filter-memory-limit 100kb")
        .set("replica-read-only no")
        .set("loading-process-events-interval-bytes 1024")
        .start();
    let mut reader = replica.connect();
    follow(&mut reader, proxy.port);
    wait_for_replica(&mut client, &mut reader);
    let whole = proxy.passed();
    let (mut old, was) = (models.clone(), digest(&mut reader));
    old.retain(|model| ["doubled", "counting-doubled", "classic-doubled"].contains(&&*model.key));
    let mut changed = was.clone();
    for round in 0..3 {
        proxy.cut();
        if round == 0 {
            diverge(&mut client, &mut models);
        }
        proxy.slow_after(GREETING + round * whole / 3);
        let is_loading = |reader: &mut Connection| info_number(reader, "persistence", "async_loading") == 1;
        wait_until("the replica loads", || is_loading(&mut reader));
        for model in &mut old {
            model.observe(&mut reader);
            // Clients can write to this replica, since its operator allows it. The synchronization discards these
            // writes.
            let number = 50_000 + round;
            model.add(&mut reader, number..number + 1);
        }
        // Commands of the master are not checked against the limits, but commands of clients are.
        let rejection = error(&mut reader, "BF.RESERVE rejected 0.01 1000000");
        assert_eq!(rejection, create::FILTER_LIMIT);
        assert_eq!(error(&mut reader, "BF.INSERT rejected NOSUCHWORD ITEMS item"), "Unknown argument received");
        changed = digest(&mut reader);
        assert!(is_loading(&mut reader), "the link was not slow enough");
        if round < 2 {
            proxy.cut();
            wait_until("the replica has noticed", || !is_loading(&mut reader));
            assert_eq!(digest(&mut reader), changed);
            old.iter().for_each(|model| {
                model.observe(&mut reader);
            });
        }
    }
    assert_ne!(changed, was);
    proxy.mend();
    assert_synchronized(&mut client, &mut reader, "in the end");
    models.iter().for_each(|model| assert_eq!(model.observe(&mut reader), model.observe(&mut client)));
}
