//! Permissions for commands, keys and channels.

use crate::access::users::{is_denied, line_on, user};
use crate::commands::table::COMMANDS;
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

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
