//! Counts the instructions of operations, and fails if they differ from the recorded ones. This detects slower code,
//! and needs no quiet machine.
//!
//! Callgrind counts the instructions in our own object file: this benchmark with the library in it, or the module in a
//! server. It also counts the calls into other object files: the server's API, its allocator, the C library. The
//! instructions there are not ours, and differ between versions. Both counts are the same in every run, however busy
//! the machine is. The other benchmarks measure the time, above all that of cache misses.
//!
//! ```text
//!  cargo bench --bench instructions                compares with recorded.txt
//!  cargo bench --bench instructions -- --record    writes recorded.txt
//! ```
//!
//! Valgrind does not run in qemu. On aarch64, a plugin of qemu counts instead (`--in-qemu`). `make
//! test-instructions-on-aarch64` compares the counts with recorded-aarch64.txt.
//!
//! The profiles are kept. `callgrind_annotate` shows their instructions line by line.

mod callgrind;
mod library;
mod qemu;
mod recorded;
mod server;
use std::path::Path;
use std::process::{Command, ExitCode};

use callgrind::Counts;
use recorded::Recorded;

/// The maximum difference from a recorded count, in both directions. Runs do not differ at all, but compilers do: from
/// Rust 1.88 to 1.97, by up to 1.9 %.
const TOLERANCE: f64 = 0.03;

/// The cost of one item (the library) or of one command (the server).
#[derive(Clone, Copy)]
struct Cost {
    instructions: f64,
    calls: f64,
}

impl Cost {
    fn of_each(counts: Counts, times: usize) -> Cost {
        assert!(counts.instructions > 0, "callgrind saw nothing of our code");
        // Rounds the counts like those in the file.
        let of_each = |count: u64, unit: f64| (count as f64 / times as f64 / unit).round() * unit;
        Cost { instructions: of_each(counts.instructions, 0.01), calls: of_each(counts.calls, 0.001) }
    }

    /// Describes the differences from the recorded cost. Returns an empty string if there are none.
    fn differences(self, recorded: Option<Cost>) -> String {
        let Some(was) = recorded else { return "not recorded".to_owned() };
        let difference = |what, now, was| match now / was {
            ratio if ratio > 1.0 + TOLERANCE => Some(format!("more {what}")),
            ratio if ratio < 1.0 - TOLERANCE => Some(format!("fewer {what}")),
            // This includes 0 / 0, which is not a number.
            _ => None,
        };
        let instructions = difference("instructions", self.instructions, was.instructions);
        let calls = difference("calls", self.calls, was.calls);
        instructions.into_iter().chain(calls).collect::<Vec<_>>().join(", ")
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, workload] = &arguments[..]
        && [library::WORKLOAD_FLAG, library::PREPARATION_FLAG].contains(&&flag[..])
    {
        library::run(flag, workload);
        return ExitCode::SUCCESS;
    }
    let has = |option| arguments.iter().any(|argument| argument == option);
    let in_qemu = has("--in-qemu");
    let profiles = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    let costs: Vec<(&str, Cost)> = match in_qemu {
        true => library::costs_in_qemu(&profiles).chain(server::costs_in_qemu(&profiles)).collect(),
        false => library::costs(&profiles).chain(server::costs(&profiles)).collect(),
    };
    let recorded = Recorded::read(if in_qemu { recorded::FILE_FOR_AARCH64 } else { recorded::FILE });
    let differing = compare(&costs, &recorded);
    if !in_qemu {
        println!("\nThe profiles, for callgrind_annotate, are in {}.", profiles.display());
    }
    if !in_qemu && !is_as_recorded() {
        println!("The recorded costs are for x86-64 with AVX2, so nothing is compared here.");
    } else if has("--record") {
        recorded.replace(&compiler(), &costs);
        println!("Recorded in {}.", recorded.file);
    } else if differing > 0 || costs.len() != recorded.len() {
        explain(&recorded);
        return ExitCode::FAILURE;
    } else {
        println!("All costs are within {} % of the recorded ones.", TOLERANCE * 100.0);
    }
    ExitCode::SUCCESS
}

/// Returns true if this processor executes the instructions that were recorded.
fn is_as_recorded() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Prints each cost with the recorded one. Returns the number of costs that differ.
fn compare(costs: &[(&str, Cost)], recorded: &Recorded) -> usize {
    println!("{:26}{:^34}{:>22}", "", "instructions", "calls out of our code");
    println!("{:26}{:>12}{:>12}{:>10}{:>12}{:>10}", "", "recorded", "now", "change", "recorded", "now");
    let mut differing = 0;
    for &(workload, now) in costs {
        let was = recorded.cost(workload);
        let differences = now.differences(was);
        differing += usize::from(!differences.is_empty());
        let was = was.unwrap_or(Cost { instructions: f64::NAN, calls: f64::NAN });
        let change = (now.instructions / was.instructions - 1.0) * 100.0;
        println!(
            "{workload:26}{:>12.2}{:>12.2}{change:>+8.1} %{:>12.3}{:>10.3}  {differences}",
            was.instructions, now.instructions, was.calls, now.calls
        );
    }
    differing
}

/// Explains the failure, and what to do.
fn explain(recorded: &Recorded) {
    println!(
        "The costs differ from those in {} by more than {} %. More instructions are a regression, unless the change is worth it. \
         Fewer are good, unless something was lost: prefetching, for example, takes instructions. CONTRIBUTING.md says \
         how to record these costs.\n",
        recorded.file,
        TOLERANCE * 100.0
    );
    let compiler = compiler();
    if compiler != recorded.compiler {
        println!(
            "The compiler may be the reason: this is {compiler}, and the costs were recorded with {}.",
            recorded.compiler
        );
    }
}

/// Returns the compiler's name and version.
fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.unwrap_or_else(|error| panic!("rustc cannot be run: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
