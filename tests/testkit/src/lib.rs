//! Helpers that the tests and benchmarks of the module share.
//!
//! - [`server`], [`modules`]: real servers, started on free ports in temporary folders;
//! - [`command`], [`wire`]: clients; [`wire`] shows replies unchanged, errors within arrays included;
//! - [`clock`]: servers whose clock the tests stop, for filters that forget;
//! - [`filter_model`], [`windowed_workload`], [`keyspace_workload`]: filters on a server with such models, and random
//!   commands that are checked against them;
//! - [`info`], [`persistence`], [`replication`]: INFO and BF.INFO, files, and replicas;
//! - [`payload`], [`forgery`]: DUMP payloads and their parts, and filters with forged numbers;
//! - [`proxy`], [`memory`], [`failing_writes`]: links that break, servers short of memory, writes that fail.
//!
//! Environment variables with paths:
//!
//! - `SERVER_BIN`: the server under test (default: `redis-server`);
//! - `OXBLOOM_MODULE`: the module under test (default: the release build);
//! - `OXBLOOM_FAULTY_MODULE`: the module with fault injection (default: where `make build-modules` puts it);
//! - `REDISBLOOM_MODULE`: RedisBloom (default: the one that `make setup-tests` installs).
//!
//! A test fails if a file that it needs is missing.

#![allow(missing_docs, reason = "not published, and most names explain themselves")]

pub mod clock;
pub mod command;
pub mod failing_writes;
pub mod filter_model;
pub mod forgery;
pub mod info;
pub mod keyspace_workload;
pub mod memory;
pub mod modules;
pub mod packing;
pub mod payload;
pub mod persistence;
pub mod proxy;
pub mod replication;
pub mod server;
pub mod windowed_workload;
pub mod wire;

pub use command::{ask, error, error_text, run, run_words};
pub use modules::{instruction_counter, module, oxbloom, oxbloom_with_faults, redisbloom, repository};
pub use server::{PATIENCE, Server, Setup, copy_of, server_binary};
