//! Merges on replicas, in files and in clusters, and their keys and events.

use crate::access::cluster::{serve_slots, start_node, wait_for_cluster};
use crate::merging::sources::{alike, mergeable, union_of};
use crate::replication::pair;
use models::random::Random;
use testkit::filter_model::FilterModel;
use testkit::info::{calls, digest, info_field};
use testkit::persistence::{aof_commands, rewrite_aof, shown};
use testkit::replication::wait_for_replica;
use testkit::server::with_aof;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, run};

#[test]
fn a_filter_like_another_has_all_its_parameters_here_and_on_replicas() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    for (index, (_, layout)) in mergeable().enumerate() {
        run(&mut client, &format!("BF.RESERVE first{index} 0.003 70 EXPANSION 3 {layout}")).unwrap();
        FilterModel::new(&format!("first{index}")).add(&mut client, 0..500);
        run(&mut client, &format!("BF.RESERVE like{index} LIKE first{index}")).unwrap();
        let mut model = FilterModel::new(&format!("like{index}"));
        assert_eq!(ask::<u64>(&mut client, &format!("BF.CARD like{index}")), 0);
        for field in ["ERROR", "EXPANSION", "SEED", "LAYOUT"] {
            let keys = [format!("first{index}"), format!("like{index}")];
            let values = keys.map(|key| info_field::<Option<String>>(&mut client, &key, field));
            assert_eq!(values[0], values[1], "{field} {layout}");
        }
        model.add(&mut client, 700..1500);
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(model.observe(&mut client), model.observe(&mut reader));
    }
    assert_eq!(digest(&mut client), digest(&mut reader));
}

#[test]
fn a_replica_gets_the_same_results_of_merges() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    let mut random = Random::unpredictable();
    let layouts = mergeable().map(|(_, layout)| layout).chain(["NONSCALING COUNTING SEED 8"]);
    for (index, layout) in layouts.enumerate() {
        let keys = ["a", "b", "c", "d"].map(|key| format!("{key}{index}"));
        let mut models = alike(&mut client, &keys.each_ref().map(String::as_str), &format!("0.01 3000 {layout}"));
        for round in 0..60 {
            let (target, source) = (random.below(4) as usize, random.below(4) as usize);
            if random.chance(60) {
                let from = 100_000 + 20 * round;
                models[target].add(&mut client, from..from + 20);
                continue;
            }
            let sources = models[source].items.clone();
            let union = random.chance(70);
            let operation = if union { "UNION" } else { "INTERSECT" };
            let line = format!("BF.MERGE {} 1 {} {operation}", keys[target], keys[source]);
            if run(&mut client, &line).is_ok() {
                if union {
                    models[target].items.extend(sources);
                } else {
                    models[target].items.retain(|item| sources.contains(item));
                }
            }
        }
        wait_for_replica(&mut client, &mut reader);
        for model in &models {
            assert_eq!(model.observe(&mut client), model.observe(&mut reader), "{} {layout}", model.key);
        }
    }
    assert_eq!(digest(&mut client), digest(&mut reader));
    // A merge that changes nothing is not replicated.
    run(&mut client, "BF.MERGE part 1 a0").unwrap();
    wait_for_replica(&mut client, &mut reader);
    let before = calls(&mut reader, "bf.merge");
    run(&mut client, "BF.MERGE a0 1 part").unwrap();
    run(&mut client, "BF.MERGE part 2 a0 part INTERSECT").unwrap();
    error(&mut client, "BF.MERGE a0 1 a1");
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(calls(&mut reader, "bf.merge"), before);
}

