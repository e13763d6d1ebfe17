//! Tests ACL permissions, and redirections between the nodes of a cluster.
//!
//! - [`permissions`]: permissions for commands, keys and channels; [`scripts`]: the same in scripts, functions and
//!   transactions; [`users`]: users and denials;
//! - [`reading`]: users who may only read change nothing, and see no seeds;
//! - [`security_page`]: ACL categories, and the commands of docs/security.md;
//! - [`cluster`]: nodes of a cluster.

pub(crate) mod cluster;
mod permissions;
mod reading;
mod scripts;
mod security_page;
pub(crate) mod users;
