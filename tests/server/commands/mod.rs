//! The commands BF.*: the answers, errors and limits that a client sees, and what the server knows about them. Some
//! tests take the commands CF.* with them.
//!
//! - [`table`]: the list of all commands, with their properties; [`described`]: what the server says about them;
//! - [`items`]: items, and the replies about them; [`arguments`]: wrong numbers of arguments, wrong options and
//!   numbers;
//! - [`figures`]: BF.INFO, BF.DEBUG and BF.CARD; [`seeds`]: seeds of hash functions;
//! - [`filling`]: what some of these tests fill filters with;
//! - [`sizes`]: filters too large for a machine, or almost;
//! - [`copying`]: BF.SCANDUMP and BF.LOADCHUNK;
//! - [`effects`]: events, and what replicas and files get.

mod arguments;
mod copying;
mod described;
mod effects;
mod figures;
mod filling;
mod items;
mod seeds;
mod sizes;
pub(crate) mod table;
