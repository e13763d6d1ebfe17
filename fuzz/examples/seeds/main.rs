//! Writes the first files of the corpus: headers, files and operations of real filters, and commands.
//!
//! ```text
//! cargo run --example seeds [URL of a server with RedisBloom, for filters of its own [URL of one with oxbloom]]
//! ```

mod scripts;

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::classic::probes_for;
use oxbloom_filter::internals::codec::{self, Header, Origin, Sink};
use oxbloom_filter::internals::{CreateParams, ErrorRate, FilterKind, Growth, Layout};
use oxbloom_fuzz::decoding::{COUNTING_KINDS, LARGE_KINDS};
use oxbloom_fuzz::input::Writer;
use redis::{Commands, RedisResult};
use testkit::random::Random;

/// The seed filters: error rate, capacity, expansion (0: does not grow), items.
const FILTERS: [(f64, u64, u32, u64); 7] = [
    (0.01, 20, 2, 0),
    (0.01, 20, 2, 100),
    (0.01, 200, 0, 150),
    (0.3, 3, 1, 25),
    (0.001, 10, 4, 200),
    (1e-9, 2, 2, 10),
    (1e-300, 2, 2, 5),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (index, &(error_rate, capacity, expansion, items)) in FILTERS.iter().enumerate() {
        for (name, layout) in [
            ("native", Layout::Native { seed: 42 }),
            ("counting", Layout::Counting { seed: 42 }),
            ("classic", Layout::Classic { stored_expansion: 2 }),
        ] {
            let growth = NonZeroU32::new(expansion).map_or(Growth::Fixed, Growth::By);
            let error_rate = ErrorRate::new(error_rate).ok_or("an error rate")?;
            let params = CreateParams { error_rate, capacity: capacity.try_into()?, growth, layout };
            let mut filter = Filter::create(params, |_| true)?;
            for number in 0..items {
                filter.insert(format!("item {number}").as_bytes())?;
            }
            count_and_remove(&mut filter, items / 3);
            write_filter(&format!("{name}-{index}"), &filter)?;
            if filter.kind() == FilterKind::Classic {
                for version in 0..4 {
                    let file = [&[version], &*old_file(&filter, version).0].concat();
                    write("file", &format!("{name}-{index}-{version}"), &file)?;
                }
            }
        }
    }
    write_invalid_headers()?;
    if let Some(url) = std::env::args().nth(1) {
        let mut server = redis::Client::open(url)?.get_connection()?;
        for (index, filter) in FILTERS.iter().enumerate().filter(|(_, filter)| filter.0 > 1e-20) {
            write_filter(&format!("redisbloom-{index}"), &redisbloom(&mut server, filter)?)?;
        }
    }
    scripts::write_commands()?;
    for url in std::env::args().skip(1) {
        scripts::write_exchanged(&mut redis::Client::open(url)?.get_connection()?)?;
    }
    write_windows()?;
    for kind in (0..COUNTING_KINDS.end).chain(LARGE_KINDS) {
        write("chunks", &format!("kind-{kind}"), &operations(kind))?;
    }
    Ok(())
}

/// Adds some items many times, if the filter counts them, and removes the first ones.
fn count_and_remove(filter: &mut Filter, items: u64) {
    if filter.kind() == FilterKind::Counting {
        let often = (0..items).flat_map(|number| std::iter::repeat_n(number, number as usize * number as usize));
        for number in often {
            let _ = filter.insert(format!("item {number}"));
        }
        for number in 0..items {
            let _ = filter.remove(format!("item {number}"));
        }
    }
}

fn write_filter(name: &str, filter: &Filter) -> std::io::Result<()> {
    let mut file = Writer::default();
    codec::write_rdb(filter, &mut file).expect("little memory");
    write("header", name, &codec::encode_header(filter).expect("little memory"))?;
    let kinds: &[u8] = if filter.kind() == FilterKind::Classic { &[4] } else { &[7, 8] };
    for &kind in kinds {
        write("file", &format!("{name}-{kind}"), &[&[kind], &*file.0].concat())?;
    }
    Ok(())
}

