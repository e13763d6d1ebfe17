//! Single fields of BF.INFO.

use testkit::wire::{Reply, Wire};

/// Returns one field of BF.INFO.
pub(crate) fn field(client: &mut Wire, key: &str, token: &str, label: &str) -> Reply {
    client.run(&format!("BF.INFO {key} {token}")).single_field(label)
}

pub(crate) fn layout(client: &mut Wire, key: &str) -> String {
    field(client, key, "LAYOUT", "Layout").text()
}
