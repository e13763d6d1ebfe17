//! A user who may not read a filter does not see its seed, whatever the words of a command.

use std::collections::BTreeSet;

use crate::access::users::{line_on, user};
use crate::commands::table::{COMMANDS, Command};
use models::random::Random;
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

/// A script that runs the command given as its arguments.
const SCRIPT: &str = "return redis.call(unpack(ARGV))";

/// The function `run`, which does the same as [`SCRIPT`].
const FUNCTIONS: &str = "#!lua name=callers
    redis.register_function('run', function(keys, args) return redis.call(unpack(args)) end)";

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Runs a command in a script or a function. `caller` is the start of the command that calls this script or function.
fn run_within(client: &mut Wire, caller: [&str; 2], words: &[String]) -> Reply {
    let words: Vec<_> = caller.into_iter().chain(["1", "key"]).chain(words.iter().map(String::as_str)).collect();
    client.run_words(&words)
}

/// Arguments that follow the key, valid and invalid.
const WORDS: &[&str] = &[
    "item",
    "other",
    "0",
    "1",
    "2",
    "-1",
    "0.01",
    "1000",
    "4503599627370496",
    "18446744073709551615",
    "LIKE",
    "ITEMS",
    "SEED",
    "42",
    "NX",
    "NOCREATE",
    "CAPACITY",
    "ERROR",
    "EXPANSION",
    "NONSCALING",
    "COUNTING",
    "LAYOUT",
    "native",
    "classic",
    "UNION",
    "INTERSECT",
    "MAXITERATIONS",
    "BUCKETSIZE",
    "SIZE",
    "FILTERS",
    "FILL",
    "FPR",
    "ESTIMATED",
    "",
    "%s",
    "OXB",
];

/// Returns calls of a command on the keys: valid ones, ones with a single further argument, and random ones.
fn forms(command: &Command, keys: &[&str], random: &mut Random) -> Vec<Vec<String>> {
    let mut forms: Vec<_> = keys.iter().map(|key| words(&line_on(command, key))).collect();
    let with_one = keys.iter().flat_map(|key| WORDS.iter().map(move |word| [command.name, key, word]));
    forms.extend(with_one.map(|form| form.map(str::to_owned).to_vec()));
    for _ in 0..100 {
        let mut form = vec![command.name, random.one_of(keys)];
        for _ in 0..random.below(6) {
            form.push(if random.chance(25) { random.one_of(keys) } else { random.one_of(WORDS) });
        }
        forms.push(form.into_iter().map(str::to_owned).collect());
    }
    forms
}

/// The families, keys, options and seeds of three filters. The seeds occur nowhere else in a reply.
const SEEDS: [(&str, &str, &str, u64); 3] = [
    ("BF", "key", "", 0xC7D5_3B92_6E8F_41A9),
    ("BF", "key:counting", "COUNTING", 0x94E1_6FB7_2A5D_83CB),
    ("CF", "key:cuckoo", "", 0xB3A8_59D7_4C6E_F215),
];

/// Appends all texts and numbers of a reply to `into`.
fn contents(reply: &Reply, into: &mut Vec<u8>) {
    into.push(b' ');
    match reply {
        Reply::Simple(text) | Reply::Error(text) => into.extend_from_slice(text.as_bytes()),
        Reply::Bulk(bytes) => into.extend_from_slice(bytes),
        Reply::Integer(number) => into.extend_from_slice(number.to_string().as_bytes()),
        Reply::Double(number) => into.extend_from_slice(number.to_string().as_bytes()),
        Reply::Array(all) | Reply::Set(all) | Reply::Push(all) => all.iter().for_each(|reply| contents(reply, into)),
        Reply::Map(pairs) => pairs.iter().for_each(|(name, value)| {
            contents(name, into);
            contents(value, into);
        }),
        Reply::Boolean(_) | Reply::NullBulk | Reply::NullArray | Reply::Null => {}
    }
}

/// Returns the spelling of a seed in a reply, if the reply contains one.
fn spelling_of_a_seed(reply: &Reply) -> Option<String> {
    let mut text = Vec::new();
    contents(reply, &mut text);
    let spellings = SEEDS.iter().flat_map(|&(.., seed)| {
        let (decimal, signed) = (seed.to_string(), (seed as i64).to_string());
        let words = [decimal, signed, format!("{seed:x}"), format!("{seed:X}"), format!("{:x}", seed.swap_bytes())];
        let bytes = [seed.to_le_bytes(), seed.to_be_bytes()].map(Vec::from);
        words.map(String::into_bytes).into_iter().chain(bytes)
    });
    let mut found = spellings.filter(|spelling| text.windows(spelling.len()).any(|window| window == spelling));
    found.next().map(|spelling| spelling.escape_ascii().to_string())
}

