//! Runs the fuzz targets on the files in `corpus/`: what fuzzing found, and what it started from.
//!
//! Without the usual harness, since the target of the whole module needs a process of one thread, as a server is.

use std::fs;
use std::path::Path;

use oxbloom_fuzz::{commands, decoding};

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 4] = [
    ("header", decoding::header),
    ("file", decoding::file),
    ("pieces", decoding::pieces),
    ("commands", commands::commands),
];

fn main() {
    for (target, run) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
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
