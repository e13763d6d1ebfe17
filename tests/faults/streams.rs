//! Replication streams that break off or have flipped bits. The replica rejects the data with a log line, or its
//! filters are intact. In the end, it gets all filters.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult};

use super::damage::{REJECTIONS, assert_no_crash, assert_rejected, check_accepted, fill};
use models::random::Random;
use testkit::command::{ABSENT, many};
use testkit::filter_model::FilterModel;
use testkit::info::{LAYOUTS, digest_of, info, is_foreign};
use testkit::memory::limited;
use testkit::proxy::{Damage, Place, Proxy};
use testkit::replication::{assert_synchronized, follow, wait_for_replica};
use testkit::server::{wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, run, run_words};

/// The log lines of a replica that is about to get a snapshot, of any server version.
const BEGUN: [&str; 2] = ["Full resync from", "Starting to receive RDB"];

fn is_linked(replica: &mut Connection) -> bool {
    info(replica, "replication", "master_link_status") == "up"
}

/// Returns true if a replica answers, and neither waits for a snapshot nor loads one.
fn is_settled(replica: &Server) -> bool {
    let ask = || -> RedisResult<String> {
        let client = Client::open(("127.0.0.1", replica.port))?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
        connection.set_read_timeout(Some(Duration::from_secs(1)))?;
        redis::cmd("INFO").query(&mut connection)
    };
    let facts = ask().unwrap_or_default();
    ["master_sync_in_progress:0", "loading:0"].iter().all(|fact| facts.lines().any(|line| line == *fact))
}

/// Waits until the log of a replica, from byte `from` on, says that it has synchronized or rejected the data. Returns
/// true if the replica has exited or is about to. (Some servers first examine the rejected file, and never finish.)
fn ends(replica: &mut Server, from: usize) -> bool {
    const GRACE: Duration = Duration::from_millis(300);
    let mut rejected: Option<Instant> = None;
    let mut ends = false;
    wait_until("the replica has synchronized or rejected the data", || {
        ends = !replica.is_running() || rejected.is_some_and(|rejected| rejected.elapsed() > GRACE);
        let log = &replica.log()[from..];
        if rejected.is_none() && log.contains("Internal error in RDB reading") {
            rejected = Some(Instant::now());
        }
        ends || BEGUN.iter().any(|words| log.contains(words)) && is_settled(replica)
    });
    ends
}

/// Synchronizes replicas, first with damage to the data on its way, then without. (`resync` cuts the link.)
fn synchronize_with_damage(random: &mut Random, diskless: &str, load: &str, checksum: &str) {
    let master = with_debug(Setup::oxbloom())
        .set("repl-diskless-sync-delay 0")
        .set("rdbcompression no")
        .set(format!("repl-diskless-sync {diskless}"))
        .set(format!("rdbchecksum {checksum}"))
        .start();
    let mut client = master.connect();
    let recorded = fill(&mut client);
    run(&mut client, "SAVE").unwrap();
    let length = fs::metadata(master.folder().join("dump.rdb")).unwrap().len();
    let proxy = Proxy::to(&master);
    // If a bit of a length flips, a replica may wait for data that never comes.
    let setup =
        || limited(with_debug(Setup::oxbloom())).set(format!("repl-diskless-load {load}")).set("repl-timeout 10");
    for was_replica in [true, false] {
        let mut replica = setup().start();
        let mut reader = replica.connect();
        if was_replica {
            follow(&mut reader, proxy.port);
            wait_for_replica(&mut client, &mut reader);
            run(&mut reader, "REPLICAOF NO ONE").unwrap();
        }
        let damage = Damage::Flip(1 << random.below(8));
        let place = Place::OfSnapshot(random.below(length));
        println!("{damage:?} {place:?} of {length}, diskless {diskless}, load {load}, checksum {checksum}");
        proxy.plan(place, damage);
        let logged = replica.log().len();
        follow(&mut reader, proxy.port);
        wait_until("the damage is done", || proxy.is_broken());
        if ends(&mut replica, logged) {
            assert_rejected(&replica.log());
            // The damaged snapshot may already have replaced the old one.
            replica = setup().on(replica.kill()).attempt(REJECTIONS).unwrap_or_else(|log| {
                assert_rejected(&log);
                setup().start()
            });
            reader = replica.connect();
            recorded.check_existing(&mut reader);
            proxy.mend();
            follow(&mut reader, proxy.port);
        } else if is_linked(&mut reader) {
            run(&mut reader, "REPLICAOF NO ONE").unwrap();
            check_accepted(checksum, &recorded, &mut reader);
            proxy.mend();
            follow(&mut reader, proxy.port);
        } else {
            assert_rejected(&replica.log());
            recorded.check_existing(&mut reader);
            proxy.mend();
        }
        assert_synchronized(&mut client, &mut reader, "in the end");
        recorded.check(&mut reader);
        assert_no_crash(&replica.log());
    }
}

#[test]
fn a_damaged_synchronization_is_rejected_or_its_filters_are_intact() {
    let mut random = Random::unpredictable();
    thread::scope(|scope| {
        for (diskless, load) in [("no", "disabled"), ("yes", "disabled"), ("yes", "swapdb")] {
            for checksum in ["yes", "no"] {
                // The replicas run in parallel, since some check only once a second if they have all data.
                for mut random in [(); 2].map(|()| Random(random.next_u64())) {
                    scope.spawn(move || synchronize_with_damage(&mut random, diskless, load, checksum));
                }
            }
        }
    });
}

