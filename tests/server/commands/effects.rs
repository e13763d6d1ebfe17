//! The effects of each command: its events, and what the append-only file and replicas get. A command that changes
//! nothing has none. Clients that watch a key notice the same changes.

use testkit::persistence::aof_commands_shown;
use testkit::server::with_aof;
use testkit::wire::{Reply, Wire};

/// A command, its events, and the commands that are written. Of one that ends with `…`, only the start is compared.
type Step = (&'static str, &'static [&'static str], &'static [&'static str]);

const BLOOM: &[Step] = &[
    (
        "BF.RESERVE key 0.0001 2 NONSCALING SEED 7",
        &["bf.reserve key"],
        &["BF.RESERVE key 0.0001 2 NONSCALING SEED 7 LAYOUT native"],
    ),
    ("BF.RESERVE key 0.1 100", &[], &[]),
    ("BF.ADD key a", &["bf.add key"], &["BF.ADD key a"]),
    ("BF.ADD key a", &[], &[]),
    ("BF.MADD key a b b c d", &["bf.add key"], &["BF.MADD key b"]),
    ("BF.ADD key c", &[], &[]),
    ("BF.MADD key a b c", &[], &[]),
    ("BF.INSERT key NOCREATE ITEMS a b", &[], &[]),
    ("BF.INSERT absent NOCREATE ITEMS a", &[], &[]),
    ("BF.EXISTS key a", &[], &[]),
    ("BF.MEXISTS absent a", &[], &[]),
    ("BF.CARD key", &[], &[]),
    ("BF.INFO key", &[], &[]),
    ("BF.DEBUG key", &[], &[]),
    ("BF.SCANDUMP key 0", &[], &[]),
    ("BF.LOADCHUNK key 1 data", &[], &[]),
    ("BF.LOADCHUNK absent 1 data", &[], &[]),
    ("BF.ADD one a", &["bf.reserve one", "bf.add one"], &["BF.RESERVE one …", "BF.ADD one a"]),
    ("BF.MADD two a b a", &["bf.reserve two", "bf.add two"], &["BF.RESERVE two …", "BF.MADD two a b"]),
    ("BF.INSERT new ITEMS a b", &["bf.reserve new", "bf.add new"], &["BF.RESERVE new …", "BF.MADD new a b"]),
    ("BF.INSERT new ITEMS b c", &["bf.add new"], &["BF.MADD new c"]),
    ("BF.RESERVE three 0.01 9 EX 5000", &["bf.reserve three", "expire three"], &["BF.RESERVE three …"]),
    ("BF.INSERT three EX 5000 ITEMS a", &["bf.add three"], &["BF.MADD three a"]),
];

const COUNTING: &[Step] = &[
    (
        "BF.RESERVE key 1e-9 100 COUNTING SEED 7",
        &["bf.reserve key"],
        &["BF.RESERVE key 0.000000001 100 EXPANSION 2 COUNTING SEED 7 LAYOUT native"],
    ),
    ("BF.ADD key a", &["bf.add key"], &["BF.ADD key a"]),
    ("BF.ADD key a", &["bf.add key"], &["BF.ADD key a"]),
    ("BF.MADD key a b a", &["bf.add key"], &["BF.MADD key a b a"]),
    ("BF.INSERT key COUNTING CAPACITY 5 ITEMS a c", &["bf.add key"], &["BF.MADD key a c"]),
    ("BF.INSERT key NX ITEMS a d b e d", &["bf.add key"], &["BF.MADD key d e"]),
    ("BF.INSERT key NX ITEMS a d", &[], &[]),
    ("BF.DEL key z", &[], &[]),
    ("BF.DEL absent a", &[], &[]),
    ("BF.MDEL key y z", &[], &[]),
    ("BF.MDEL absent y z", &[], &[]),
    ("BF.DEL key a", &["bf.del key"], &["BF.DEL key a"]),
    ("BF.MDEL key z a y b b", &["bf.del key"], &["BF.MDEL key a b"]),
    ("BF.MDEL key d", &["bf.del key"], &["BF.MDEL key d"]),
    ("BF.COUNT key a", &[], &[]),
    ("BF.MCOUNT key a b", &[], &[]),
    (
        "BF.RESERVE fixed 1e-9 2 NONSCALING SEED 7 COUNTING",
        &["bf.reserve fixed"],
        &["BF.RESERVE fixed 0.000000001 2 NONSCALING COUNTING SEED 7 LAYOUT native"],
    ),
    ("BF.MADD fixed a a b c a", &["bf.add fixed"], &["BF.MADD fixed a a b"]),
    ("BF.MADD fixed c a", &[], &[]),
    ("BF.ADD fixed c", &[], &[]),
    ("BF.INSERT fixed NX ITEMS a c", &[], &[]),
    ("BF.INSERT fixed ITEMS b b c", &["bf.add fixed"], &["BF.MADD fixed b b"]),
    (
        "BF.INSERT new NX COUNTING ERROR 1e-9 CAPACITY 9 EXPANSION 3 SEED 8 ITEMS a a b",
        &["bf.reserve new", "bf.add new"],
        &["BF.RESERVE new 0.000000001 9 EXPANSION 3 COUNTING SEED 8 LAYOUT native", "BF.MADD new a b"],
    ),
];

const PACKED: &[Step] = &[
    (
        "BF.ADDPACKED key COUNT FIXED 2 aabbcc",
        &["bf.reserve key", "bf.add key"],
        &["BF.RESERVE key …", "BF.ADDPACKED key FIXED 2 aabbcc"],
    ),
    ("BF.ADDPACKED key FIXED 2 bbddaaee", &["bf.add key"], &["BF.ADDPACKED key FIXED 2 ddee"]),
    ("BF.ADDPACKED key FIXED 2 bbddaaee", &[], &[]),
    ("BF.ADDPACKED key NX LINES one", &["bf.add key"], &["BF.ADDPACKED key LINES one"]),
    ("BF.EXISTSPACKED key LINES one", &[], &[]),
    ("BF.RESERVE counting 1e-6 1000 COUNTING", &["bf.reserve counting"], &["BF.RESERVE counting …"]),
    ("BF.ADDPACKED counting FIXED 1 aab", &["bf.add counting"], &["BF.ADDPACKED counting FIXED 1 aab"]),
    ("BF.ADDPACKED counting NX FIXED 1 aabc", &["bf.add counting"], &["BF.ADDPACKED counting FIXED 1 c"]),
    ("BF.DELPACKED counting FIXED 1 xaxaxa", &["bf.del counting"], &["BF.DELPACKED counting FIXED 1 aa"]),
    ("BF.DELPACKED counting FIXED 1 xax", &[], &[]),
    ("BF.RESERVE a 1e-6 1000 LAYOUT classic", &["bf.reserve a"], &["BF.LOADCHUNK a 1 …"]),
    ("BF.ADDPACKED a FIXED 1 aabc", &["bf.add a"], &["BF.MADD a a b c"]),
    ("BF.ADDPACKED a LINES a", &[], &[]),
    ("BF.RESERVE b 1e-6 1000 LAYOUT valkey", &["bf.reserve b"], &["BF.INSERT b CAPACITY 1000 …"]),
    ("BF.ADDPACKED b COUNT FIXED 1 ab", &["bf.add b"], &["BF.MADD b a b"]),
];

const MERGES: &[Step] = &[
    ("BF.INSERT a SEED 7 ITEMS x", &["bf.reserve a", "bf.add a"], &["BF.RESERVE a …", "BF.MADD a x"]),
    ("BF.RESERVE b LIKE a", &["bf.reserve b"], &["BF.LOADCHUNK b 1 …"]),
    ("BF.MERGE a 1 b", &[], &[]),
    ("BF.MERGE b 1 a", &["bf.merge b"], &["BF.MERGE b …"]),
    ("BF.MERGE b 1 a", &[], &[]),
    ("BF.MERGE b 2 a b INTERSECT", &[], &[]),
    ("BF.MERGE new 2 a b", &["bf.merge new"], &["BF.MERGE new 2 a b REPLACE"]),
    ("BF.MERGE new 1 absent", &[], &[]),
    ("BF.RESERVE two 0.01 1000000 SEED 7", &["bf.reserve two"], &["BF.RESERVE two …"]),
    ("BF.FOLD two CAPACITY 1000000", &[], &[]),
    ("BF.FOLD two CAPACITY x", &[], &[]),
    ("BF.FOLD two capacity 300000", &["bf.fold two"], &["BF.FOLD two capacity 300000"]),
    ("BF.RESERVE three 0.01 1000000 SEED 7", &["bf.reserve three"], &["BF.RESERVE three …"]),
    ("BF.MERGE two 1 three", &[], &[]),
    ("BF.MERGE three 1 two", &["bf.merge three"], &["BF.MERGE three 1 two"]),
    ("BF.MERGE three 1 two", &[], &[]),
    ("BF.FOLD two", &["bf.fold two"], &["BF.FOLD two"]),
    ("BF.FOLD two", &[], &[]),
    ("BF.FOLD absent", &[], &[]),
    ("BF.CHANGES two", &[], &[]),
    ("BF.CHANGES absent", &[], &[]),
];

const NATIVE_CUCKOO: &[Step] = &[
    ("CF.RESERVE key 100 BUCKETSIZE 4 LAYOUT native SEED 7", &["cf.reserve key"], &["CF.RESERVE key …"]),
    ("CF.COMPACT key", &[], &[]),
    (
        "CF.INSERTNX new LAYOUT native EX 5000 ITEMS a a",
        &["cf.reserve new", "cf.add new", "expire new"],
        &["CF.RESERVE new …", "CF.INSERT new NOCREATE ITEMS a"],
    ),
];

const CLASSIC_CUCKOO: &[Step] = &[
    ("CF.RESERVE key 100 BUCKETSIZE 4 LAYOUT classic", &["cf.reserve key"], &["CF.LOADCHUNK key 1 …"]),
    ("CF.COMPACT key", &["cf.compact key"], &["CF.COMPACT key"]),
    (
        "CF.INSERTNX new LAYOUT classic EX 5000 ITEMS a a",
        &["cf.reserve new", "cf.add new", "expire new"],
        &["CF.LOADCHUNK new 1 …", "CF.INSERT new NOCREATE ITEMS a"],
    ),
];

/// The steps that both layouts of cuckoo filters share.
const CUCKOO: &[Step] = &[
    ("CF.RESERVE key 100", &[], &[]),
    ("CF.ADD key a", &["cf.add key"], &["CF.ADD key a"]),
    ("CF.ADD key a", &["cf.add key"], &["CF.ADD key a"]),
    ("CF.ADDNX key a", &[], &[]),
    ("CF.ADDNX key b", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS b"]),
    ("CF.INSERT key ITEMS a c", &["cf.add key"], &["CF.INSERT key ITEMS a c"]),
    ("CF.INSERT key NOCREATE ITEMS a", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS a"]),
    ("CF.INSERTNX key ITEMS a d c", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS d"]),
    ("CF.INSERTNX key ITEMS a d c", &[], &[]),
    ("CF.INSERT absent NOCREATE ITEMS a", &[], &[]),
    ("CF.DEL key a", &["cf.del key"], &["CF.DEL key a"]),
    ("CF.DEL key z", &[], &[]),
    ("CF.EXISTS key a", &[], &[]),
    ("CF.COUNT key a", &[], &[]),
    ("CF.INFO key", &[], &[]),
    ("CF.SCANDUMP key 0", &[], &[]),
    ("CF.LOADCHUNK key 1 data", &[], &[]),
];

/// Returns the events of our commands, and of keys that get a TTL, that arrive before the event `end`.
fn events(subscriber: &mut Wire) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let message = subscriber.receive();
        let [_, _, channel, key] = message.elements() else { panic!("{message:?}") };
        let event = channel.text().rsplit(':').next().unwrap().to_owned();
        match event.as_str() {
            "end" => return events,
            event if event.starts_with("bf.") || event.starts_with("cf.") || event == "expire" => {
                events.push(format!("{event} {}", key.text()))
            }
            _ => {}
        }
    }
}

#[test]
fn only_changes_are_events_and_are_written_and_abort_transactions() {
    let server = with_aof("no").set("notify-keyspace-events KEA").start();
    let mut subscriber = Wire::resp2(&server);
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    let (mut client, mut watcher) = (Wire::resp2(&server), Wire::resp2(&server));
    let mut written = 0;
    for steps in [
        BLOOM.to_vec(),
        COUNTING.to_vec(),
        PACKED.to_vec(),
        MERGES.to_vec(),
        [NATIVE_CUCKOO, CUCKOO].concat(),
        [CLASSIC_CUCKOO, CUCKOO].concat(),
    ] {
        client.run("FLUSHALL");
        for (line, expected, lines) in steps {
            watcher.run("WATCH key absent one two three fixed new counting a b");
            client.run(line);
            client.run("PUBLISH __keyevent@0__:end x");
            assert_eq!(events(&mut subscriber), expected, "{line}");
            watcher.run("MULTI");
            assert_eq!(watcher.run("EXEC") == Reply::NullArray, !expected.is_empty(), "{line}");
            let now = aof_commands_shown(server.folder());
            let fits = |(now, line): (&String, &&str)| match line.strip_suffix('…') {
                Some(start) => now.starts_with(start),
                None => now == line,
            };
            let new = &now[written..];
            assert!(new.len() == lines.len() && new.iter().zip(lines).all(fits), "{line}: {new:?}");
            written = now.len();
        }
    }
}
