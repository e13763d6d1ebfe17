//! Filters that tests fill, and commands that need as much memory again.

use std::ops::Range;

use redis::Connection;

use testkit::command::{item, many, with_items};
use testkit::filter_model::FilterModel;
use testkit::memory::{MIB, create, reserve};
use testkit::{ask, run};

/// The free memory of a server, in bytes. It does not suffice for a filter of the size [`LARGE`].
pub(crate) const SPARE: u64 = 20 * MIB;

/// The size of a large filter, in MiB.
pub(crate) const LARGE: u64 = 24;

/// A command and its arguments. They can be any bytes.
pub(crate) type Words = Vec<Vec<u8>>;

pub(crate) fn words<const N: usize>(words: [&[u8]; N]) -> Words {
    words.map(<[u8]>::to_vec).to_vec()
}

pub(crate) fn split(command: &str) -> Words {
    with_items(command, &[])
}

/// Returns a packed command on items in lines.
pub(crate) fn lines(command: &str, numbers: Range<u64>) -> Words {
    let items = numbers.flat_map(|number| [item(number), b"\n".to_vec()].concat()).collect();
    split(command).into_iter().chain([items]).collect()
}

/// Returns true if filters of this layout are tables, whose memory grows with their items.
pub(crate) fn is_table(layout: &str) -> bool {
    ["counting", "windowed"].contains(&layout)
}

pub(crate) fn is_mergeable(layout: &str) -> bool {
    !["windowed", "valkey"].contains(&layout)
}

/// Creates a large filter with items, under the name of its layout. The model of a table has only some of the items.
pub(crate) fn fill_large(client: &mut Connection, (layout, flags): (&str, &str)) -> FilterModel {
    let mut model = FilterModel::new(layout);
    if is_table(layout) {
        run(client, &format!("BF.RESERVE {layout} 0.000000000000000001 1000 {flags}")).unwrap();
        for first in (0..).step_by(10_000) {
            many::<Vec<bool>>(client, "BF.MADD", layout, &(first..first + 10_000).collect::<Vec<_>>());
            if first % 100_000 == 0 && ask::<u64>(client, &format!("MEMORY USAGE {layout}")) > LARGE * MIB {
                break;
            }
        }
    } else {
        run(client, &format!("{} {flags}", reserve(layout, LARGE))).unwrap();
    }
    model.add(client, 0..1000);
    model
}

/// Adds items until BF.CARD returns `count`. Items that are false positives when they are added do not count.
pub(crate) fn fill_up(client: &mut Connection, model: &mut FilterModel, count: u64) {
    for number in 0.. {
        let missing = count - ask::<u64>(client, &format!("BF.CARD {}", model.key));
        if missing == 0 {
            return;
        }
        let start = model.items.last().map_or(0, |last| last + 1);
        model.add(client, start..start + missing);
        assert!(number < 100, "{} does not fill up", model.key);
    }
}

/// Returns all commands that create a second filter as large as the one of a layout, each with the error for failed
/// allocations. The list leaves out commands that reserve tables, which take no memory, and merges of filters that
/// cannot be merged.
pub(crate) fn ways_to_more(client: &mut Connection, (layout, flags): (&str, &str)) -> Vec<(Words, &'static str)> {
    let payload: Vec<u8> = ask(client, &format!("DUMP {layout}"));
    let (_, header): (u64, Vec<u8>) = ask(client, &format!("BF.SCANDUMP {layout} 0"));
    let capacity: u64 = ask::<Vec<u64>>(client, &format!("BF.INFO {layout} CAPACITY"))[0];
    let reserving = [
        (split(&format!("BF.RESERVE new 0.01 {capacity} NONSCALING {flags}")), create::SYSTEM),
        (split(&format!("BF.RESERVE new LIKE {layout}")), create::SYSTEM),
        (split(&format!("BF.INSERT new CAPACITY {capacity} {flags} ITEMS item")), create::SYSTEM),
        (words([b"BF.LOADCHUNK", b"new", b"1", &header]), create::SYSTEM),
    ];
    let filling = [
        (split(&format!("BF.MERGE new 1 {layout}")), create::SYSTEM),
        (split(&format!("COPY {layout} new")), ""),
        (words([b"RESTORE", b"new", b"0", &payload]), "ERR Bad data format"),
    ];
    let reserving = reserving.into_iter().filter(|_| !is_table(layout));
    reserving.chain(filling).filter(|(command, _)| is_mergeable(layout) || command[0] != b"BF.MERGE").collect()
}

/// Returns [`ways_to_more`] without RESTORE of a table. The server itself has no memory for that, since the payload is
/// as large as the table.
pub(crate) fn ways_with_little_memory(client: &mut Connection, layout: (&str, &str)) -> Vec<(Words, &'static str)> {
    let mut ways = ways_to_more(client, layout);
    ways.retain(|(command, _)| !is_table(layout.0) || command[0] != b"RESTORE");
    ways
}
