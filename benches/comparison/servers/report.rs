//! Writes the pages `docs/benchmarks.md` and `docs/measurements.md`.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::beyond::Beyond;
use crate::cuckoo::CuckooResults;
use crate::format::{bytes, describe, seconds, spread, thousands};
use crate::library;
use crate::newest::Newest;
use crate::operations::{Operations, Unit, memory_field};
use crate::packed::PackedResults;
use crate::peers::{Instance, MAIN, Peer};
use crate::statistics::Series;
use crate::summary;
use crate::windows::Windows;
use crate::workloads::{Delivery, Measured, Plan, Results, Workload};
use testkit::server_binary;

/// The last columns of a table of speeds if the classic layout takes part: headings, rule, and a row without it.
const CLASSIC_COLUMNS: [&str; 3] =
    [" classic: CPU | of RedisBloom | command | of RedisBloom | items/s |", "--:|--:|--:|--:|--:|", "  |  |  |  |  |"];

/// The versions of the modules and of the server.
pub(crate) struct Versions {
    oxbloom: String,
    redisbloom: String,
    server: String,
}

impl Versions {
    pub(crate) fn of(instances: &mut [Instance]) -> Versions {
        let mut of = |peer| {
            let instance = instances.iter_mut().find(|instance| instance.peer == peer);
            instance.expect("a server for each peer").module_version()
        };
        Versions { oxbloom: of(Peer::Oxbloom), redisbloom: of(Peer::RedisBloom), server: server_version() }
    }
}

/// The results that are reported.
pub(crate) struct Report<'a> {
    pub versions: &'a Versions,
    pub plan: &'a Plan,
    pub results: &'a Results,
    pub operations: &'a Operations,
    pub beyond: &'a Beyond,
    pub windows: &'a Windows,
    pub packed: &'a PackedResults,
    pub cuckoo: &'a CuckooResults,
    pub newest: &'a Newest,
    pub library: &'a [library::Row],
    /// The file name of the chart.
    pub chart: &'a str,
}

