//! A replica gives the same replies as its master, whatever its own defaults are. Commands that changed nothing are not
//! replicated.

use redis::{Connection, Value};

use testkit::clock::with_clock;
use testkit::command::{many, try_many};
use testkit::filter_model::{FilterModel, various};
use testkit::info::{calls, digest, info_field, info_number};
use testkit::memory::starving;
use testkit::replication::{Pair, assert_synchronized, start_replica, wait_for_replica};
use testkit::server::{wait_until, with_debug};
use testkit::wire::Wire;
use testkit::{Setup, ask, error, run};

/// Starts a master, and a replica with other defaults.
pub(crate) fn pair() -> Pair {
    Pair::start(master_setup(), replica_setup())
}

pub(crate) fn master_setup() -> Setup {
    with_debug(Setup::oxbloom())
        .module_arguments("error-rate 0.02 initial-size 20 lookahead on lookahead-size 1 cf-initial-size 20")
        .set("repl-diskless-sync-delay 0")
}

pub(crate) fn replica_setup() -> Setup {
    with_debug(Setup::oxbloom())
        .module_arguments("error-rate 0.3 initial-size 5 expansion-factor 7 cf-layout classic cf-bucket-size 5")
        .set("repl-diskless-sync-delay 0")
}

fn assert_alike(models: &[FilterModel], master: &mut Connection, replica: &mut Connection) {
    assert_synchronized(master, replica, "in the end");
    for model in models {
        assert_eq!(model.observe(master), model.observe(replica), "{}", model.key);
    }
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
fn items_are_replicated_one_by_one_if_there_is_no_memory_for_one_command() {
    /// The size of the arguments of one command, in bytes, and less than it.
    const LEAST: u64 = 2000 * size_of::<usize>() as u64;
    let pair = Pair::start(with_clock(), with_clock());
    let ((mut client, mut reader), mut wire) = (pair.clients(), Wire::resp2(&pair.master));
    for (options, verb) in [("", "bf.madd"), ("WINDOW 60", "bf.insert")] {
        run(&mut client, &format!("BF.RESERVE key 0.01 100000 {options}")).unwrap();
        many::<bool>(&mut client, "BF.ADD", "key", &[0]);
        for request in 1.. {
            let numbers: Vec<u64> = std::iter::once(0).chain(request * 10_000..request * 10_000 + 3000).collect();
            let add = |_: &mut Wire| try_many(&mut client, "BF.MADD", "key", &numbers);
            let (added, requests) = starving(&mut wire, request, LEAST, add);
            if requests < request {
                added.unwrap();
                break;
            }
        }
        assert_synchronized(&mut client, &mut reader, options);
        assert!(calls(&mut reader, verb) >= 2000, "{verb}");
        run(&mut client, "FLUSHALL").unwrap();
    }
}
