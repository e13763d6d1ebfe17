//! `make bench`: oxbloom, in either layout, RedisBloom and the floor side by side on real servers.
//!
//! Writes `docs/benchmarks.md` and its picture; with `QUICK=1`, which measures less in two minutes, the same into the build
//! folder.

mod beyond;
mod chart;
mod client;
mod format;
mod library;
mod operations;
mod peers;
mod report;
mod requests;
mod statistics;
mod targets;
mod workloads;

use std::fs;
use std::path::PathBuf;

use peers::{Instance, Peer};
use report::Report;
use workloads::Plan;

const CHART: &str = "benchmarks.svg";

fn main() {
    let quick = std::env::var("QUICK").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let repository = testkit::repository();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    let folder = if quick { target.join("bench") } else { repository.join("docs") };

    peers::pin_client();
    let plan = if quick { Plan::QUICK } else { Plan::FULL };
    let mut instances = Peer::ALL.map(|peer| Instance::start(peer, peer.setup()));
    let results = plan.run(&mut instances);
    drop(instances);
    let operations = operations::measure(quick);
    let beyond = beyond::measure(quick);
    let library = library::rows(&target);
    let mut targets = targets::targets(&results, &operations, &library);
    targets.extend(beyond.targets());
    let report = Report {
        plan: &plan,
        results: &results,
        operations: &operations,
        beyond: &beyond,
        library: &library,
        targets: &targets,
        chart: CHART,
    };

    let page = report.markdown();
    println!("{page}");
    fs::create_dir_all(&folder).expect("a folder for the results");
    fs::write(folder.join("benchmarks.md"), page).expect("a page");
    fs::write(folder.join(CHART), chart::svg(&results).expect("a picture")).expect("a picture");
    println!("Written to {}", folder.join("benchmarks.md").display());
}
