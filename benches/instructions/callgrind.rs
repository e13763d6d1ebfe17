//! Runs callgrind, and reads the counts of one object file from its profiles.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The counts of one object file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub instructions: u64,
    /// The number of calls into other object files.
    pub calls: u64,
}

/// Returns the command prefix that profiles a command. `when` is the option that says what to count, or when to write.
pub(crate) fn prefix(when: &str, profile: &Path) -> Vec<String> {
    let profile = format!("--callgrind-out-file={}", profile.display());
    // Uncompressed names and positions are easier to parse.
    ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no", when, &profile]
        .map(str::to_owned)
        .into()
}

/// Panics unless valgrind is installed.
pub(crate) fn require() {
    let version = Command::new("valgrind").arg("--version").output();
    version.unwrap_or_else(|error| panic!("valgrind cannot be run, please install it: {error}"));
}

/// Returns the path of a workload's profile. In file names, `%` has a special meaning for callgrind, so this replaces
/// it.
pub(crate) fn profile_of(workload: &str, folder: &Path) -> PathBuf {
    folder.join(workload.replace(|character: char| !character.is_ascii_alphanumeric(), "_"))
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, other: Counts) -> Counts {
        Counts { instructions: self.instructions - other.instructions, calls: self.calls - other.calls }
    }
}

impl Counts {
    /// Sums the counts of `object` in `profile`, the content of a file.
    ///
    /// ```text
    ///  ob=/usr/lib/redis/modules/liboxbloom.so     the following lines are about this object
    ///  fn=oxbloom::commands::query::card
    ///  32 5                                        on line 32, 5 instructions
    ///  cob=/usr/bin/redis-server                   another object
    ///  cfn=RM_ReplyWithLongLong
    ///  calls=1 0                                   it was called once,
    ///  32 79                                       and executed 79 instructions
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
    number.unwrap_or_else(|| panic!("callgrind's profile has no number here: {text}"))
}
