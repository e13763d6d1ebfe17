//! The ACL categories of commands, and the commands of docs/security.md.

use crate::access::users::{is_denied, user};
use crate::commands::table::{COMMANDS, Command};
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup};

/// Returns true if the server lets modules add ACL categories.
pub(crate) fn has_categories(server: &Server) -> bool {
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
const PAGE: &str = include_str!("../../../docs/security.md");

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
