//! Models of what filters must reply, without a server.
//!
//! - [`counting`], [`keyspace`]: the items of a filter, and of the filters of a key space;
//! - [`window`]: the items of a filter that forgets;
//! - [`history`]: a checker of what clients of several servers saw; [`kinds`]: the filters in histories;
//! - [`random`]: reproducible random numbers.

#![allow(missing_docs, reason = "not published, and most names explain themselves")]

pub mod counting;
pub mod history;
pub mod keyspace;
pub mod kinds;
pub mod random;
pub mod window;
