//! A panic in the module only causes an error reply and a log line.

use redis::Value;

use testkit::filter_model::FilterModel;
use testkit::info::info_number;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, error, oxbloom_with_faults, run};

const REPLY: &str = "ERR internal error: see the log, and report it";

fn faulty() -> Server {
    Setup::with_module(oxbloom_with_faults()).start()
}

fn panics(server: &Server) -> usize {
    server.log().matches("internal error in bf.panic").count()
}

#[test]
fn a_panic_is_an_error_and_the_server_keeps_running() {
    let server = faulty();
    let mut client = server.connect();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..500);
    let expected = model.observe(&mut client);
    for count in 1..=50 {
        assert_eq!(error(&mut client, "BF.PANIC key"), REPLY);
        assert_eq!(panics(&server), count);
        assert_eq!(info_number(&mut client, "bf", "bf_internal_errors"), count as u64);
    }
    assert!(server.log().contains("internal error in bf.panic: asked to, for"), "{}", server.log());
    assert_eq!(model.observe(&mut client), expected);
    model.add(&mut client, 500..1000);
    model.observe(&mut server.connect());
    assert!(server.is_alive());
    assert_eq!(run(&mut client, "SAVE"), Ok(Value::Okay));
    let server = Setup::with_module(oxbloom_with_faults()).on(server.kill()).start();
    model.observe(&mut server.connect());
}

/// If an array were shorter than announced, clients would take the next replies for its elements.
#[test]
fn after_a_panic_within_a_reply_clients_still_get_the_right_replies() {
    let server = faulty();
    for mut client in [Wire::resp2(&server), Wire::resp3(&server)] {
        for (length, sent) in [(3, 0), (3, 1), (200, 130), (2, 2), (0, 0)] {
            let expected: Vec<Reply> = (0..length)
                .map(|number| if number < sent { Reply::Integer(number) } else { Reply::error(REPLY) })
                .collect();
            assert_eq!(client.run(&format!("BF.PANIC key {length} {sent}")), Reply::Array(expected));
            assert_eq!(client.run("PING"), Reply::simple("PONG"));
        }
        let pairs = client.run("BF.PANIC key 5 3 MAP");
        let is_map = matches!(&pairs, Reply::Map(pairs) if pairs.len() == 5);
        assert!(is_map || pairs.elements().len() == 10, "{pairs:?}");
        assert_eq!(client.run("PING"), Reply::simple("PONG"));
    }
}

#[test]
fn a_release_has_no_command_that_panics() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let rejection = error(&mut client, "BF.PANIC key").to_ascii_lowercase();
    assert!(rejection.starts_with("err unknown command"), "{rejection}");
    let infos: Vec<Value> = ask(&mut client, "COMMAND INFO bf.panic bf.add");
    assert_eq!(infos[0], Value::Nil);
    assert_ne!(infos[1], Value::Nil);
}
