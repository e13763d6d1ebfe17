//! Tests of the module in a real server, from a client's point of view.

mod access;
#[cfg(target_arch = "x86_64")] // like RedisBloom
mod beside;
mod classic;
mod commands;
mod configuration;
mod counting;
mod cuckoo;
mod datatype;
mod dialect;
mod expected;
mod expiry;
mod fields;
mod folding;
mod following;
mod forgetting;
#[cfg(target_arch = "x86_64")]
mod importing;
mod limits;
mod lookahead;
mod memory;
mod merging;
mod observing;
mod other_prefix;
mod packed;
mod panics;
mod persistence;
mod replay;
mod replication;
mod servers;
mod valkey;
mod window_options;