#[test]
fn merges_survive_an_append_only_file_and_a_snapshot() {
    let mut server = with_aof("no").start();
    let mut client = server.connect();
    let mut models = Vec::new();
    for (index, (_, layout)) in mergeable().enumerate() {
        let keys = ["a", "b"].map(|key| format!("{key}{index}"));
        let two = alike(&mut client, &keys.each_ref().map(String::as_str), &format!("0.01 500 {layout}"));
        run(&mut client, &format!("BF.MERGE both{index} 2 a{index} b{index}")).unwrap();
        models.push(union_of(&format!("both{index}"), &two));
        models.extend(two);
    }
    let sent = aof_commands(server.folder());
    assert!(sent.iter().any(|command| shown(command) == "BF.MERGE both1 2 a1 b1 REPLACE"));
    let observed: Vec<_> = models.iter().map(|model| model.observe(&mut client)).collect();
    let before = digest(&mut client);
    for rewrite in [false, true] {
        if rewrite {
            rewrite_aof(&mut client);
        }
        drop(client);
        server = with_aof("no").on(server.kill()).start();
        client = server.connect();
        assert_eq!(digest(&mut client), before, "rewritten: {rewrite}");
        let again: Vec<_> = models.iter().map(|model| model.observe(&mut client)).collect();
        assert_eq!(again, observed);
    }
    run(&mut client, "DEBUG RELOAD").unwrap();
    assert_eq!(digest(&mut client), before);
}

#[test]
fn filters_in_one_slot_of_a_cluster_are_merged_and_others_are_not() {
    let server = start_node();
    let mut client = Wire::resp2(&server);
    serve_slots(&mut client, 0..16384);
    wait_for_cluster(&mut client);
    assert_eq!(client.run("BF.RESERVE {t}a 0.01 100"), Reply::simple("OK"));
    assert_eq!(client.run("BF.RESERVE {t}b LIKE {t}a"), Reply::simple("OK"));
    assert_eq!(client.run("BF.ADD {t}b item"), Reply::Integer(1));
    assert_eq!(client.run("BF.MERGE {t}d 2 {t}a {t}b"), Reply::simple("OK"));
    assert_eq!(client.run("BF.EXISTS {t}d item"), Reply::Integer(1));
    let crossing = Reply::error("CROSSSLOT Keys in request don't hash to the same slot");
    for line in ["BF.MERGE {t}d 2 {t}a b", "BF.MERGE d 2 {t}a {t}b", "BF.RESERVE c LIKE {t}a"] {
        assert_eq!(client.run(line), crossing, "{line}");
    }
}

#[test]
fn the_server_finds_the_keys_of_a_command() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut keys = |line: &str| -> Vec<String> {
        let reply = client.run(&format!("COMMAND GETKEYS {line}"));
        reply.elements().iter().map(Reply::text).collect()
    };
    assert_eq!(keys("BF.MERGE d 1 a"), ["d", "a"]);
    assert_eq!(keys("BF.MERGE d 3 a b 3 INTERSECT"), ["d", "a", "b", "3"]);
    assert_eq!(keys("BF.RESERVE d LIKE a"), ["d", "a"]);
    assert_eq!(keys("bf.reserve d like a"), ["d", "a"]);
    assert_eq!(keys("BF.RESERVE d 0.01 100 NONSCALING"), ["d"]);
    // For an invalid merge, the server finds only the destination, or replies with an error.
    for line in ["BF.MERGE d 5 a", "BF.MERGE d -1 a", "BF.MERGE d x a"] {
        let reply = client.run(&format!("COMMAND GETKEYS {line}"));
        assert!(reply.is_error() || reply.elements() == [Reply::bulk("d")], "{line}: {reply:?}");
    }
    assert_eq!(client.run("PING"), Reply::simple("PONG"));
}

#[test]
fn a_merge_is_an_event_only_if_it_changes_a_filter() {
    let server = Setup::oxbloom().set("notify-keyspace-events Ed").start();
    let mut client = server.connect();
    alike(&mut client, &["a", "b"], "0.01 1000");
    let mut listener = Wire::resp2(&server);
    listener.run("SUBSCRIBE __keyevent@0__:bf.merge");
    run(&mut client, "BF.MERGE a 1 b").unwrap();
    run(&mut client, "BF.MERGE a 1 b").unwrap();
    run(&mut client, "BF.MERGE new 1 b").unwrap();
    let mut next_key = || listener.receive().elements()[2].text();
    assert_eq!([next_key(), next_key()], ["a", "new"]);
}
