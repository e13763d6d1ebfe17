//! Tests of the module in a real server, from a client's point of view.

mod access;
mod beside;
mod classic;
mod commands;
mod configuration;
mod counting;
mod cuckoo;
mod datatype;
mod expiry;
mod forgetting;
mod importing;
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
mod tampering;
mod valkey;
mod window_options;
