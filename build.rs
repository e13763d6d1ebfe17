//! Rejects processors of 32 bits. The crate `redis-module` does not compile for them, and its errors do not say why.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_POINTER_WIDTH").as_deref() != Ok("64") {
        println!("cargo::error=the module needs a processor of 64 bits (the crate oxbloom-filter does not)");
    }
}
