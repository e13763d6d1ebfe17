//! ACL permissions for commands, keys and channels, and redirections between the nodes of a cluster.

use std::collections::BTreeSet;

use redis::Connection;

use crate::commands::{COMMANDS, Command};
use models::random::Random;
use testkit::filter_model::various;
use testkit::info::{digest, info_number};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup};

/// Creates the user `user` with only these rules, and connects as that user.
pub(crate) fn user(server: &Server, rules: &str) -> Wire {
    let mut admin = Wire::resp2(server);
    let reply = admin.run(&format!("ACL SETUSER user reset on nopass {rules}"));
    assert_eq!(reply, Reply::simple("OK"), "{rules}");
    let mut client = Wire::resp2(server);
    assert_eq!(client.run("AUTH user x"), Reply::simple("OK"));
    client
}

fn is_denied(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM "))
}

/// Returns the command's line with another key.
fn line_on(command: &Command, key: &str) -> String {
    command.line.replace("key", key)
}

#[test]
fn allowing_a_command_allows_no_other() {
    let server = Setup::oxbloom().start();
    for allowed in COMMANDS {
        let mut client = user(&server, &format!("~* -@all +{}", allowed.name));
        for command in COMMANDS {
            let denied = is_denied(&client.run(command.line));
            assert_eq!(denied, command.name != allowed.name, "{} with +{}", command.line, allowed.name);
        }
    }
}

#[test]
fn denying_a_command_denies_no_other() {
    let server = Setup::oxbloom().start();
    for forbidden in COMMANDS {
        let mut client = user(&server, &format!("~* +@all -{}", forbidden.name));
        for command in COMMANDS {
            let denied = is_denied(&client.run(command.line));
            assert_eq!(denied, command.name == forbidden.name, "{} with -{}", command.line, forbidden.name);
        }
    }
}

#[test]
fn only_keys_that_match_the_pattern_are_allowed() {
    let server = Setup::oxbloom().start();
    let mut client = user(&server, "~seen:* +@all");
    for command in COMMANDS {
        assert!(!is_denied(&client.run(&line_on(command, "seen:1"))), "{}", command.name);
        for key in ["other", "seen", "xseen:1"] {
            assert!(is_denied(&client.run(&line_on(command, key))), "{} {key}", command.name);
        }
    }
    // The pattern does not apply to items.
    let many = client.run("BF.MADD seen:1 other xseen:1");
    assert_eq!(many, Reply::integers(&[1, 1]));
}

/// A key, or the start of an ACL rule for keys. The flags stand for reading and for writing.
type KeyUse = (&'static str, bool, bool);

/// Commands with several keys, and the use of each key.
const SEVERAL_KEYS: &[(&str, &[KeyUse])] = &[
    ("BF.RESERVE own LIKE other", &[("own", false, true), ("other", true, false)]),
    ("bf.reserve LIKE like LIKE", &[("LIKE", true, true)]),
    ("BF.MERGE own 1 other", &[("own", true, true), ("other", true, false)]),
    ("BF.MERGE own 2 own other INTERSECT", &[("own", true, true), ("other", true, false)]),
    ("BF.MERGE own 2 one other UNION", &[("own", true, true), ("one", true, false), ("other", true, false)]),
];

#[test]
fn a_command_needs_permission_to_read_or_write_each_of_its_keys() {
    let server = Setup::oxbloom().start();
    let rights: &[KeyUse] = match server_version() {
        (..7, _) => &[("~none:", false, false), ("~", true, true)],
        _ => &[("~none:", false, false), ("%R~", true, false), ("%W~", false, true), ("%RW~", true, true)],
    };
    for command in COMMANDS.iter().filter(|command| command.may_name_others()) {
        let start = format!("{} ", command.name);
        assert!(SEVERAL_KEYS.iter().any(|(line, _)| line.to_lowercase().starts_with(&start)), "{}", command.name);
    }
    let one_key = COMMANDS.iter().filter(|command| !command.line.contains("key 1 key"));
    let one_key = one_key.map(|command| (command.line, vec![("key", !command.writes, command.writes)]));
    for (line, keys) in one_key.chain(SEVERAL_KEYS.iter().map(|(line, keys)| (*line, keys.to_vec()))) {
        for choice in 0..rights.len().pow(keys.len() as u32) {
            let right_to = |index: usize| rights[choice / rights.len().pow(index as u32) % rights.len()];
            let (mut rules, mut suffices) = (String::new(), true);
            for (index, (key, reads, writes)) in keys.iter().enumerate() {
                let (right, may_read, may_write) = right_to(index);
                rules += &format!("{right}{key} ");
                suffices &= (may_read || !reads) && (may_write || !writes);
            }
            let reply = user(&server, &format!("{rules} +@all")).run(line);
            assert_eq!(is_denied(&reply), !suffices, "{line} with {rules}: {reply:?}");
        }
    }
}

#[test]
fn permissions_of_several_selectors_are_not_combined() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    for one in COMMANDS {
        let mut client = user(&server, &format!("-@all ~one +{} (~two +@all -{0})", one.name));
        for command in COMMANDS {
            let is_one = command.name == one.name;
            for (key, may) in [("one", is_one), ("two", !is_one), ("three", false)] {
                let denied = is_denied(&client.run(&line_on(command, key)));
                assert_eq!(denied, !may, "{} {key} with {}", command.name, one.name);
            }
        }
    }
    // A single selector must allow all keys of a command.
    for (line, keys) in SEVERAL_KEYS {
        let apart = user(&server, "(~own ~LIKE +@all) (~one ~other +@all)").run(line);
        assert_eq!(is_denied(&apart), keys.len() > 1, "{line}: {apart:?}");
        let together = user(&server, "(~own ~LIKE %R~one %R~other +@all)").run(line);
        assert!(!is_denied(&together), "{line}: {together:?}");
    }
}