/// Writes scripts with additions to filters that forget, at times that mostly go forward, with copies in between.
fn write_windows() -> std::io::Result<()> {
    for (index, flags) in (0..=u8::MAX).step_by(5).enumerate() {
        let mut random = Random(flags.into());
        let mut script = vec![random.below(63) as u8, flags, [0, 1, 4, 240][index % 4]];
        for _ in 0..60 {
            let first = (random.below(800) as u16).to_le_bytes();
            let [low, high] = (random.below(2000) as u16).to_le_bytes();
            match random.below(12) {
                0..5 => script.extend([0x20, first[0], first[1], random.below(100) as u8]),
                5 => script.extend([8, first[0], first[1], 20, low, high]),
                6..9 => script.extend([2 | 0x10, low, high]),
                9 => script.extend([3, low, high]),
                10 => script.push(4),
                _ => script.extend([5, 0]),
            }
        }
        write("forgetting", &format!("window-{index}"), &script)?;
    }
    Ok(())
}

/// Writes headers that must be rejected: each number is possible, but not with the others.
fn write_invalid_headers() -> Result<(), Box<dyn std::error::Error>> {
    let probes = probes_with_bits(1e9);
    let lies: [(&str, &str, usize, &[u8]); 16] = [
        ("classic-1", "more-bits-used-than-there-are", 72, &[59]),
        ("classic-1", "more-bits-used-than-numbers-hold", 72, &[64]),
        ("classic-0", "probes-without-end", 52, &probes),
        ("classic-1", "more-bytes-than-bits", 20, &u64::MAX.to_le_bytes()),
        ("native-1", "more-lines-than-blocks", 64, &[16, 16]),
        ("native-1", "more-items-than-capacity", 48, &u64::MAX.to_le_bytes()),
        ("native-1", "counters-in-records-of-bits", 4, &[1]),
        ("native-0", "a-table-that-is-not-there", 12, &[2]),
        ("native-1", "a-table-of-a-filter-that-does-not-grow", 8, &[0; 4]),
        ("native-1", "a-table-that-does-not-grow", 104, &[7, 12, 0, 0]),
        ("counting-1", "more-items-than-additions", 56, &[9, 0]),
        ("counting-1", "slots-without-additions", 48, &[0; 16]),
        ("counting-1", "no-segments", 72, &[0; 8]),
        ("counting-1", "fingerprints-longer-than-a-word", 82, &[57]),
        ("counting-1", "a-shape-of-a-table-that-does-not-grow", 80, &[7, 12]),
        ("counting-2", "more-quotients-than-paths", 80, &[42]),
    ];
    for (filter, lie, at, bytes) in lies {
        let mut header = fs::read(folder("header").join(filter))?;
        header[at..at + bytes.len()].copy_from_slice(bytes);
        write("header", &format!("lie-{lie}"), &header)?;
    }
    Ok(())
}

/// Returns the fields of the bits per item, and of the probes that follow from them.
fn probes_with_bits(bits_per_item: f64) -> Vec<u8> {
    [&bits_per_item.to_le_bytes()[..], &probes_for(bits_per_item).to_le_bytes()].concat()
}

/// Returns a classic filter as a file of an earlier version. It uses 32-bit hashes, and so contains other items.
fn old_file(filter: &Filter, version: u8) -> Writer {
    let mut file = Writer::default();
    file.unsigned(filter.len());
    file.unsigned(filter.num_layers() as u64);
    if version >= 2 {
        file.unsigned(0);
    }
    for layer in filter.layers() {
        file.unsigned(layer.capacity);
        file.double(layer.error_rate);
        file.unsigned(layer.probes.into());
        file.double(layer.bits as f64 / layer.capacity as f64);
        if version >= 1 {
            file.unsigned(layer.bits);
            file.unsigned(0);
        }
        file.string(&vec![0x5A; layer.bytes as usize]);
        file.unsigned(layer.items);
    }
    file
}

