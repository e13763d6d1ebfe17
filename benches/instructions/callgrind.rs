//! Callgrind, and what its profiles say of one object file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What was executed in one object file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub instructions: u64,
    /// Calls into other object files.
    pub calls: u64,
}

/// What to put before a command to have it profiled. `when` is the option that tells what to count, or when to write.
pub(crate) fn prefix(when: &str, profile: &Path) -> Vec<String> {
    let profile = format!("--callgrind-out-file={}", profile.display());
    // Names and positions are written out in full, which is easier to parse.
    ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no", when, &profile]
        .map(str::to_owned)
        .into()
}

/// Fails unless there is a valgrind.
pub(crate) fn require() {
    let version = Command::new("valgrind").arg("--version").output();
    version.unwrap_or_else(|error| panic!("valgrind cannot be run, please install it: {error}"));
}

/// Where to keep the profile of a workload. In the name of a file, `%` means something to callgrind.
pub(crate) fn profile_of(workload: &str, folder: &Path) -> PathBuf {
    folder.join(workload.replace(|character: char| !character.is_ascii_alphanumeric(), "_"))
}

impl Counts {
    /// Sums up what `profile`, a file's contents, has of `object`.
    ///
    /// ```text
    ///  ob=/usr/lib/redis/modules/liboxbloom.so     from here on, what was executed in this object
    ///  fn=oxbloom::commands::query::card
    ///  32 5                                        on line 32, 5 instructions
    ///  cob=/usr/bin/redis-server                   another object
    ///  cfn=RM_ReplyWithLongLong
    ///  calls=1 0                                   was called once,
    ///  32 79                                       which took 79 instructions there
    /// ```
    pub(crate) fn parse(profile: &str, object: &Path) -> Counts {
        let object = object.to_str().expect("a path in UTF-8");
        let mut counts = Counts::default();
        let (mut is_ours, mut leaves) = (false, false);
        let mut lines = profile.lines();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("ob=") {
                is_ours = name == object;
            } else if let Some(name) = line.strip_prefix("cob=") {
                leaves = name != object;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                if is_ours && leaves {
                    counts.calls += first_number(calls);
                }
                leaves = false;
                lines.next();
            } else if is_ours && line.starts_with(|first: char| first.is_ascii_digit()) {
                counts.instructions += line.split_once(' ').map_or(0, |(_, cost)| first_number(cost));
            }
        }
        counts
    }
}

fn first_number(text: &str) -> u64 {
    let number = text.split(' ').next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("callgrind wrote something else than a number: {text}"))
}