#[test]
fn changes_are_announced_on_allowed_channels_only() {
    let server = Setup::oxbloom().set("notify-keyspace-events KEA").start();
    let mut listener = user(&server, "-@all +subscribe +psubscribe resetchannels &__keyspace@0__:seen:* &end");
    for channel in ["__keyevent@0__:bf.add", "__keyspace@0__:other", "__keyspace@0__:seen"] {
        assert!(is_denied(&listener.run(&format!("SUBSCRIBE {channel}"))), "{channel}");
    }
    for pattern in ["*", "__key*", "__keyspace@0__:*"] {
        assert!(is_denied(&listener.run(&format!("PSUBSCRIBE {pattern}"))), "{pattern}");
    }
    assert!(!is_denied(&listener.run("PSUBSCRIBE __keyspace@0__:seen:*")));
    assert!(!is_denied(&listener.run("SUBSCRIBE end")));
    let mut client = Wire::resp2(&server);
    let changes = ["BF.ADD seen:1 item", "BF.ADD other item", "BF.ADD seen item", "BF.MERGE seen:2 1 seen:1"];
    changes.iter().for_each(|line| assert!(!client.run(line).is_error(), "{line}"));
    client.run("PUBLISH end end");
    let mut notifications = Vec::new();
    while notifications.last().is_none_or(|last| last != "end end") {
        let message = listener.receive();
        let [.., channel, event] = message.elements() else { panic!("{message:?}") };
        notifications.push(format!("{} {}", channel.text().trim_start_matches("__keyspace@0__:"), event.text()));
    }
    let events = notifications.iter().map(String::as_str).filter(|event| event.contains(" bf."));
    assert_eq!(events.collect::<Vec<_>>(), ["seen:1 bf.reserve", "seen:1 bf.add", "seen:2 bf.merge"]);
}

/// A script that runs the command given as its arguments.
const SCRIPT: &str = "return redis.call(unpack(ARGV))";

/// Two functions that do the same as [`SCRIPT`]. The second is read-only.
const FUNCTIONS: &str = "#!lua name=callers
    local function run(keys, args) return redis.call(unpack(args)) end
    redis.register_function('run', run)
    redis.register_function{function_name='run_read_only', callback=run, flags={'no-writes'}}";

/// Runs a command in a script or a function. `caller` is the start of the command that calls this script or function.
fn run_within(client: &mut Wire, caller: [&str; 2], words: &[String]) -> Reply {
    let words: Vec<_> = caller.into_iter().chain(["1", "key"]).chain(words.iter().map(String::as_str)).collect();
    client.run_words(&words)
}