impl Report<'_> {
    /// Returns the page for those who want to know what to expect.
    pub(crate) fn benchmarks(&self) -> String {
        let mut page = format!(
            "# Benchmarks\n\n\
             `make bench` writes this page. It compares oxbloom {} with RedisBloom {}, in {}.\n\n",
            self.versions.oxbloom, self.versions.redisbloom, self.versions.server,
        );
        page.push_str(&summary::markdown(self.plan, self.results, self.packed, self.operations, self.beyond));
        page.push_str(&self.newest.markdown());
        page.push('\n');
        let _ = writeln!(
            page,
            "The picture shows eight of these comparisons, on a filter that was reserved and on one that grew. The *floor* is a \
             module that does nothing: its time is the server's own work.\n\n\
             ![Processor time an item]({})\n\n\
             ## How we measured\n\n\
             - **Where and when**: {}\n\
             - **Rounds**: all servers are pinned to one core; the client is pinned to another. The servers are measured in \
             turn, {} rounds of each workload. A figure is the median of the rounds. The middle half of the rounds is in \
             brackets. A ratio is the median of the rounds' ratios.\n\
             - **CPU** is the processor time of the whole server. **Command** is the time in the command's own code, as `INFO \
             commandstats` counts it: it leaves out the prefetching that oxbloom does before the command runs. Both are in \
             nanoseconds an item. A **hit** is an item that is there, a **miss** an item that is not there.\n\
             - **Filters** hold at least a tenth of their capacity. Hits are drawn from the whole filter. The replies are \
             checked: a false negative ends the run.\n\
             - **The floor** is a module whose commands read their arguments, open the key and reply zeros \
             ([source](../benches/comparison/examples/floor.rs)). Its time is the server's own work.\n\
             - **{}** is oxbloom with `bf-layout classic`, which is RedisBloom's layout. It is measured with many items in a \
             command, on two of the filters, and in the tables of memory, saving and loading.\n\n\
             [All measurements](measurements.md) has the table of each kind of command and filter. \
             [Performance](performance.md) explains where the time goes.\n",
            self.chart,
            machine(),
            self.plan.rounds,
            Peer::Classic.name(),
        );
        self.write_operations(&mut page);
        page
    }

    /// Returns the page with all other tables.
    pub(crate) fn measurements(&self) -> String {
        let mut page = "# All measurements\n\n\
             `make bench` writes this page, together with [the benchmarks](benchmarks.md), which explain [how we \
             measured](benchmarks.md#how-we-measured).\n\n"
            .to_owned();
        page.push_str(&self.packed.markdown());
        page.push_str(&self.beyond.markdown());
        page.push_str(&self.cuckoo.markdown());
        page.push_str(&self.windows.markdown());
        self.write_library(&mut page);
        for subject in self.plan.subjects {
            self.write_speeds(&mut page, subject.name);
        }
        page
    }

    fn write_operations(&self, page: &mut String) {
        page.push_str(
            "## Memory, persistence, replication, pauses\n\n\
             | | oxbloom | RedisBloom | ratio | oxbloom, classic | ratio |\n|---|--:|--:|--:|--:|--:|\n",
        );
        for row in &self.operations.rows {
            let value = |peer| row.values.get(&peer).map(|series| with_unit(series, row.unit));
            let [oxbloom, redisbloom] =
                [Peer::Oxbloom, Peer::RedisBloom].map(|peer| value(peer).unwrap_or_else(|| "not supported".to_owned()));
            let classic = value(Peer::Classic).unwrap_or_default();
            let [ratio, classic_ratio] = [Peer::Oxbloom, Peer::Classic]
                .map(|peer| row.ratio(peer).map_or_else(String::new, |ratio| format!("{ratio:.2}")));
            let _ = writeln!(
                page,
                "| {} | {oxbloom} | {redisbloom} | {ratio} | {classic} | {classic_ratio} |",
                row.title()
            );
        }
    }

    fn write_library(&self, page: &mut String) {
        if self.library.is_empty() {
            return;
        }
        page.push_str(
            "## The library, in process\n\n\
             `cargo bench -p oxbloom-comparison --bench filter` measures full filters without a server. It compares them with \
             the crate `fastbloom`, which is measured with its default hasher (SipHash) and with foldhash. Times are in \
             nanoseconds an item, with the 95 % confidence interval of the median in brackets.\n\n\
             | capacity | error rate | | oxbloom, batches | oxbloom, one by one | fastbloom | fastbloom, foldhash |\n\
             |--:|--:|---|--:|--:|--:|--:|\n",
        );
        let own: Vec<_> = self.library.iter().filter(|row| row.library == "oxbloom-batches").collect();
        for row in &own {
            let cell = |library: &str| {
                library::peer(self.library, row, library).map_or_else(String::new, |row| {
                    format!("{:.1} ({:.1}–{:.1})", row.nanoseconds, row.lower, row.upper)
                })
            };
            let _ = writeln!(
                page,
                "| 10^{} | {} % | {} | {} | {} | {} | {} |",
                row.capacity.ilog10(),
                row.error_rate * 100.0,
                row.operation,
                cell("oxbloom-batches"),
                cell("oxbloom"),
                cell("fastbloom"),
                cell("fastbloom-foldhash"),
            );
        }
        page.push_str("\n| capacity | requested rate | oxbloom: bits an item | measured rate | fastbloom: bits an item | measured rate |\n|--:|--:|--:|--:|--:|--:|\n");
        for row in own.iter().filter(|row| row.operation == "miss") {
            let Some(peer) = library::peer(self.library, row, "fastbloom-foldhash") else { continue };
            let _ = writeln!(
                page,
                "| 10^{} | {} % | {:.3} | {:.3} % | {:.3} | {:.3} % |",
                row.capacity.ilog10(),
                row.error_rate * 100.0,
                row.bits_per_item,
                row.false_positive_rate * 100.0,
                peer.bits_per_item,
                peer.false_positive_rate * 100.0,
            );
        }
        page.push('\n');
    }

    fn write_speeds(&self, page: &mut String, subject: &str) {
        let of_subject = |(workload, peer): &(Workload, Peer)| workload.subject == subject && *peer == Peer::Oxbloom;
        let workloads: Vec<Workload> = self.results.keys().filter(|key| of_subject(key)).map(|key| key.0).collect();
        let classic = |workload: &Workload| self.results.get(&(*workload, Peer::Classic));
        let [heads, rule, none] =
            if workloads.iter().any(|workload| classic(workload).is_some()) { CLASSIC_COLUMNS } else { [""; 3] };
        let _ = writeln!(
            page,
            "## {subject}\n\n\
             | | bytes | CPU: oxbloom | RedisBloom | floor | of RedisBloom | of the floor | command: oxbloom | RedisBloom | floor \
             | of RedisBloom | items/s: oxbloom | RedisBloom |{heads}\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|{rule}"
        );
        for workload in &workloads {
            let [own, redisbloom, floor] = MAIN.map(|peer| &self.results[&(*workload, peer)]);
            let classic_cells =
                classic(workload).map_or_else(|| none.to_owned(), |classic| classic_cells(classic, redisbloom));
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {} | {} | {} | {:.2} | {} | {} |{}",
                describe(*workload),
                workload.length,
                spread(&own.cpu),
                spread(&redisbloom.cpu),
                spread(&floor.cpu),
                own.cpu.ratio_to(&redisbloom.cpu),
                own.cpu.ratio_to(&floor.cpu),
                spread(&own.command),
                spread(&redisbloom.command),
                spread(&floor.command),
                own.command.ratio_to(&redisbloom.command),
                thousands(own.throughput.median()),
                thousands(redisbloom.throughput.median()),
                classic_cells,
            );
        }
        let timed: Vec<_> = workloads.iter().filter(|workload| workload.delivery == Delivery::Unpipelined).collect();
        if !timed.is_empty() {
            let _ = writeln!(
                page,
                "\nLatency with {} connections, in microseconds:\n\n\
                 | | bytes | p50: oxbloom | RedisBloom | floor | p99: oxbloom | RedisBloom | floor |\n\
                 |---|--:|--:|--:|--:|--:|--:|--:|",
                crate::client::CONNECTIONS
            );
        }
        for workload in timed {
            let measured: [&Measured; 3] = MAIN.map(|peer| &self.results[&(*workload, peer)]);
            let [p50, p99] =
                [measured.map(|measured| spread(&measured.p50)), measured.map(|measured| spread(&measured.p99))];
            let (what, length) = (describe(*workload), workload.length);
            let _ = writeln!(page, "| {what} | {length} | {} | {} |", p50.join(" | "), p99.join(" | "));
        }
        page.push('\n');
    }
}

