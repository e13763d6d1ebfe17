//! Writes the first section of the page: what to expect of single commands, batches, merges and copies.

use std::fmt::Write as _;

use crate::beyond::{Beyond, UNION_INTO_NEW, UNION_INTO_ONE, UNION_OF_COUNTING};
use crate::format::{bytes, range, seconds, thousands};
use crate::operations::{COPY, MEMORY_GROWN, MEMORY_RESERVED, Operations};
use crate::packed::PackedResults;
use crate::peers::Peer;
use crate::statistics::Series;
use crate::targets::{GROWN_SIZE, shares};
use crate::workloads::{Delivery, LARGE, Plan, Results, Workload};

/// Chooses commands with a single item.
pub(crate) const SINGLE: fn(Delivery) -> bool =
    |delivery| matches!(delivery, Delivery::Pipelined | Delivery::Unpipelined);

/// Chooses commands with many items.
pub(crate) const MANY: fn(Delivery) -> bool = |delivery| matches!(delivery, Delivery::Batch(100 | 1000));

/// Returns the range of the processor times with oxbloom on a filter, divided by those with RedisBloom.
pub(crate) fn times(results: &Results, subject: &str, chosen: fn(Delivery) -> bool) -> String {
    let chosen = |workload: Workload| workload.subject == subject && chosen(workload.delivery);
    range(&shares(results, [Peer::Oxbloom, Peer::RedisBloom], |measured| &measured.cpu, &chosen))
}

/// Returns the section.
pub(crate) fn markdown(
    plan: &Plan,
    results: &Results,
    packed: &PackedResults,
    operations: &Operations,
    beyond: &Beyond,
) -> String {
    let mut page = format!(
        "## What to expect\n\n\
         The table shows the processor time of the whole server with oxbloom, divided by the time with RedisBloom: \
         0.50 means half the time. Each range covers commands that add or check, with items of {} bytes. Packed items \
         have 20 bytes, and are compared with 1,000 items in RedisBloom's commands.\n\n\
         | filter | a single item in a command | 100 or 1,000 items in a command | 10,000 packed items |\n\
         |---|--:|--:|--:|\n",
        lengths(plan),
    );
    for subject in plan.subjects {
        let [single, many] = [SINGLE, MANY].map(|chosen| times(results, subject.name, chosen));
        let packed = packed.ratios_on(subject.name);
        let packed = if packed.is_empty() { String::new() } else { range(&packed) };
        let _ = writeln!(page, "| {} | {single} | {many} | {packed} |", subject.name);
    }
    let [into_one, into_new, of_counting] =
        [UNION_INTO_ONE, UNION_INTO_NEW, UNION_OF_COUNTING].map(|title| seconds(beyond.time_of_merge(title).median()));
    let memory = |what, size| {
        let row = operations.rows_of(what).find(|row| row.size == size).expect("a measured size");
        [Peer::Oxbloom, Peer::RedisBloom].map(|peer| bytes(row.values[&peer].median()))
    };
    let [reserved, of_reserved] = memory(MEMORY_RESERVED, LARGE.name);
    let [grown, of_grown] = memory(MEMORY_GROWN, GROWN_SIZE);
    let _ = write!(
        page,
        "\n\
         - **A single item in a command**: expect little gain. With any module, the server spends most of this time \
         on its own work: it receives the command, finds the key, and sends the reply.\n\
         - **Many items in a command**: expect more, most of all from filters that are larger than the processor's cache, \
         because oxbloom waits for the memory of 64 items at the same time.\n\
         - **Packed items**: expect a tenth of the time, and far less at the client.\n\
         - **BF.MERGE** of two filters of {merged}: {into_one} if one of them is the destination, {into_new} if the \
         destination is a new key. Nearly empty filters with COUNTING ({touching} items each) take {of_counting}, and \
         full ones far longer, which `bf.merge-limit` prevents. All other clients wait.\n\
         - **COPY** of such a filter into a new key: {copy}. As with BF.MERGE, the system first has to provide the \
         memory.\n\
         - **Memory**: a filter that was reserved for a capacity of {reserved_for} takes {reserved} (RedisBloom: {of_reserved}). A filter \
         that grew from 100 items to {GROWN_SIZE} takes {grown} (RedisBloom: {of_grown}).\n\n",
        merged = beyond.size,
        touching = thousands(beyond.touching as f64),
        reserved_for = LARGE.name,
        copy = seconds(copy(operations).median()),
    );
    page
}

/// Returns the lengths of the items, such as `16 to 200`.
fn lengths(plan: &Plan) -> String {
    match plan.lengths {
        [first, .., last] => format!("{first} to {last}"),
        lengths => lengths.iter().map(usize::to_string).collect(),
    }
}

fn copy(operations: &Operations) -> &Series {
    let row = operations.rows_of(COPY).next().expect("copies are measured");
    &row.values[&Peer::Oxbloom]
}