/// Tries to learn the seeds of the filters with all commands. The user has the permissions `rights` on the filters'
/// keys, and all permissions on some other keys. Returns the spellings of the seeds in the replies.
fn hunt_for_seeds(rights: &str) -> BTreeSet<String> {
    let server = Setup::oxbloom().set("notify-keyspace-events KEA").start();
    let mut admin = Wire::resp2(&server);
    let create_filters = |admin: &mut Wire| {
        for (family, key, kind, seed) in SEEDS {
            admin.run(&format!("DEL {key}"));
            let added = admin.run(&format!("{family}.INSERT {key} SEED {seed} {kind} ITEMS item"));
            assert_eq!(added, Reply::integers(&[1]));
        }
    };
    create_filters(&mut admin);
    admin.run_words(&["FUNCTION", "LOAD", FUNCTIONS]);
    let mut client = user(&server, &format!("{rights}~key* ~own* &* +@all -@admin -@dangerous +info +client|list"));
    let mut listener = Wire::resp2(&server);
    listener.run("AUTH user x");
    assert!(!listener.run("PSUBSCRIBE *").is_error());
    let mut found = BTreeSet::new();
    let mut look = |reply: &Reply| found.extend(spelling_of_a_seed(reply));

    let mut random = Random::unpredictable();
    let keys = ["key", "key:counting", "key:cuckoo", "own1", "own2"];
    for command in COMMANDS {
        for form in forms(command, &keys, &mut random) {
            look(&client.run_words(&form));
            if random.chance(20) {
                for caller in [["EVAL", SCRIPT], ["FCALL", "run"]] {
                    look(&run_within(&mut client, caller, &form));
                }
            }
        }
    }
    // Loads chunks of the user's own filter. Their tags do not match the other filters.
    client.run("DEL own1");
    client.run("BF.ADD own1 item");
    for (cursor, data) in client.scan_dump("own1") {
        SEEDS.iter().for_each(|(_, key, ..)| look(&client.load_chunk(key, cursor, &data)));
    }
    // The server's own commands may copy or move a filter to a key that the user may read. Some delete the filter, so
    // it is created again for each.
    for name in admin.run("ACL CAT keyspace").elements().iter().map(Reply::text).filter(|name| !name.contains('|')) {
        for (_, key, ..) in SEEDS {
            for rest in ["", "own2", "own2 REPLACE", "0", "1 own2"] {
                create_filters(&mut admin);
                client.run("DEL own2");
                look(&client.run(format!("{name} {key} {rest}").trim_end()));
                ["BF.INFO own2 SEED", "BF.SCANDUMP own2 0", "CF.SCANDUMP own2 0", "DUMP own2"]
                    .iter()
                    .for_each(|line| look(&client.run(line)));
            }
        }
    }
    create_filters(&mut admin);
    let lines = [
        "INFO everything",
        "COMMAND",
        "COMMAND DOCS BF.RESERVE",
        "CLIENT LIST",
        "MEMORY USAGE key",
        "OBJECT ENCODING key",
    ];
    for line in lines {
        look(&client.run(line));
    }
    client.run("PUBLISH end end");
    loop {
        let message = listener.receive();
        look(&message);
        if message.elements()[2].bytes() == b"end" {
            return found;
        }
    }
}

#[test]
fn seeds_are_only_shown_to_users_who_may_read_the_filter() {
    if server_version() < (7, 0) {
        return;
    }
    assert_eq!(hunt_for_seeds("%W"), BTreeSet::new());
    // With read permission, the same commands show the seeds in replies and in dumps. No reply has that of a cuckoo
    // filter.
    let found = hunt_for_seeds("%R");
    for (family, .., seed) in SEEDS {
        let in_replies = (family == "BF").then(|| seed.to_string());
        for spelling in in_replies.into_iter().chain([seed.to_le_bytes().escape_ascii().to_string()]) {
            assert!(found.contains(&spelling), "{spelling} in {found:?}");
        }
    }
}
