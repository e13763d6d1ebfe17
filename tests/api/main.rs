//! The frozen interface of the library: `filter/public-api.txt` lists it, so that a review sees each change of it.

use std::path::Path;
use std::process::Command;

const TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/api");
const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/filter");

/// Compares the library's public items with the list. With `UPDATE_SNAPSHOTS=yes`, writes the list.
#[test]
fn the_public_interface_of_the_library_is_the_listed_one() {
    // rustdoc writes JSON only with this variable, or in a nightly version. The variable would make cargo build the
    // dependencies of other tests again, so they are built into another folder.
    let documented = Command::new(env!("CARGO"))
        .args(["rustdoc", "-q", "--locked", "--lib", "--all-features", "--target-dir", TARGET])
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        .current_dir(LIBRARY)
        .env("RUSTC_BOOTSTRAP", "1")
        .status()
        .expect("cargo runs");
    assert!(documented.success(), "rustdoc failed");

    let interface = public_api::Builder::from_rustdoc_json(Path::new(TARGET).join("doc/oxbloom_filter.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .expect("the JSON of this compiler's rustdoc is not known: use the version of Rust that CONTRIBUTING.md names");
    interface.assert_eq_or_update(Path::new(LIBRARY).join("public-api.txt"));
}