fn write(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder(target))?;
    fs::write(folder(target).join(name), bytes)
}

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Returns a filter that RedisBloom created, copied with BF.SCANDUMP.
fn redisbloom(
    server: &mut redis::Connection,
    &(error_rate, capacity, expansion, items): &(f64, u64, u32, u64),
) -> Result<Filter, Box<dyn std::error::Error>> {
    const KEY: &str = "oxbloom-fuzz";
    let _: () = server.del(KEY)?;
    let mut reserve = redis::cmd("BF.RESERVE");
    reserve.arg(KEY).arg(error_rate).arg(capacity);
    match expansion {
        0 => reserve.arg("NONSCALING"),
        _ => reserve.arg("EXPANSION").arg(expansion),
    };
    let _: () = reserve.query(server)?;
    for number in 0..items {
        let _: () = redis::cmd("BF.ADD").arg(KEY).arg(format!("item {number}")).query(server)?;
    }
    let mut dump =
        |cursor: u64| -> RedisResult<(u64, Vec<u8>)> { redis::cmd("BF.SCANDUMP").arg(KEY).arg(cursor).query(server) };
    let (mut cursor, header) = dump(0)?;
    let mut filter = Header::decode(&header, Origin::Client)?.build()?;
    loop {
        let (next, chunk) = dump(cursor)?;
        if next == 0 {
            return Ok(filter);
        }
        codec::load_chunk(&mut filter, next, &chunk, Origin::Replication)?;
        cursor = next;
    }
}

/// Returns a script with each operation of the `chunks` target on a filter of this kind.
fn operations(kind: u8) -> Vec<u8> {
    const ORIGIN: u64 = codec::chunk::FIRST_CHUNK_CURSOR;
    let mut bytes = vec![kind, 40];
    let counts = COUNTING_KINDS.contains(&kind) || LARGE_KINDS.contains(&kind);
    if counts {
        bytes = table_operations(kind);
    }
    bytes.extend([0, 77, 0, 4]);
    for cursor in [1, 2, 33, ORIGIN, ORIGIN + 64, ORIGIN + 100] {
        bytes.push(6);
        bytes.extend(cursor.to_le_bytes());
    }
    for reference in [0x30, 0x70] {
        bytes.extend([6 | reference, 0, 6 | reference, 0xFF]);
    }
    for origin in [0, 0x80] {
        bytes.extend([9 | origin]);
        bytes.extend(9u64.to_le_bytes());
        bytes.extend([8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        if counts {
            bytes.extend(parts(origin));
        } else {
            bytes.extend([12 | origin, 1, 8]);
            bytes.extend([0x11; 64]);
        }
        bytes.extend([15 | origin, kind, 60, 5]);
    }
    bytes
}

/// Returns operations that insert, remove and count: an item that changes only the history, an absent item, one with so
/// many occurrences that its count has digits, and the first items until the table shrinks.
fn table_operations(kind: u8) -> Vec<u8> {
    const ITEMS: u8 = 200;
    let (insert, insert_absent, remove, count, often) = (0, 1, 2, 3, 0xF0);
    let additions = [[insert, 250, 0], [remove, ITEMS, 0], [insert_absent, 250, 0], [insert | often, 251, 0]];
    let removals = [[remove | often, 0, 0]; 5];
    [&[kind, ITEMS], additions.as_flattened(), removals.as_flattened(), &[count, 251, 0]].concat()
}

/// Returns operations that load parts of tables: parts of the filter itself with another fingerprint, start, end,
/// depth, number of groups and of slots, and quotients; then parts with arbitrary entries, in one segment and in
/// several.
fn parts(origin: u8) -> Vec<u8> {
    let (edited, composed, into_empty, and_use) = (12 | origin, 13 | origin, 0x10, 0x20);
    let (flip, from_front, more_slots, place) = (0, 0x80, 5, 6);
    let mut bytes = Vec::new();
    for (what, at, value) in [
        (flip, 200u16, 1),
        (place, 0, 0x80),
        (place, 1, 0x80),
        (flip | from_front, 16, 1),
        (flip | from_front, 17, 1),
        (more_slots, 0, 1),
        (flip, 24, 3),
    ] {
        bytes.extend([edited | into_empty, 1, what]);
        bytes.extend(at.to_le_bytes());
        bytes.push(value);
    }
    let entries = |of_items: u8| {
        (0..40u16).flat_map(move |number| {
            let [low, high] = number.to_le_bytes();
            [low, high, low, high, of_items | (low % 16), if number % 5 == 0 { 200 + low } else { 1 + low % 4 }]
        })
    };
    for depths in [&[0u8][..], &[1, 1], &[2, 2, 1], &[1, 2, 9, 9]] {
        for of_items in [0, 0x80] {
            bytes.extend([composed | into_empty | and_use, 0, 0, depths.len() as u8 - 1]);
            for &depth in depths {
                bytes.extend([depth, if depth > 0 { 5 } else { 1 }, 40]);
                bytes.extend(entries(of_items));
            }
            bytes.extend([0, 5, 0, 2, 5, 0]);
        }
    }
    bytes
}
