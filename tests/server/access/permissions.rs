//! Permissions to read and write keys.

use crate::access::users::{is_denied, user};
use crate::commands::table::COMMANDS;
use testkit::Setup;
use testkit::server::server_version;

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