#[test]
fn a_replica_survives_damaged_commands_and_can_be_synchronized_again() {
    let mut random = Random::unpredictable();
    thread::scope(|scope| {
        for mut random in [(); 3].map(|()| Random(random.next_u64())) {
            scope.spawn(move || write_with_damage(&mut random));
        }
    });
}

/// Writes to the master many times, with damage to the replica's stream.
fn write_with_damage(random: &mut Random) {
    let master = with_debug(Setup::oxbloom()).set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    let recorded = fill(&mut client);
    let mut models: Vec<FilterModel> = recorded.models().filter(|model| !model.is_fixed()).cloned().collect();
    let proxy = Proxy::to(&master);
    let mut replica = limited(with_debug(Setup::oxbloom())).start();
    let mut reader = replica.connect();
    follow(&mut reader, proxy.port);
    wait_for_replica(&mut client, &mut reader);
    for round in 0..8 {
        let damage = if round % 4 == 0 { Damage::Cut } else { Damage::Flip(1 << random.below(8)) };
        let place = Place::FromNow(random.below(20_000));
        println!("{damage:?} {place:?}");
        proxy.plan(place, damage);
        while !proxy.is_broken() {
            write_in_every_way(random, &mut models, &master, &mut client);
        }
        write_in_every_way(random, &mut models, &master, &mut client);
        if let Damage::Flip(_) = damage {
            // The replica may also wait for the data that a flipped length has announced.
            for _ in 0..100 {
                let offsets = [(&mut client, "master_repl_offset"), (&mut reader, "slave_repl_offset")]
                    .map(|(client, field)| info(client, "replication", field));
                if offsets[0] == offsets[1] || !is_linked(&mut reader) {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(replica.is_running(), "{}", replica.log());
        for key in ask::<Vec<Vec<u8>>>(&mut reader, "KEYS *") {
            let found = run_words(&mut reader, &[b"BF.MEXISTS", &key[..], b"a", b"b", b"c"]).unwrap();
            assert_eq!(redis::from_redis_value::<Vec<bool>>(found).unwrap().len(), 3);
        }
        proxy.mend();
        if let Damage::Flip(_) = damage {
            run(&mut reader, "REPLICAOF NO ONE").unwrap();
            follow(&mut reader, proxy.port);
        }
        assert_synchronized(&mut client, &mut reader, "in the end");
    }
    models.iter().for_each(|model| drop(model.observe(&mut reader)));
    assert_no_crash(&replica.log());
}

#[test]
fn a_chunk_that_is_damaged_on_its_way_to_a_replica_is_rejected_there_and_the_log_names_the_filter() {
    let master = with_debug(Setup::oxbloom()).set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    let proxy = Proxy::to(&master);
    let replica = with_debug(Setup::oxbloom()).start();
    let mut reader = replica.connect();
    follow(&mut reader, proxy.port);
    for (copy, words) in LAYOUTS.into_iter().filter(|(layout, _)| !is_foreign(layout)) {
        run(&mut client, &format!("BF.RESERVE whole 0.01 100000 {words}")).unwrap();
        FilterModel::new("whole").add(&mut client, 0..1000);
        let chunks = Wire::resp2(&master).scan_dump("whole");
        let [(header_cursor, header), (cursor, chunk)] = &chunks[..] else { panic!("{} chunks", chunks.len()) };
        Wire::resp2(&master).load_chunk(copy, *header_cursor, header);
        wait_for_replica(&mut client, &mut reader);
        proxy.plan(Place::FromNow(chunk.len() as u64 / 2), Damage::Flip(1));
        Wire::resp2(&master).load_chunk(copy, *cursor, chunk);
        let rejection = format!("rejected BF.LOADCHUNK '{copy}' from the master or the append-only file: ");
        wait_until("the chunk is rejected", || replica.log().contains(&rejection));
        assert_ne!(digest_of(&mut client, copy), digest_of(&mut reader, copy));
        // docs/operating.md advises this.
        run(&mut reader, "REPLICAOF NO ONE").unwrap();
        proxy.mend();
        follow(&mut reader, proxy.port);
        assert_synchronized(&mut client, &mut reader, "in the end");
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// Adds items to filters of all layouts, removes items from some, creates filters, and copies one in chunks.
fn write_in_every_way(random: &mut Random, models: &mut [FilterModel], master: &Server, client: &mut Connection) {
    for model in models.iter_mut() {
        let first = random.below(1 << 30);
        model.add(client, first..first + 5);
        let numbers: Vec<u64> = (ABSENT..ABSENT + 5).collect();
        if model.key.starts_with("counting") {
            let _: Vec<u64> = many(client, "BF.MADD", &model.key, &numbers);
            let _: Vec<u64> = many(client, "BF.MDEL", &model.key, &numbers);
        }
    }
    let new = format!("new-{}", random.below(20));
    run(client, &format!("BF.INSERT {new} CAPACITY 20 ITEMS a b c")).unwrap();
    let from = random.one_of(&["native-grown", "counting-grown", "windowed-grown"]);
    run(client, "DEL copy").unwrap();
    let mut wire = Wire::resp2(master);
    for (cursor, data) in wire.scan_dump(from) {
        assert_eq!(wire.load_chunk("copy", cursor, &data), Reply::simple("OK"));
    }
}
