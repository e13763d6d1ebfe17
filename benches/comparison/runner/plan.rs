//! The workloads on servers. Each has a table of its name.

use testkit::packing::Packing;

use crate::requests::{Delivery, Lengths};
use crate::servers::Peer;
use crate::workload::Items::{Absent, Added, New, Present};
use crate::workload::Quantity::{Command, Cpu, Longest, P50, P99};
use crate::workload::Verb::{Add, AddSlice, Count, Delete, Exists};
use crate::workload::{Contender, Items, Kind, Step, Verb, Workload};

/// The length of a typical URL.
const URL: Lengths = (28, 28);

/// The lengths of typical URLs, short identifiers and long URLs.
const LENGTHS: &[Lengths] = &[URL, (16, 16), (200, 200)];

const REDISBLOOM: Contender = bloom("RedisBloom", Peer::RedisBloom, "");
const OXBLOOM: Contender = bloom("oxbloom", Peer::Oxbloom, "");
const CLASSIC: Contender = bloom("oxbloom, classic", Peer::Classic, "");
const FLOOR: Contender = bloom("floor", Peer::Floor, "");

const fn bloom(name: &'static str, peer: Peer, options: &'static str) -> Contender {
    Contender { name, peer, kind: Kind::Bloom(options), delivery: None }
}

const fn forgetting(name: &'static str, options: &'static str) -> Contender {
    Contender { name, peer: Peer::Oxbloom, kind: Kind::Forgetting(options), delivery: None }
}

const fn cuckoo(name: &'static str, peer: Peer, options: &'static str) -> Contender {
    Contender { name, peer, kind: Kind::Cuckoo(options), delivery: None }
}

const fn packed(name: &'static str, options: &'static str, packing: Packing, items: usize) -> Contender {
    Contender { delivery: Some(Delivery::Packed(packing, items)), ..bloom(name, Peer::Oxbloom, options) }
}

