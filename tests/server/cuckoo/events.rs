//! What leaves the filter: events, written commands, copies in chunks, and replies in scripts and transactions.

use crate::commands::events::events;
use crate::cuckoo::replies::FULL;
use crate::cuckoo::replies::LAYOUTS;
use crate::expected::ok;
use testkit::Setup;
use testkit::command::many;
use testkit::filter_model::{Family, FilterModel};
use testkit::info::{digest, digest_of};
use testkit::persistence::aof_commands_shown;
use testkit::server::{server_version, with_aof, with_debug};
use testkit::wire::{Reply, Wire};

#[test]
fn only_commands_that_change_a_filter_are_announced_and_written() {
    let server = with_aof("no").set("notify-keyspace-events KEA").start();
    let mut subscriber = Wire::resp2(&server);
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    let mut client = Wire::resp2(&server);
    let mut written = 0;
    for layout in LAYOUTS {
        client.run("FLUSHALL");
        let created = if layout == "native" { "CF.RESERVE" } else { "CF.LOADCHUNK" };
        let compacted: &[&str] = if layout == "native" { &[] } else { &["cf.compact key"] };
        let long = format!("CF.RESERVE key 100 BUCKETSIZE 4 LAYOUT {layout}");
        let insert = format!("CF.INSERTNX new LAYOUT {layout} EX 5000 ITEMS a a");
        let made = [&["cf.reserve new"][..], &["cf.add new"]].concat();
        // Each command with its events, and the starts of the commands in the append-only file.
        let steps: [(&str, &[&str], &[&str]); 20] = [
            (&long, &["cf.reserve key"], &[created]),
            (&long, &[], &[]),
            ("CF.ADD key a", &["cf.add key"], &["CF.ADD key a"]),
            ("CF.ADD key a", &["cf.add key"], &["CF.ADD key a"]),
            ("CF.ADDNX key a", &[], &[]),
            ("CF.ADDNX key b", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS b"]),
            ("CF.INSERT key ITEMS a c", &["cf.add key"], &["CF.INSERT key ITEMS a c"]),
            ("CF.INSERT key NOCREATE ITEMS a", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS a"]),
            ("CF.INSERTNX key ITEMS a d c", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS d"]),
            ("CF.INSERTNX key ITEMS a d c", &[], &[]),
            ("CF.INSERT none NOCREATE ITEMS a", &[], &[]),
            ("CF.DEL key a", &["cf.del key"], &["CF.DEL key a"]),
            ("CF.DEL key none", &[], &[]),
            ("CF.COMPACT key", compacted, if layout == "native" { &[] } else { &["CF.COMPACT key"] }),
            ("CF.EXISTS key a", &[], &[]),
            ("CF.COUNT key a", &[], &[]),
            ("CF.INFO key", &[], &[]),
            ("CF.SCANDUMP key 0", &[], &[]),
            ("CF.LOADCHUNK key 1 data", &[], &[]),
            (&insert, &made, &[created, "CF.INSERT new NOCREATE ITEMS a"]),
        ];
        for (line, expected, lines) in steps {
            client.run(line);
            client.run("PUBLISH __keyevent@0__:end x");
            assert_eq!(events(&mut subscriber), expected, "{layout}: {line}");
            let now = aof_commands_shown(server.folder());
            assert_eq!(now.len() - written, lines.len(), "{layout}: {line}: {:?}", &now[written..]);
            for (now, start) in now[written..].iter().zip(lines) {
                assert!(now.starts_with(start), "{layout}: {line}: {now}");
            }
            written = now.len();
        }
    }
}

#[test]
fn a_copy_in_chunks_is_the_same_and_goes_on_alike() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let mut connection = server.connect();
    for layout in LAYOUTS {
        client.run(&format!("CF.RESERVE {layout} 64 EXPANSION 2 LAYOUT {layout}"));
        let mut model = FilterModel::cuckoo(layout);
        model.add(&mut connection, 0..3000);
        many::<Vec<i64>>(&mut connection, "CF.INSERT", layout, &[1, 1, 2]);
        let chunks = client.scan_dump_of(Family::Cuckoo, layout);
        assert!(chunks.len() > if layout == "classic" { 5 } else { 1 });
        for (cursor, data) in &chunks {
            assert_eq!(client.load_chunk_of(Family::Cuckoo, "copy", *cursor, data), ok(), "{layout}");
        }
        // A chunk that is loaded again changes nothing. The header is that of a filter that exists.
        let (_, header) = &chunks[0];
        assert_eq!(client.load_chunk_of(Family::Cuckoo, "copy", 1, header), Reply::error("ERR item exists"));
        let (cursor, data) = &chunks[chunks.len() - 1];
        assert_eq!(client.load_chunk_of(Family::Cuckoo, "copy", *cursor, data), ok(), "{layout}");
        let mut copy = model.at("copy");
        assert_eq!(digest_of(&mut connection, layout), digest_of(&mut connection, "copy"));
        assert_eq!(model.add(&mut connection, 5000..6000), copy.add(&mut connection, 5000..6000));
        assert_eq!(model.observe(&mut connection), copy.observe(&mut connection));
        // Chunks from before must not overwrite the new items.
        let before = digest(&mut connection);
        for (cursor, data) in &chunks[1..] {
            let reply = client.load_chunk_of(Family::Cuckoo, "copy", *cursor, data);
            assert!(reply.is_error() || reply == ok() && layout == "classic", "{reply:?}");
            copy.observe(&mut connection);
        }
        assert!(layout == "classic" || digest(&mut connection) == before);
        client.run("DEL copy");
    }
}

#[test]
fn scripts_and_transactions_get_the_replies() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for layout in LAYOUTS {
        client.run("FLUSHALL");
        // With another seed, one of these items could be a false positive of another.
        let options: &[&str] = if layout == "native" { &["LAYOUT", layout, "SEED", "7"] } else { &["LAYOUT", layout] };
        let mut eval = |script: &str| client.run_words(&[&["EVAL", script, "1", "key"], options].concat());
        let create = "return redis.call('CF.RESERVE', KEYS[1], 64, 'BUCKETSIZE', 4, 'EXPANSION', 0, unpack(ARGV))";
        assert_eq!(eval(create), ok());
        assert_eq!(eval("return redis.call('CF.ADD', KEYS[1], 'a') + 10"), Reply::Integer(11));
        assert_eq!(eval("return redis.call('CF.INSERT', KEYS[1], 'ITEMS', 'a', 'b')"), Reply::integers(&[1, 1]));
        assert_eq!(eval("return redis.call('CF.COUNT', KEYS[1], 'a')"), Reply::Integer(2));
        assert_eq!(eval("return redis.call('CF.INFO', KEYS[1])[8]"), Reply::Integer(3));
        assert_eq!(eval("return redis.pcall('CF.RESERVE', KEYS[1], 8)"), Reply::error("ERR item exists"));
        let fill = "for n = 1, 200 do
                        local reply = redis.pcall('CF.ADD', KEYS[1], n)
                        if type(reply) == 'table' then return reply['err'] end
                    end";
        assert!(eval(fill).text().contains(FULL), "{layout}");
        if server_version() >= (7, 0) {
            let boolean = "redis.setresp(3); return type(redis.call('CF.EXISTS', KEYS[1], 'a'))";
            assert_eq!(eval(boolean), Reply::bulk("boolean"));
        }
        client.run("MULTI");
        for line in ["CF.DEL key a", "CF.DEL key a", "CF.DEL key a", "CF.EXISTS key b", "CF.COUNT none a"] {
            assert_eq!(client.run(line), Reply::simple("QUEUED"));
        }
        assert_eq!(client.run("EXEC"), Reply::integers(&[1, 1, 0, 1, 0]), "{layout}");
    }
}
