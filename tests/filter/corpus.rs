//! What fuzzing found, and what it started from, through the targets of `fuzz/`.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/src/lib.rs"]
mod targets;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    for path in paths {
        // Shown if the test fails: a target says what is broken, but not by what.
        println!("{}", path.display());
        run(&fs::read(path).unwrap());
    }
}

#[test]
fn headers_that_were_found_break_no_promise() {
    replay("header", targets::header);
}

#[test]
fn files_that_were_found_break_no_promise() {
    replay("file", targets::file);
}

#[test]
fn pieces_that_were_found_break_no_promise() {
    replay("pieces", targets::pieces);
}
