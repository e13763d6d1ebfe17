//! The targets for commands, memory, files and the library, as ratios within one run.

use crate::library;
use crate::operations::{MEMORY_GROWN, Operations, RESIDENT_GROWN};
use crate::peers::Peer;
use crate::statistics::Series;
use crate::target::Target;
use crate::workloads::{Delivery, GROWN, GROWN_LARGE, HUGE, LARGE, Measured, Operation, Results, SMALL, Workload};

/// Returns all targets that have results.
pub(crate) fn targets(results: &Results, operations: &Operations, library: &[library::Row]) -> Vec<Target> {
    let mut targets = speeds(results);
    targets.extend(figures(operations));
    targets.extend(libraries(library));
    targets.retain(|target| !target.measured.is_empty());
    targets
}

fn speeds(results: &Results) -> Vec<Target> {
    let many = |workload: Workload| matches!(workload.delivery, Delivery::Batch(100 | 1000));
    let mut targets = Vec::new();
    let mut three = |title: &str, chosen: &dyn Fn(Workload) -> bool, [cpu, command, floor]: [f64; 3]| {
        let mut target = |what: &str, at_most, peer, series: fn(&Measured) -> &Series| {
            let title = format!("{title}: {what}");
            targets.push(Target { title, at_most, measured: shares(results, [Peer::Oxbloom, peer], series, chosen) });
        };
        target("server CPU, relative to RedisBloom", cpu, Peer::RedisBloom, |measured| &measured.cpu);
        target("command time, relative to RedisBloom", command, Peer::RedisBloom, |measured| &measured.command);
        target("server CPU, relative to the floor", floor, Peer::Floor, |measured| &measured.cpu);
    };
    for subject in [LARGE, HUGE, SMALL] {
        let at_most =
            if subject.name == SMALL.name { [1.0 / 1.5, 1.0 / 2.5, 1.25] } else { [1.0 / 2.5, 1.0 / 5.0, 1.6] };
        let title = format!("MADD, MEXISTS × 100 and × 1,000, {}", subject.name);
        three(&title, &|workload| workload.subject == subject.name && many(workload), at_most);
    }
    let title = format!("ADD, EXISTS pipelined, {}", LARGE.name);
    let chosen = |workload: Workload| workload.subject == LARGE.name && workload.delivery == Delivery::Pipelined;
    three(&title, &chosen, [1.0 / 1.35, 1.0 / 1.7, 1.5]);
    let of_grown = [
        (GROWN, Operation::ExistsHit, "MEXISTS × 1,000, hits", 0.25),
        (GROWN, Operation::ExistsMiss, "MEXISTS × 1,000, misses", 0.15),
        (GROWN, Operation::AddNew, "MADD × 1,000, growth included", 0.35),
        (GROWN_LARGE, Operation::AddNew, "MADD × 1,000, growth included", 0.35),
    ];
    for (subject, operation, title, at_most) in of_grown {
        let chosen = |workload: Workload| {
            let (is_subject, is_operation) = (workload.subject == subject.name, workload.operation == operation);
            is_subject && is_operation && workload.delivery == Delivery::Batch(1000)
        };
        targets.push(Target {
            title: format!("{title}, {}: command time, relative to RedisBloom", subject.name),
            at_most,
            measured: shares(results, [Peer::Oxbloom, Peer::RedisBloom], |measured| &measured.command, &chosen),
        });
    }
    for subject in [SMALL, LARGE, HUGE, GROWN, GROWN_LARGE] {
        let chosen = |workload: Workload| {
            workload.subject == subject.name && matches!(workload.delivery, Delivery::Pipelined | Delivery::Unpipelined)
        };
        targets.push(Target {
            title: format!("ADD, EXISTS one at a time, {}: server CPU, relative to RedisBloom", subject.name),
            at_most: 1.0,
            measured: shares(results, [Peer::Oxbloom, Peer::RedisBloom], |measured| &measured.cpu, &chosen),
        });
    }
    let chosen = |workload: Workload| {
        workload.subject == LARGE.name
            && workload.delivery == Delivery::Batch(1000)
            && matches!(workload.operation, Operation::ExistsHit | Operation::ExistsMiss)
    };
    targets.push(Target {
        title: format!("classic MEXISTS × 1,000, {}: command time, relative to RedisBloom", LARGE.name),
        at_most: 1.0 / 2.0,
        measured: shares(results, [Peer::Classic, Peer::RedisBloom], |measured| &measured.command, &chosen),
    });
    targets
}