fn says(reply: &Reply, text: &str) -> bool {
    matches!(reply, Reply::Error(error) if error.contains(text))
}

#[test]
fn scripts_and_functions_may_do_no_more_than_their_user() {
    let server = Setup::oxbloom().start();
    let mut admin = Wire::resp2(&server);
    let mut callers = vec![["EVAL", SCRIPT]];
    if server_version() >= (7, 0) {
        assert_eq!(admin.run_words(&["FUNCTION", "LOAD", FUNCTIONS]), Reply::bulk("callers"));
        callers.push(["FCALL", "run"]);
    }
    // The wording depends on the server's version.
    let is_rejected = |reply: &Reply| says(reply, "ACL failure in script") || says(reply, "can't run this command");
    for caller in callers {
        for allowed in COMMANDS {
            let mut client = user(&server, &format!("~key -@all +{} +{}", caller[0].to_lowercase(), allowed.name));
            for command in COMMANDS {
                let reply = run_within(&mut client, caller, &words(command.line));
                let may = command.name == allowed.name;
                assert_eq!(is_rejected(&reply), !may, "{} with +{}: {reply:?}", command.name, allowed.name);
            }
            let elsewhere = run_within(&mut client, caller, &words(&line_on(allowed, "other")));
            assert!(elsewhere.is_error(), "{} in {}: {elsewhere:?}", allowed.name, caller[0]);
        }
    }
}

