//! `make bench`: compares oxbloom, in both layouts, with RedisBloom and the floor on real servers.
//!
//! Writes `docs/benchmarks.md`, `docs/measurements.md`, their charts, and `targets.md` beside this folder. With
//! `QUICK=1`, measures less in two minutes, and writes into the build folder.
//!
//! `cargo bench -p oxbloom-comparison --bench servers -- windows` measures only filters that forget, and writes their
//! section into the build folder. The other parts are `packed`, `cuckoo` and `newest`.

mod beyond;
mod chart;
mod client;
mod cuckoo;
mod format;
mod library;
mod newest;
mod operations;
mod packed;
mod peers;
mod report;
mod requests;
mod statistics;
mod summary;
mod target;
mod targets;
mod windows;
mod workloads;

use std::fs;
use std::path::{Path, PathBuf};

use peers::{Instance, Peer};
use report::Report;
use target::Target;
use workloads::Plan;

const CHART: &str = "benchmarks.svg";

/// The chart of the README.
const SUMMARY: &str = "speeds.svg";

fn main() {
    let quick = std::env::var("QUICK").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    let repository = testkit::repository();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    let folder = if quick { target.join("bench") } else { repository.to_path_buf() };

    peers::pin_client();
    if let Some(files) = std::env::args().find_map(|name| part(&name, quick, &target)) {
        write(&target.join("bench"), &files);
        return;
    }
    let plan = if quick { Plan::QUICK } else { Plan::FULL };
    let mut instances = Peer::ALL.map(|peer| Instance::start(peer, peer.setup()));
    let results = plan.run(&mut instances);
    let versions = report::Versions::of(&mut instances);
    drop(instances);
    let operations = operations::measure(quick);
    let beyond = beyond::measure(quick);
    let windows = windows::measure(quick);
    let packed = packed::measure(quick);
    let cuckoo = cuckoo::measure(quick);
    let newest = newest::measure(quick, &target);
    let library = library::rows(&target);
    let mut targets = targets::targets(&results, &operations, &library);
    targets.extend(beyond.targets());
    targets.extend(windows.targets());
    targets.extend(packed.targets());
    targets.extend(cuckoo.targets());
    let report = Report {
        versions: &versions,
        plan: &plan,
        results: &results,
        operations: &operations,
        beyond: &beyond,
        windows: &windows,
        packed: &packed,
        cuckoo: &cuckoo,
        newest: &newest,
        library: &library,
        chart: CHART,
    };

    let docs = [
        ("benchmarks.md", report.benchmarks()),
        ("measurements.md", report.measurements()),
        (CHART, chart::speeds(&results, &packed)),
        (SUMMARY, chart::summary(&results, &packed)),
        (windows::CHART, windows.chart()),
    ];
    write(&folder.join("docs"), &docs);
    write(&folder.join("benches/comparison"), &[("targets.md", target::page(&targets))]);
}

/// Measures one part. Returns its files, the page first, or `None` if there is no such part.
fn part(name: &str, quick: bool, target: &Path) -> Option<Vec<(&'static str, String)>> {
    let page = |targets: &[Target], tables: String| target::table(targets) + "\n" + &tables;
    Some(match name {
        "windows" => {
            let windows = windows::measure(quick);
            let page = page(&windows.targets(), windows.markdown());
            vec![("windows.md", page), (windows::CHART, windows.chart())]
        }
        "packed" => {
            let packed = packed::measure(quick);
            vec![("packed.md", page(&packed.targets(), packed.markdown()))]
        }
        "cuckoo" => {
            let cuckoo = cuckoo::measure(quick);
            vec![("cuckoo.md", page(&cuckoo.targets(), cuckoo.markdown()))]
        }
        "newest" => vec![("newest.md", newest::measure(quick, target).markdown())],
        _ => return None,
    })
}

/// Writes files, and prints the first of them, which is the page.
fn write(folder: &Path, files: &[(&str, String)]) {
    fs::create_dir_all(folder).expect("a folder for the results");
    for (name, content) in files {
        fs::write(folder.join(name), format!("{}\n", content.trim_end())).expect("a file");
    }
    println!("{}", files[0].1);
    println!("Written to {}", folder.join(files[0].0).display());
}
