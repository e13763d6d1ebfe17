//! oxbloom: Bloom filters for Redis and Valkey.
//!
//! - [`filter`] is the library: filters that grow, in plain Rust.
//! - `module` is the server's side of it: the `BF.*` commands and the data types.

pub mod filter;
mod module;

/// All memory is the server's when loaded into one, and the system's otherwise.
#[global_allocator]
static ALLOCATOR: module::alloc::ServerAlloc = module::alloc::ServerAlloc;

pub use module::RedisModule_OnLoad;
