//! The paths of the modules and libraries that servers load.

use std::path::{Path, PathBuf};

/// Returns the path of the module under test.
pub fn oxbloom() -> PathBuf {
    module("OXBLOOM_MODULE", "target/release/liboxbloom.so", "make build")
}

/// Returns the path of RedisBloom 2.8.2.
pub fn redisbloom() -> PathBuf {
    module("REDISBLOOM_MODULE", "target/redisbloom/redisbloom.so", "make setup-tests")
}

/// Returns the path of the module under test, built with fault injection.
pub fn oxbloom_with_faults() -> PathBuf {
    module("OXBLOOM_FAULTY_MODULE", "target/faulty/liboxbloom.so", "make build-modules")
}

/// Returns the path of the stand-in for valkey-bloom.
pub fn valkey_bloom() -> PathBuf {
    module("VALKEY_BLOOM_MODULE", "target/debug/examples/libvalkey_bloom.so", "make build-modules")
}

/// Returns the path of the library that gives a server a clock that is off.
pub fn false_clock() -> PathBuf {
    module("FALSE_CLOCK", "target/debug/examples/libfalse_clock.so", "make build-modules")
}

/// Returns the path of the plugin of qemu that counts instructions.
pub fn instruction_counter() -> PathBuf {
    module("INSTRUCTION_COUNTER", "target/debug/examples/libinstruction_counter.so", "make build-modules")
}

/// Returns the path of a module: the value of an environment variable, or `default` in the workspace.
pub fn module(variable: &str, default: &str, remedy: &str) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| repository().join(default), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `{remedy}`, or set {variable}", path.display());
    path
}

/// Returns the path of the workspace.
pub fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).expect("a workspace")
}

/// Returns the command prefix that runs a program which preloads a library, with these variables.
pub fn preloading(library: &Path, variables: &[(&str, &Path)]) -> Vec<String> {
    let variables = [("LD_PRELOAD", library)].into_iter().chain(variables.iter().copied());
    let variables = variables.map(|(name, path)| format!("{name}={}", path.display()));
    ["env".to_owned()].into_iter().chain(variables).collect()
}
