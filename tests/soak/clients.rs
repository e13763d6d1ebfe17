//! Many clients, a replica, and an operator that saves and loads files. Each client has keys of its own, and a model of
//! their content. At intervals, all clients pause, and the content of both servers is compared with the models.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, Value};
use tempfile::TempDir;

use models::random::Random;
use testkit::info::{assert_figures_add_up, digest, info, info_number};
use testkit::keyspace_workload::KeyspaceWorkload;
use testkit::persistence::wait_for_bgsave;
use testkit::replication::{start_replica, wait_for_replica};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::windowed_workload::{Window, WindowedWorkload};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, run, run_words};

const CLIENTS: u64 = 20;

/// The longest time between two pauses.
const STRETCH: Duration = Duration::from_secs(10);

/// Log lines that only appear if something is wrong.
const ALARMS: [&str; 4] = ["internal error", "BUG REPORT", "rejected a filter", "failed"];

/// The memory that may remain in use after all keys are deleted, in bytes. This is less than a byte for each step of a
/// run of half a minute.
const SLACK: u64 = 64 << 10;

pub(crate) fn soak(time: Duration, mut random: Random) {
    let ends = Instant::now() + time;
    let master = master();
    let mut operator = master.connect();
    let mut replica = follow(&master, TempDir::new().expect("a temporary folder"));
    // The first script allocates memory that stays in use.
    run_words(&mut operator, &["EVAL", "return 1", "0"]).expect("a script that runs");
    let before = held(&mut operator);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|number| Client::new(&master, number, random.next_u64())).collect();
    let (mut pauses, mut peak) = (0, before);
    while pauses == 0 || Instant::now() < ends {
        let pause = ends.min(Instant::now() + STRETCH);
        thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(move || {
                    while Instant::now() < pause {
                        client.step();
                    }
                });
            }
            while Instant::now() < pause {
                operate(&mut random, &mut operator);
            }
        });
        reload(&mut random, &mut operator);
        compare(&mut clients, &master, &replica);
        peak = peak.max(held(&mut operator));
        replica = restart(&mut random, &master, replica);
        pauses += 1;
    }
    let steps: u64 = clients.iter().map(|client| client.steps).sum();
    assert!(steps > 0 && peak > before + SLACK, "{steps} steps, {peak} bytes");
    assert_eq!(run(&mut operator, "FLUSHALL SYNC"), Ok(Value::Okay));
    drop(clients);
    wait_until("the memory is freed", || held(&mut operator) < before + SLACK);
    let after = held(&mut operator);
    for server in [&master, &replica] {
        let log = server.log();
        assert!(!ALARMS.iter().any(|alarm| log.contains(alarm)), "{log}");
    }
    println!(
        "{CLIENTS} clients took {steps} steps, with {pauses} pauses. Memory in bytes: {before} at first, up to {peak}, \
         then {after}."
    );
}

/// Starts a server that writes everything to an append-only file.
fn master() -> Server {
    let setup = with_debug(Setup::oxbloom())
        .module_arguments("lookahead on lookahead-size 1")
        .set("repl-diskless-sync-delay 0");
    let setup = setup.set("appendonly yes").set("appendfsync no").set("aof-use-rdb-preamble no");
    // With latency tracking, the server keeps a histogram for each command that it has run.
    if server_version() >= (7, 0) { setup.set("latency-tracking no").start() } else { setup.start() }
}

/// Starts a replica of the master, with other defaults and with these files.
fn follow(master: &Server, folder: TempDir) -> Server {
    let setup = with_debug(Setup::oxbloom()).module_arguments("error-rate 0.3 initial-size 5 expansion-factor 7");
    start_replica(master, setup.on(folder))
}

/// Returns the memory that the server uses, without its buffers for clients, replicas and files.
fn held(client: &mut Connection) -> u64 {
    let mut number = |field: &str| info_number(client, "memory", field);
    let buffers = ["mem_clients_normal", "mem_clients_slaves", "mem_replication_backlog", "mem_aof_buffer"];
    let buffers: u64 = buffers.into_iter().map(&mut number).sum();
    number("used_memory").saturating_sub(buffers)
}

