//! The `forged` target: see [`oxbloom_fuzz`].

#![cfg_attr(fuzzing, no_main)]

oxbloom_fuzz::target!(oxbloom_fuzz::forged::forged);
