//! The `chunks` target: see [`oxbloom_fuzz`].

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oxbloom_fuzz::decoding::chunks::chunks(bytes));

#[cfg(not(fuzzing))]
fn main() {
    eprintln!("This is a target of cargo-fuzz. To try the files of the corpus: cargo test -p oxbloom-fuzz");
}
