//! `make bench`: compares oxbloom with RedisBloom, with a module that does nothing, and with fastbloom.
//!
//! Prints a table for each kind of filter, and one that compares what was measured with what was aimed at. A whole run
//! also writes them into the pages, between the markers that name them, unless `SERVER_BIN` chooses another server, such
//! as `target/servers/valkey-9.1`. With `QUICK=1`, smaller filters are measured in three minutes. With `ONLY=packed`,
//! only the tables whose names start so are measured.

mod client;
mod goals;
mod library;
mod operations;
mod plan;
mod requests;
mod servers;
mod table;
mod workload;

use std::fs;
use std::process::Command;

use servers::{Instance, Peer};

/// The pages with tables.
const PAGES: [&str; 3] = ["docs/benchmarks.md", "docs/measurements.md", "docs/live-copies.md"];

fn main() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let quick = !matches!(variable("QUICK").as_str(), "" | "0");
    let only = variable("ONLY");
    let rounds = if quick { 3 } else { 7 };

    servers::pin_client();
    let mut tables = Vec::new();
    for workload in plan::workloads().into_iter().filter(|workload| workload.table_name().starts_with(&only)) {
        tables.extend(if quick { workload.quick() } else { workload }.measure(rounds));
    }
    tables.extend(operations::measure(&only, quick));
    tables.extend(library::measure(&only, quick, rounds));
    assert!(!tables.is_empty(), "no table is called {only}");

    let mut sections = vec![("about".to_owned(), about(rounds)), ("goals".to_owned(), goals::markdown(&tables))];
    sections.extend(tables.iter().map(|table| (table.name.clone(), table.markdown())));
    for (name, section) in &sections {
        let title = tables.iter().find(|table| table.name == *name).map_or("", |table| &table.title);
        println!("## {name}: {title}\n\n{section}");
    }
    if !quick && only.is_empty() && variable("SERVER_BIN").is_empty() {
        PAGES.iter().for_each(|page| fill_in(page, &sections));
    }
}

/// Replaces the sections of a page. Each stands between two markers.
fn fill_in(page: &str, sections: &[(String, String)]) {
    let path = testkit::repository().join(page);
    let mut text = fs::read_to_string(&path).expect("a page");
    let mut markers = text.matches("<!-- /").count();
    for (name, section) in sections {
        let marker = format!("<!-- {name} -->\n");
        let Some((before, rest)) = text.split_once(&marker) else { continue };
        let (_, after) = rest.split_once(&format!("<!-- /{name} -->")).expect("the marker of the end");
        text = format!("{before}{marker}\n{section}\n<!-- /{name} -->{after}");
        markers -= 1;
    }
    assert_eq!(markers, 0, "{page} has tables that were not measured");
    fs::write(path, text).expect("a page that can be written");
}

/// Describes the machine, the modules and the date.
fn about(rounds: u64) -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1)).unwrap_or("?");
    let memory =
        operations::memory_field("/proc/meminfo", "MemTotal").map_or(0.0, |bytes| bytes as f64 / f64::from(1 << 30));
    let [kernel, date] = [("uname", "-sr"), ("date", "-u +%Y-%m-%d")].map(|(program, arguments)| {
        let output = Command::new(program).args(arguments.split(' ')).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    });
    let [own, other] = [Peer::Oxbloom, Peer::RedisBloom].map(|peer| Instance::start(peer, peer.setup()).versions());
    format!("{date}: {own}, {other}; {} with {memory:.0} GiB, {kernel}; {rounds} rounds.\n", model.trim())
}
