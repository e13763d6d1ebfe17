//! The `header` target: see [`oxbloom_fuzz`].

#![cfg_attr(fuzzing, no_main)]

oxbloom_fuzz::target!(oxbloom_fuzz::decoding::header::header);
