//! Tests ACL permissions, and redirections between the nodes of a cluster.
//!
//! - [`permissions`]: permissions to read and write keys; [`users`]: users and denials;
//! - [`reading`]: users who may not read a filter do not see its seed;
//! - [`security_page`]: ACL categories, and the commands of docs/security.md;
//! - [`cluster`]: nodes of a cluster.

pub(crate) mod cluster;
mod permissions;
mod reading;
mod security_page;
pub(crate) mod users;