/// Returns the last columns of a row in which the classic layout takes part.
fn classic_cells(classic: &Measured, redisbloom: &Measured) -> String {
    format!(
        " {} | {:.2} | {} | {:.2} | {} |",
        spread(&classic.cpu),
        classic.cpu.ratio_to(&redisbloom.cpu),
        spread(&classic.command),
        classic.command.ratio_to(&redisbloom.command),
        thousands(classic.throughput.median()),
    )
}

fn with_unit(series: &Series, unit: Unit) -> String {
    let value = series.median();
    match unit {
        Unit::Bytes => bytes(value),
        Unit::Seconds => seconds(value),
    }
}

/// Describes the machine and the date.
fn machine() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1)).unwrap_or("?");
    let gibibytes = memory_field("/proc/meminfo", "MemTotal").map_or(0.0, |bytes| bytes as f64 / f64::from(1 << 30));
    let cores = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    let kernel = output("uname", &["-sr"]);
    let date = output("date", &["-u", "+%Y-%m-%d"]);
    format!("{date}, on {cores} cores of {}, {gibibytes:.0} GiB, {kernel}, {}.", model.trim(), std::env::consts::ARCH)
}

fn server_version() -> String {
    let version = output(&server_binary(), &["--version"]);
    let number = version.split_ascii_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    let allocator = version.split_ascii_whitespace().find_map(|word| word.strip_prefix("malloc=")).unwrap_or("?");
    let name = version.split_ascii_whitespace().next().unwrap_or("Redis");
    format!("{name} {number} ({allocator})")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
