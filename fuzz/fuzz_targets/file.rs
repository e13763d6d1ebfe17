#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oxbloom_fuzz::decoding::file(bytes));
