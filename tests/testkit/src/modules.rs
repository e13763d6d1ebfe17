//! The modules that servers are started with, and where they are.

use std::path::{Path, PathBuf};

/// The module under test.
pub fn oxbloom() -> PathBuf {
    module("OXBLOOM_MODULE", "target/release/liboxbloom.so", "make build")
}

/// RedisBloom 2.8.2.
pub fn redisbloom() -> PathBuf {
    module("REDISBLOOM_MODULE", "target/incumbent/redisbloom.so", "make setup")
}

/// The module under test, built with a command that panics.
pub fn oxbloom_with_faults() -> PathBuf {
    module("OXBLOOM_FAULTY_MODULE", "target/debug/liboxbloom.so", "cargo build --features fault-injection")
}

/// A module built from here, unless `variable` has the path of another.
pub fn module(variable: &str, default: &str, remedy: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| repository().join(default), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `{remedy}`, or set {variable}", path.display());
    path
}

/// Where the workspace is.
pub fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).expect("a workspace")
}
