//! Users with few permissions.

use crate::commands::table::Command;
use testkit::Server;
use testkit::wire::{Reply, Wire};

/// Creates the user `user` with only these rules, and connects as that user.
pub(crate) fn user(server: &Server, rules: &str) -> Wire {
    let mut admin = Wire::resp2(server);
    let reply = admin.run(&format!("ACL SETUSER user reset on nopass {rules}"));
    assert_eq!(reply, Reply::simple("OK"), "{rules}");
    let mut client = Wire::resp2(server);
    assert_eq!(client.run("AUTH user x"), Reply::simple("OK"));
    client
}

pub(crate) fn is_denied(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM "))
}

/// Returns the command's line with another key.
pub(crate) fn line_on(command: &Command, key: &str) -> String {
    command.line.replace("key", key)
}
