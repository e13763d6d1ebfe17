//! Counts the instructions that operations take, and fails when they are not those recorded: a guard against code that
//! became slower, which needs no quiet machine.
//!
//! Callgrind counts what is executed in our own object file, be it this benchmark with the library in it or the module
//! in a server, and how often that calls into another: the server's API, its allocator, the C library. What happens
//! there is not ours, and differs between versions. Both counts are the same in every run, however busy the machine.
//! What a processor makes of the instructions, its cache misses above all, is for the other benchmarks to see.
//!
//! ```text
//!  cargo bench --bench instructions                compares with recorded.txt
//!  cargo bench --bench instructions -- --record    writes it anew
//! ```
//!
//! The profiles are kept: `callgrind_annotate` tells where the instructions went, line by line.

mod callgrind;
mod library;
mod recorded;
mod server;
use std::path::Path;
use std::process::{Command, ExitCode};

use callgrind::Counts;
use recorded::Recorded;

/// How far a count may be from what was recorded, either way. Runs do not differ at all, but compilers do: from Rust
/// 1.88 to 1.97, by up to 1.9 %.
const TOLERANCE: f64 = 0.03;

/// What one item (the library) or one command (the server) takes.
#[derive(Clone, Copy)]
struct Cost {
    instructions: f64,
    calls: f64,
}

impl Cost {
    fn of_each(counts: Counts, times: usize) -> Cost {
        assert!(counts.instructions > 0, "callgrind saw nothing of our code");
        // As precise as what is recorded.
        let of_each = |count: u64, unit: f64| (count as f64 / times as f64 / unit).round() * unit;
        Cost { instructions: of_each(counts.instructions, 0.01), calls: of_each(counts.calls, 0.001) }
    }

    /// What is not as recorded; nothing if all is.
    fn differences(self, recorded: Option<Cost>) -> String {
        let Some(was) = recorded else { return "not recorded".to_owned() };
        let difference = |what, now, was| match now / was {
            ratio if ratio > 1.0 + TOLERANCE => Some(format!("more {what}")),
            ratio if ratio < 1.0 - TOLERANCE => Some(format!("fewer {what}")),
            // Among them 0 / 0, which is no number.
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
        && flag == library::WORKLOAD_FLAG
    {
        library::run(workload);
        return ExitCode::SUCCESS;
    }
    let record = arguments.iter().any(|argument| argument == "--record");
    let profiles = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    let costs: Vec<(&str, Cost)> = library::costs(&profiles).chain(server::costs(&profiles)).collect();
    let recorded = Recorded::read();
    let differing = compare(&costs, &recorded);
    println!("\nThe profiles, for callgrind_annotate, are in {}.", profiles.display());
    if !is_as_recorded() {
        println!("What is recorded is for x86-64 with AVX2: nothing is compared.");
    } else if record {
        Recorded::write(&compiler(), &costs);
        println!("Recorded in {}.", recorded::FILE);
    } else if differing > 0 || costs.len() != recorded.len() {
        explain(&recorded);
        return ExitCode::FAILURE;
    } else {
        println!("All is within {} % of what was recorded.", TOLERANCE * 100.0);
    }
    ExitCode::SUCCESS
}

/// Whether this processor executes the instructions that were recorded.
fn is_as_recorded() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Prints each cost beside what was recorded, and returns how many differ.
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

/// Says why it is a failure, and what to do.
fn explain(recorded: &Recorded) {
    println!(
        "These are not the costs in {}, within {} %. More is a regression, unless it is worth it. Fewer should be kept, \
         unless something was lost: prefetching, for one, takes instructions. To record what is right:\n\n    \
         cargo bench --bench instructions -- --record\n",
        recorded::FILE,
        TOLERANCE * 100.0
    );
    let compiler = compiler();
    if compiler != recorded.compiler {
        println!("Perhaps it is the compiler: this is {compiler}, and that was {}.", recorded.compiler);
    }
}

/// The compiler's name and version.
fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.unwrap_or_else(|error| panic!("rustc cannot be run: {error}"));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