const fn server(name: &'static str, peer: Peer, commands: &'static [&'static str]) -> Contender {
    Contender { name, peer, kind: Kind::Server(commands), delivery: None }
}

const fn step(title: &'static str, verb: Verb, items: Items, delivery: Delivery) -> Step {
    Step { title, verb, items, delivery }
}

const TEN: Delivery = Delivery::Batch(10);
const HUNDRED: Delivery = Delivery::Batch(100);
const THOUSAND: Delivery = Delivery::Batch(1000);
const PIPELINED: Delivery = Delivery::Pipelined;
const CONNECTIONS: Delivery = Delivery::Unpipelined;

const ON_BLOOM: &[Step] = &[
    step("MADD × 10, new", Add, New, TEN),
    step("MEXISTS × 10, hit", Exists, Present, TEN),
    step("MEXISTS × 10, miss", Exists, Absent, TEN),
    step("MADD × 100, new", Add, New, HUNDRED),
    step("MEXISTS × 100, hit", Exists, Present, HUNDRED),
    step("MEXISTS × 100, miss", Exists, Absent, HUNDRED),
    step("MADD × 1,000, new", Add, New, THOUSAND),
    step("MEXISTS × 1,000, hit", Exists, Present, THOUSAND),
    step("MEXISTS × 1,000, miss", Exists, Absent, THOUSAND),
    step("ADD, pipelined, new", Add, New, PIPELINED),
    step("ADD, pipelined, duplicate", Add, Present, PIPELINED),
    step("EXISTS, pipelined, hit", Exists, Present, PIPELINED),
    step("EXISTS, pipelined, miss", Exists, Absent, PIPELINED),
    step("ADD, 50 connections, new", Add, New, CONNECTIONS),
    step("ADD, 50 connections, duplicate", Add, Present, CONNECTIONS),
    step("EXISTS, 50 connections, hit", Exists, Present, CONNECTIONS),
    step("EXISTS, 50 connections, miss", Exists, Absent, CONNECTIONS),
];

/// A filter that is larger than the processor's cache.
const LARGE: Workload = Workload {
    name: "large",
    title: "{} at 1 %",
    server: "",
    error_rate: "0.01",
    capacity: 100_000_000,
    filled: 10_200_000,
    renewed: false,
    lengths: LENGTHS,
    items: 400_000,
    contenders: &[REDISBLOOM, OXBLOOM, FLOOR, CLASSIC],
    steps: ON_BLOOM,
    quantities: &[Cpu, Command, P50, P99],
};

/// A filter in the processor's cache.
const SMALL: Workload =
    Workload { name: "small", capacity: 1_000_000, filled: 100_000, renewed: true, items: 200_000, ..LARGE };

const UNPACKED: Contender = bloom("RedisBloom × 1,000", Peer::RedisBloom, "");
const OURS_UNPACKED: Contender = bloom("oxbloom × 1,000", Peer::Oxbloom, "");
const OFFSETS: Contender = packed("OFFSETS × 10,000", "", Packing::Offsets(0), 10_000);
const LINES: Contender = packed("LINES × 10,000", "", Packing::Lines, 10_000);
const COUNTING_PACKED: Contender = packed("counting, FIXED × 10,000", "COUNTING", Packing::Fixed, 10_000);
const WINDOWED_PACKED: Contender = packed("windowed, FIXED × 10,000", "WINDOW 86400", Packing::Fixed, 10_000);

const PACKED: Workload = Workload {
    name: "packed",
    title: "Packed items, {} at 1 %",
    filled: 10_000_000,
    lengths: &[(20, 20)],
    contenders: &[
        UNPACKED,
        OURS_UNPACKED,
        packed("FIXED × 1,000", "", Packing::Fixed, 1000),
        packed("FIXED × 10,000", "", Packing::Fixed, 10_000),
        packed("FIXED × 100,000", "", Packing::Fixed, 100_000),
        OFFSETS,
        LINES,
        COUNTING_PACKED,
        WINDOWED_PACKED,
        Contender {
            delivery: Some(Delivery::Packed(Packing::Fixed, 10_000)),
            ..bloom("the floor, FIXED × 10,000", Peer::Floor, "")
        },
    ],
    steps: &[
        step("new", Add, New, THOUSAND),
        step("hit", Exists, Present, THOUSAND),
        step("miss", Exists, Absent, THOUSAND),
    ],
    quantities: &[Cpu],
    ..LARGE
};

const PACKED_SMALL: Workload =
    Workload { name: "packed-small", capacity: 1_000_000, filled: 100_000, renewed: true, items: 200_000, ..PACKED };

const PLAIN: Contender = bloom("plain", Peer::Oxbloom, "");

/// Counting filters, compared with plain ones.
const COUNTING: Workload = Workload {
    name: "counting",
    title: "Counting filters, {} at 1 %",
    filled: 10_000_000,
    lengths: &[URL],
    items: 200_000,
    contenders: &[PLAIN, bloom("counting", Peer::Oxbloom, "COUNTING")],
    steps: &[
        step("MADD × 1,000, new", Add, New, THOUSAND),
        step("MADD × 1,000, there already", Add, Added, THOUSAND),
        step("MEXISTS × 1,000, hit", Exists, Present, THOUSAND),
        step("MCOUNT × 1,000, hit", Count, Present, THOUSAND),
        step("MEXISTS × 1,000, miss", Exists, Absent, THOUSAND),
        step("MDEL × 1,000, added twice", Delete, Added, THOUSAND),
        step("MDEL × 1,000, added once", Delete, Added, THOUSAND),
    ],
    quantities: &[Command],
    ..LARGE
};

const WINDOW: Contender = forgetting("WINDOW", "WINDOW 28800");

/// Filters that forget: whole slices are added. Plain filters are a seventh to two thirds full.
const WINDOWS: Workload = Workload {
    name: "windows",
    title: "Filters that forget, {} at 1 %",
    filled: 13_332_000,
    contenders: &[PLAIN, REDISBLOOM, WINDOW, forgetting("ROLLING", "ROLLING")],
    steps: &[
        step("MADD × 1,000, new", AddSlice, New, THOUSAND),
        step("MEXISTS × 1,000, hit", Exists, Present, THOUSAND),
        step("MEXISTS × 1,000, miss", Exists, Absent, THOUSAND),
        step("EXISTS, pipelined, hit", Exists, Present, PIPELINED),
        step("EXISTS, pipelined, miss", Exists, Absent, PIPELINED),
    ],
    quantities: &[Cpu, Command, Longest],
    ..COUNTING
};

/// One filter that forgets instead of three filters and a script.
const THREE_FILTERS: Workload = Workload {
    name: "three-filters",
    title: "Instead of three filters and a script, {} at 1 %",
    capacity: 10_000_000,
    contenders: &[
        Contender { kind: Kind::Script, ..bloom("RedisBloom, three filters, a script", Peer::RedisBloom, "") },
        forgetting("oxbloom, one filter", "WINDOW 28800"),
    ],
    items: 80_000,
    steps: &[
        step("one item a command, new", Add, New, PIPELINED),
        step("one item a command, duplicate", Add, Present, PIPELINED),
        step("100 items a command, new", Add, New, HUNDRED),
        step("100 items a command, duplicate", Add, Present, HUNDRED),
    ],
    quantities: &[Cpu],
    ..COUNTING
};

const REDISBLOOM_CUCKOO: Contender = cuckoo("RedisBloom", Peer::RedisBloom, "");
const OXBLOOM_CUCKOO: Contender = cuckoo("oxbloom", Peer::Oxbloom, "");

const CUCKOO: Workload = Workload {
    name: "cuckoo",
    title: "Cuckoo filters, {}",
    filled: 20_000_000,
    items: 40_000,
    contenders: &[REDISBLOOM_CUCKOO, cuckoo("oxbloom, classic", Peer::Classic, ""), OXBLOOM_CUCKOO],
    steps: &[
        step("CF.INSERT × 1,000, new", Add, New, THOUSAND),
        step("CF.MEXISTS × 1,000, hit", Exists, Present, THOUSAND),
        step("CF.MEXISTS × 1,000, miss", Exists, Absent, THOUSAND),
        step("CF.DEL, pipelined", Delete, Added, PIPELINED),
        step("CF.ADD, pipelined, new", Add, New, PIPELINED),
        step("CF.EXISTS, pipelined, hit", Exists, Present, PIPELINED),
        step("CF.EXISTS, pipelined, miss", Exists, Absent, PIPELINED),
    ],
    quantities: &[Cpu, Command],
    ..COUNTING
};

/// A filter that doubles while it is measured, since an addition takes up to twice as long in some phases of growth.
const CUCKOO_SMALL: Workload =
    Workload { name: "cuckoo-small", capacity: 1_000_000, filled: 400_000, items: 60_000, ..CUCKOO };

const LARGE_FILTER: &str = "BF.RESERVE large 0.01 100000000";
const ONE_USE: &str = "BF.EXISTS large item";

/// The server's own commands: without a module, with ours, after a large filter was used, and while the module looks
/// ahead, which it does by default only if many commands are its own.
const OTHERS: Workload = Workload {
    name: "others",
    title: "The server's own commands",
    capacity: 0,
    filled: 0,
    items: 400_000,
    contenders: &[
        // Looking for a key takes longer if there is any.
        server("no module", Peer::Nothing, &["SET large value"]),
        server("oxbloom", Peer::Oxbloom, &["SET large value"]),
        server("oxbloom, a large filter", Peer::Oxbloom, &[LARGE_FILTER, ONE_USE]),
        server("oxbloom, looking ahead", Peer::Oxbloom, &[LARGE_FILTER, "CONFIG SET bf.lookahead on", ONE_USE]),
    ],
    steps: &[
        step("GET, pipelined", Verb::Server("GET", "$-1\r\n"), Absent, PIPELINED),
        step("SET, pipelined", Verb::Server("SET key", "+OK\r\n"), Absent, PIPELINED),
        step("HGET, pipelined", Verb::Server("HGET hash", "$-1\r\n"), Absent, PIPELINED),
    ],
    quantities: &[Cpu],
    ..COUNTING
};

/// Returns all workloads.
pub(crate) fn workloads() -> Vec<Workload> {
    let mut workloads = vec![
        SMALL,
        LARGE,
        // The filter of RedisBloom's own benchmarks.
        Workload {
            name: "huge",
            title: "{} at 0.1 %",
            error_rate: "0.001",
            capacity: 600_000_000,
            filled: 60_000_000,
            lengths: &[URL],
            contenders: &[REDISBLOOM, OXBLOOM, FLOOR],
            ..LARGE
        },
        // Filters that have grown, in RedisBloom to fourteen layers and more.
        Workload { name: "grown", title: "grown to {}", capacity: 0, filled: 1_000_000, items: 150_000, ..SMALL },
        Workload {
            name: "grown-large",
            title: "grown to {}",
            capacity: 0,
            filled: 10_000_000,
            items: 150_000,
            contenders: &[REDISBLOOM, OXBLOOM, FLOOR],
            ..LARGE
        },
        PACKED_SMALL,
        Workload {
            name: "packed-urls",
            title: "Packed URLs, {} at 1 %",
            capacity: 10_000_000,
            filled: 2_000_000,
            lengths: &[(28, 68)],
            contenders: &[UNPACKED, OURS_UNPACKED, OFFSETS, LINES],
            ..PACKED
        },
        PACKED,
        COUNTING,
        WINDOWS,
        THREE_FILTERS,
        CUCKOO_SMALL,
        CUCKOO,
        OTHERS,
    ];
    // The newest servers of both projects.
    let on = |server, workload: Workload, contenders| Workload {
        server,
        contenders,
        lengths: &workload.lengths[..1],
        quantities: &[Cpu, Command],
        ..workload
    };
    for server in ["redis-8.2", "valkey-9.1"] {
        workloads.extend([SMALL, LARGE].map(|workload| on(server, workload, &[REDISBLOOM, OXBLOOM])));
    }
    let on_redis = |workload, contenders| on("redis-8.2", workload, contenders);
    workloads.extend([
        on_redis(PACKED_SMALL, &[UNPACKED, COUNTING_PACKED, WINDOWED_PACKED]),
        on_redis(PACKED, &[UNPACKED, COUNTING_PACKED, WINDOWED_PACKED]),
        on_redis(WINDOWS, &[PLAIN, REDISBLOOM, WINDOW]),
        on_redis(CUCKOO_SMALL, &[REDISBLOOM_CUCKOO, OXBLOOM_CUCKOO]),
        on_redis(CUCKOO, &[REDISBLOOM_CUCKOO, OXBLOOM_CUCKOO]),
        on_redis(OTHERS, OTHERS.contenders),
    ]);
    workloads
}
