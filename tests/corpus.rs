//! What fuzzing found, and what it started from, through the targets of `fuzz/`.
//!
//! Without the usual harness: a target of the whole module wants a process of one thread, as a server has it.

use std::fs;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
mod targets;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 4] = [
    ("header", targets::decoding::header),
    ("file", targets::decoding::file),
    ("pieces", targets::decoding::pieces),
    ("commands", targets::commands::commands),
];

fn main() {
    for (target, run) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        assert!(!paths.is_empty(), "{} is empty", folder.display());
        paths.sort();
        for path in &paths {
            // A target says what is broken, but not by what.
            let failed = Failed(path);
            run(&fs::read(path).expect("a file that can be read"));
            std::mem::forget(failed);
        }
        println!("{target}: {} files break no promise", paths.len());
    }
}

/// Names a file if it is dropped: where its target panicked.
struct Failed<'a>(&'a Path);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        eprintln!("This broke a promise: {}", self.0.display());
    }
}
