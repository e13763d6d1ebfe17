//! Servers for different processors and C libraries have the same filters. Each test runs in both directions, between
//! the server under test and another of the same version, which `OTHER_SERVER_BIN` and `OTHER_MODULE` name.

use redis::{Connection, Value};

use testkit::command::ABSENT;
use testkit::filter_model::{FilterModel, Observed, various};
use testkit::info::digest;
use testkit::modules::module;
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, assert_synchronized};
use testkit::server::{copy_of, with_debug};
use testkit::{Setup, run};

fn tested() -> Setup {
    with_debug(Setup::oxbloom())
}

fn other() -> Setup {
    let binary = std::env::var_os("OTHER_SERVER_BIN").expect("OTHER_SERVER_BIN names the other server");
    with_debug(Setup::with_module(module("OTHER_MODULE", "", "make test-platforms"))).server(binary.as_ref())
}

/// The two directions, as functions that return the first server and the second.
const DIRECTIONS: [[fn() -> Setup; 2]; 2] = [[tested, other], [other, tested]];

/// Adds items to all filters that take more and do not depend on the time. Most of them grow. Returns all replies, and
/// the digest of the data.
fn grow_and_observe(mut models: Vec<FilterModel>, client: &mut Connection) -> (Vec<Observed>, String) {
    for model in models.iter_mut().filter(|model| !model.is_fixed() && !model.needs_time()) {
        model.add(client, ABSENT - 500..ABSENT);
    }
    (models.iter().map(|model| model.observe(client)).collect(), digest(client))
}

#[test]
fn the_files_of_a_server_load_on_the_other_and_both_continue_alike() {
    for [first, second] in DIRECTIONS {
        for preamble in [None, Some("yes"), Some("no")] {
            let saving = |setup: Setup| match preamble {
                Some(preamble) => setup.keeping_aof(preamble),
                None => setup,
            };
            let first = saving(first()).start();
            let mut client = first.connect();
            let models = various(&mut client);
            match preamble {
                Some(_) => rewrite_aof(&mut client),
                None => assert_eq!(run(&mut client, "SAVE"), Ok(Value::Okay)),
            }
            let second = saving(second()).on(copy_of(first.folder())).start();
            let mut loaded = second.connect();
            assert_eq!(digest(&mut client), digest(&mut loaded), "{preamble:?}");
            let grown = [&mut client, &mut loaded].map(|client| grow_and_observe(models.clone(), client));
            assert_eq!(grown[0], grown[1], "{preamble:?}");
        }
    }
}

#[test]
fn a_replica_on_the_other_platform_has_the_filters_of_its_master() {
    for [master, replica] in DIRECTIONS {
        let pair = Pair::start(master(), replica());
        let (mut master, mut replica) = pair.clients();
        let models = various(&mut master);
        assert_synchronized(&mut master, &mut replica, "created");
        grow_and_observe(models, &mut master);
        assert_synchronized(&mut master, &mut replica, "grown");
    }
}