#[test]
fn read_only_scripts_and_functions_only_read() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run_words(&["FUNCTION", "LOAD", FUNCTIONS]);
    for caller in [["EVAL_RO", SCRIPT], ["FCALL_RO", "run_read_only"]] {
        for command in COMMANDS {
            let reply = run_within(&mut client, caller, &words(command.line));
            let rejected = says(&reply, "Write commands are not allowed from read-only scripts");
            assert_eq!(rejected, command.writes, "{} in {}: {reply:?}", command.name, caller[0]);
        }
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn transactions_may_do_no_more_than_their_user() {
    let server = Setup::oxbloom().start();
    let mut admin = Wire::resp2(&server);
    for denied in COMMANDS {
        let mut client = user(&server, &format!("~key +@all -{}", denied.name));
        client.run("MULTI");
        for command in COMMANDS {
            assert_eq!(is_denied(&client.run(command.line)), command.name == denied.name, "{}", command.name);
        }
        assert!(says(&client.run("EXEC"), "EXECABORT"), "{}", denied.name);
        // A command that is denied only after it was queued does not run either.
        let mut client = user(&server, "~key +@all");
        client.run("MULTI");
        assert_eq!(client.run(denied.line), Reply::simple("QUEUED"));
        admin.run(&format!("ACL SETUSER user -{}", denied.name));
        let replies = client.run("EXEC");
        assert!(replies.elements().iter().all(is_denied), "{}: {replies:?}", denied.name);
    }
    assert_eq!(admin.run("DBSIZE"), Reply::Integer(0));
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
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

#[test]
fn a_user_who_may_only_read_changes_nothing() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut admin = server.connect();
    various(&mut admin);
    let keys = ["large", "counting-linear", "classic-doubled", "cuckoo-grown", "cuckoo-classic-doubled", "nokey"];
    let state =
        |admin: &mut Connection| (digest(admin), info_number(admin, "persistence", "rdb_changes_since_last_save"));
    let before = state(&mut admin);
    let names: String =
        COMMANDS.iter().filter(|command| !command.writes).map(|command| format!(" +{}", command.name)).collect();
    let by_name = format!("~* -@all{names}");
    let by_category = has_categories(&server).then(|| "~* -@all +@read".to_owned());
    // From 7.0 on, reading and writing a key are separate permissions.
    let by_key = (server_version() >= (7, 0)).then(|| "%R~* +@all -@dangerous".to_owned());
    let mut random = Random::unpredictable();
    for rules in [Some(by_name), by_category, by_key].into_iter().flatten() {
        let mut reader = user(&server, &rules);
        for command in COMMANDS {
            let replies = forms(command, &keys, &mut random).into_iter().map(|form| (reader.run_words(&form), form));
            let (mut denied, mut answered) = (0, 0);
            for (reply, form) in replies {
                denied += usize::from(is_denied(&reply));
                answered += u32::from(!reply.is_error());
                assert!(!command.writes || reply.is_error(), "{form:?} with {rules}: {reply:?}");
            }
            let expected = if command.writes { denied >= keys.len() } else { denied == 0 && answered > 1 };
            assert!(expected, "{} with {rules}: {denied} denied, {answered} answered", command.name);
        }
        assert_eq!(state(&mut admin), before, "{rules}");
    }
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

/// Returns true if the server lets modules add ACL categories.
fn has_categories(server: &Server) -> bool {
    let has = !Wire::resp2(server).run("ACL CAT bloom").is_error();
    assert!(has || server_version() < (7, 4));
    has
}

#[test]
fn commands_are_in_acl_categories_if_the_server_supports_this() {
    let server = Setup::oxbloom().start();
    let mut admin = Wire::resp2(&server);
    let has_categories = has_categories(&server);
    let all = admin.run("ACL CAT");
    for category in all.elements().iter().map(Reply::text) {
        // If modules cannot add categories, their commands are in none, and remain allowed when a category is denied.
        let is_in = |command: &Command| match category.as_str() {
            _ if !has_categories => false,
            "bloom" => command.name.starts_with("bf."),
            "cuckoo" => command.name.starts_with("cf."),
            "read" => !command.writes,
            "write" => command.writes,
            "fast" => command.fast,
            "slow" => !command.fast,
            _ => false,
        };
        let members = admin.run(&format!("ACL CAT {category}"));
        let members: Vec<_> = members.elements().iter().map(Reply::text).collect();
        for (rules, may_those) in [(format!("-@all +@{category}"), true), (format!("+@all -@{category}"), false)] {
            let mut client = user(&server, &format!("~* {rules}"));
            for command in COMMANDS {
                let denied = is_denied(&client.run(command.line));
                assert_eq!(denied, is_in(command) != may_those, "{} with {rules}", command.name);
            }
        }
        for command in COMMANDS {
            let is_member = members.iter().any(|name| name == command.name);
            assert_eq!(is_member, is_in(command), "{} in {category}", command.name);
        }
    }
}

/// The page with the rules that operators copy.
const PAGE: &str = include_str!("../../docs/security.md");

/// Returns the first version in a text.
fn version_in(words: &str) -> (u32, u32) {
    let numbers = words.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let mut numbers = numbers.split(['.', ',']).map(|number| number.parse().expect("a number"));
    (numbers.next().expect("a major version"), numbers.next().expect("a minor version"))
}

#[test]
fn the_commands_on_the_security_page_do_what_it_says() {
    for command in COMMANDS {
        assert!(PAGE.contains(&command.name.to_uppercase()), "{}", command.name);
    }
    let server = Setup::oxbloom().start();
    let (mut blocks, mut lines) = (0, [0, 0]);
    for block in PAGE.split("typed <<'END'\n").skip(1) {
        let block = block.split("END\n").next().unwrap_or_default();
        // The last block cleans up.
        if !block.contains("AUTH ") {
            continue;
        }
        blocks += 1;
        let is_for = |line: &str| match line.strip_prefix("# ") {
            Some(earlier) if earlier.starts_with("before ") => server_version() < version_in(earlier),
            Some(later) => server_version() >= version_in(later),
            None => true,
        };
        if !block.lines().next().is_some_and(is_for) {
            continue;
        }
        let (mut admin, mut client) = (Wire::resp2(&server), Wire::resp2(&server));
        for line in block.lines().filter(|line| !line.starts_with('#')) {
            let (words, expected) = line.split_once(" #").unwrap_or((line, ""));
            let by_admin = words.starts_with("ACL ");
            let reply = if by_admin { admin.run(words) } else { client.run(words) };
            let is_forbidden = expected.trim() == "denied";
            assert!(by_admin || words.starts_with("AUTH ") || is_forbidden || expected.trim() == "allowed", "{line}");
            assert_eq!((is_denied(&reply), reply.is_error()), (is_forbidden, is_forbidden), "{line}: {reply:?}");
            lines[usize::from(is_forbidden)] += 1;
        }
    }
    assert!(blocks == 5 && lines.iter().all(|&lines| lines > 5), "{blocks} {lines:?}");
}

/// Starts a node of a cluster. The node also needs the port 10000 above its own. If that port is taken, the function
/// tries again.
pub(crate) fn start_node() -> Server {
    start_node_of(Setup::oxbloom)
}

/// Starts a node of a cluster, as [`start_node`] does, with the modules of a setup.
pub(crate) fn start_node_of(setup: fn() -> Setup) -> Server {
    let mut last = String::new();
    for _ in 0..20 {
        match setup().set("cluster-enabled yes").try_start() {
            Ok(server) => return server,
            Err(log) => last = log,
        }
    }
    panic!("no cluster node started:\n{last}")
}

pub(crate) fn serve_slots(node: &mut Wire, slots: std::ops::Range<u32>) {
    let words: Vec<_> =
        ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots.map(|slot| slot.to_string())).collect();
    assert_eq!(node.run_words(&words), Reply::simple("OK"));
}

pub(crate) fn wait_for_cluster(node: &mut Wire) {
    wait_until("the cluster is up", || node.run("CLUSTER INFO").text().contains("cluster_state:ok"));
}

#[test]
fn a_cluster_of_one_node_serves_every_command() {
    let server = start_node();
    let mut client = Wire::resp2(&server);
    serve_slots(&mut client, 0..16384);
    wait_for_cluster(&mut client);
    assert_eq!(client.run("BF.RESERVE key 0.001 1000"), Reply::simple("OK"));
    assert_eq!(client.run("BF.ADD key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.MADD key a b"), Reply::integers(&[0, 1]));
    assert_eq!(client.run("BF.INSERT key ITEMS b c"), Reply::integers(&[0, 1]));
    assert_eq!(client.run("BF.EXISTS key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.MEXISTS key a b c"), Reply::integers(&[1, 1, 1]));
    assert_eq!(client.run("BF.CARD key"), Reply::Integer(3));
    assert_eq!(client.run("BF.INFO key ITEMS"), Reply::integers(&[3]));
    assert_eq!(client.run("BF.INSERT counts COUNTING NX ITEMS a a"), Reply::integers(&[1, 0]));
    assert_eq!(client.run("BF.MCOUNT counts a b"), Reply::integers(&[1, 0]));
    assert_eq!(client.run("BF.DEL counts a"), Reply::Integer(1));
    assert_eq!(client.run("BF.MDEL counts a b"), Reply::integers(&[0, 0]));
    assert_eq!(client.run("BF.COUNT counts a"), Reply::Integer(0));
    assert_eq!(client.run("CF.INSERT cuckoo ITEMS a a"), Reply::integers(&[1, 1]));
    assert_eq!(client.run("CF.ADDNX cuckoo a"), Reply::Integer(0));
    assert_eq!(client.run("CF.DEL cuckoo a"), Reply::Integer(1));
    assert_eq!(client.run("CF.COUNT cuckoo a"), Reply::Integer(1));
    let header = client.run("BF.SCANDUMP key 0");
    let words = [&b"BF.LOADCHUNK"[..], b"copy", b"1", header.elements()[1].bytes()];
    assert_eq!(client.run_words(&words), Reply::simple("OK"));
    assert_eq!(client.run("BF.CARD copy"), Reply::Integer(3));
}

#[test]
fn commands_on_a_key_of_another_node_are_redirected() {
    let nodes = [start_node(), start_node()];
    let [mut first, mut second] = [Wire::resp2(&nodes[0]), Wire::resp2(&nodes[1])];
    serve_slots(&mut first, 0..8192);
    serve_slots(&mut second, 8192..16384);
    first.run(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port));
    wait_for_cluster(&mut first);
    wait_for_cluster(&mut second);
    // The slot of `key`, 12539, belongs to the second node.
    let moved = Reply::Error(format!("MOVED 12539 127.0.0.1:{}", nodes[1].port));
    assert_eq!(first.run("CLUSTER KEYSLOT key"), Reply::Integer(12539));
    for command in COMMANDS {
        assert_eq!(first.run(command.line), moved, "{}", command.line);
        let reply = second.run(command.line);
        assert!(!matches!(&reply, Reply::Error(text) if text.starts_with("MOVED")), "{}: {reply:?}", command.line);
    }
    assert_eq!(second.run("BF.EXISTS key item"), Reply::Integer(1));
}