/// Returns the ratios of one peer's values to another's, in each of the chosen workloads.
pub(crate) fn shares(
    results: &Results,
    [own, peer]: [Peer; 2],
    series: fn(&Measured) -> &Series,
    chosen: &dyn Fn(Workload) -> bool,
) -> Vec<f64> {
    let own = results.iter().filter(|((workload, of), _)| *of == own && chosen(*workload));
    own.map(|((workload, _), measured)| series(measured).ratio_to(series(&results[&(*workload, peer)]))).collect()
}

fn figures(operations: &Operations) -> Vec<Target> {
    let at_most = [
        ("append-only file, BF.MADD of 100, 80 % duplicates", 0.3),
        ("append-only file, BF.ADD, 80 % duplicates", 0.3),
        ("append-only file, BF.ADDPACKED of 1,000, 80 % duplicates", 0.2),
        ("replication, BF.MADD of 100, 80 % duplicates", 0.3),
        ("replication, BF.ADD, 80 % duplicates", 0.3),
        ("replication, BF.ADDPACKED of 1,000, 80 % duplicates", 0.2),
        ("SAVE", 1.0),
        ("BGSAVE", 1.0),
        ("BGSAVE, peak memory of the child", 1.0),
        ("loading", 1.0),
    ];
    let rows = at_most.into_iter().flat_map(|(what, at_most)| operations.rows_of(what).map(move |row| (row, at_most)));
    let single = rows.map(|(row, at_most)| Target {
        title: format!("{}, relative to RedisBloom", row.title()),
        at_most,
        measured: row.ratio(Peer::Oxbloom).into_iter().collect(),
    });
    let pauses = operations.rows_of("growing, pause of others").map(|row| Target {
        title: format!("{}: milliseconds", row.title()),
        at_most: 2.0,
        measured: row.values.get(&Peer::Oxbloom).map(|series| 1000.0 * series.median()).into_iter().collect(),
    });
    single.chain(memory_grown(operations)).chain(pauses).collect()
}

/// Returns the targets of the memory of growing filters: for each size, and for the average.
fn memory_grown(operations: &Operations) -> Vec<Target> {
    let mut targets = Vec::new();
    for what in [MEMORY_GROWN, RESIDENT_GROWN] {
        let rows: Vec<_> = operations.rows_of(what).collect();
        let ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio(Peer::Oxbloom)).collect();
        let average = ratios.iter().sum::<f64>() / ratios.len() as f64;
        let of_size = rows.iter().filter(|row| row.size == GROWN_SIZE).filter_map(|row| row.ratio(Peer::Oxbloom));
        for (title, at_most, measured) in [
            ("to 10^6", 0.38, of_size.collect()),
            ("average of all sizes", 0.45, vec![average]),
            ("all sizes", 0.60, ratios.clone()),
        ] {
            targets.push(Target { title: format!("{what}, {title}, relative to RedisBloom"), at_most, measured });
        }
    }
    targets
}

/// The size at which memory has a target of its own.
pub(crate) const GROWN_SIZE: &str = "10^6";

/// Returns the targets of the library: in batches, as the module uses it, and compared with the fastest hasher of
/// `fastbloom`.
fn libraries(rows: &[library::Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    for capacity in [10_000_000, 100_000_000] {
        let own = rows
            .iter()
            .filter(|row| row.library == "oxbloom-batches" && row.capacity == capacity && row.error_rate == 0.01);
        let pairs: Vec<_> =
            own.filter_map(|row| Some((row, library::peer(rows, row, "fastbloom-foldhash")?))).collect();
        let title = |what: &str| format!("library, 10^{} at 1 %: {what}, relative to fastbloom", capacity.ilog10());
        targets.extend(pairs.iter().map(|(own, peer)| Target {
            title: title(&own.operation),
            at_most: 1.0,
            measured: vec![own.nanoseconds / peer.nanoseconds],
        }));
        targets.extend(pairs.first().map(|(own, peer)| Target {
            title: title("memory"),
            at_most: 1.03,
            measured: vec![own.bits_per_item / peer.bits_per_item],
        }));
    }
    targets
}