/// Performs an action of the operator while the clients run commands.
fn operate(random: &mut Random, client: &mut Connection) {
    match random.below(3) {
        // The reply is an error if a save or a rewrite is already running.
        0 => drop(run(client, "BGSAVE")),
        1 => drop(run(client, "BGREWRITEAOF")),
        _ => drop(run(client, "INFO everything").expect("the server's information")),
    }
    thread::sleep(Duration::from_millis(200));
    for (field, what) in [("rdb_last_bgsave_status", "a snapshot"), ("aof_last_bgrewrite_status", "a rewrite")] {
        assert_eq!(info(client, "persistence", field), "ok", "{what} failed");
    }
}

/// Reloads all data from a snapshot or from the append-only file. The clients must pause: the server does not replicate
/// the expiry of a key during such a reload.
fn reload(random: &mut Random, client: &mut Connection) {
    // A running save would replace the snapshot that is to be read.
    wait_for_bgsave(client);
    assert_eq!(run(client, random.one_of(&["DEBUG RELOAD", "DEBUG LOADAOF"])), Ok(Value::Okay));
}

/// Panics if any content is missing, or differs on the replica.
fn compare(clients: &mut [Client], master: &Server, replica: &Server) {
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    let servers = [master, replica].map(Server::connect);
    let digests = servers.map(|mut client| {
        assert_figures_add_up(&mut client);
        digest(&mut client)
    });
    assert_eq!(digests[0], digests[1], "the digests of the master and the replica");
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| {
                let (mut master, mut replica) = (master.connect(), replica.connect());
                client.keyspace.check([&mut master, &mut replica]).unwrap_or_else(|fault| panic!("{fault}"));
                for server in [&mut master, &mut replica] {
                    client.windowed.iter().for_each(|filter| filter.check(server));
                }
            });
        }
    });
}

/// Keeps the replica, or replaces it by another that starts with its snapshot or without data.
fn restart(random: &mut Random, master: &Server, replica: Server) -> Server {
    let folder = match random.below(3) {
        0 => return replica,
        1 => {
            assert_eq!(run(&mut replica.connect(), "SAVE"), Ok(Value::Okay));
            replica.kill()
        }
        _ => {
            drop(replica);
            TempDir::new().expect("a temporary folder")
        }
    };
    follow(master, folder)
}

/// A client, with the models of its keys.
struct Client {
    random: Random,
    connection: Connection,
    wire: Wire,
    keyspace: KeyspaceWorkload,
    windowed: Vec<WindowedWorkload>,
    steps: u64,
}

impl Client {
    fn new(server: &Server, number: u64, seed: u64) -> Client {
        let mut wire = Wire::resp2(server);
        let windowed = [(20, 1, 2, false), (300, 3, 8, true), (2000, 7, 64, false)];
        let windowed = windowed.map(|(capacity, length, slices, refresh)| {
            let window = Window { capacity, length, slices, refresh };
            WindowedWorkload::create(&mut wire, &format!("{number}:window-{length}"), number, window)
        });
        Client {
            random: Random(seed),
            connection: server.connect(),
            wire,
            keyspace: KeyspaceWorkload::new(&format!("{number}:")),
            windowed: windowed.into(),
            steps: 0,
        }
    }

    fn step(&mut self) {
        let Client { random, connection, wire, keyspace, windowed, steps } = self;
        let window = &mut windowed[random.below(3) as usize];
        match random.below(24) {
            0..20 => drop(keyspace.step(random, connection).expect("a server that replies")),
            20..23 => window.add(random, wire),
            _ => move_elsewhere_and_back(random, wire, &window.key),
        }
        *steps += 1;
    }
}

/// Replaces a filter by a copy of itself.
fn move_elsewhere_and_back(random: &mut Random, client: &mut Wire, key: &str) {
    let elsewhere = format!("{key}-elsewhere");
    match random.below(3) {
        0 => assert_eq!(client.run(&format!("COPY {key} {elsewhere}")), Reply::Integer(1)),
        1 => {
            let payload = client.run(&format!("DUMP {key}"));
            let restored = client.run_words(&[b"RESTORE", elsewhere.as_bytes(), b"0", payload.bytes()]);
            assert_eq!(restored, Reply::simple("OK"));
        }
        _ => {
            for (cursor, data) in client.scan_dump(key) {
                assert_eq!(client.load_chunk(&elsewhere, cursor, &data), Reply::simple("OK"));
            }
        }
    }
    assert_eq!(client.run(&format!("RENAME {elsewhere} {key}")), Reply::simple("OK"));
}
