//! Prints the sizes of filters, as lines of JSON. A test compares the calculator of the site with them.
//!
//! ```text
//! cargo run --release -p oxbloom-filter --example sizes -- shapes 10000     new filters, of any size
//! cargo run --release -p oxbloom-filter --example sizes -- filled 100       filters with items
//! ```
//!
//! The options are random, and the same in each run.

use std::num::{NonZeroU32, NonZeroU64};
use std::process::ExitCode;
use std::time::Duration;

use oxbloom_filter::internals::sizing::{BlockShape, Budget, LAYER_SHARE};
use oxbloom_filter::internals::{
    Addressing, Content, CreateParams, CuckooSpec, DEFAULT_SLICES, ErrorRate, Growth, Layout, Payload, Table,
};
use oxbloom_filter::{Error, Filter, FilterBuilder};

/// The maximum size of filters that are allocated, in bytes. The sizes of larger ones are only computed.
const MOST_BYTES: u64 = 64 << 20;

/// The window of filters that forget.
const WINDOW: Duration = Duration::from_secs(3600);

/// The kinds of filters, by their names in the calculator.
const KINDS: [&str; 9] = [
    "native",
    "nonscaling",
    "counting",
    "counting-nonscaling",
    "cuckoo",
    "window",
    "window-nonscaling",
    "rolling",
    "window-rolling",
];

/// The options of a filter.
struct Options {
    kind: &'static str,
    error_rate: f64,
    capacity: u64,
    slices: u8,
    seed: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (print, count): (fn(&mut Random), _) = match arguments[..] {
        ["shapes", count] => (print_shape, count.parse()),
        ["filled", count] => (print_filled, count.parse()),
        _ => (print_shape, "".parse::<u32>()),
    };
    let Ok(count) = count else {
        eprintln!("usage: sizes shapes COUNT, or sizes filled COUNT");
        return ExitCode::FAILURE;
    };
    let mut random = Random(1);
    (0..count).for_each(|_| print(&mut random));
    ExitCode::SUCCESS
}

/// Prints a new filter: its options, its shape, its bytes, and the error rate that follows from the shape.
fn print_shape(random: &mut Random) {
    let options = Options::any(random, 12.0, 64.0);
    let items = (options.capacity as f64 * random.fraction() * 1.5) as u64;
    let described = match describe(&options, items) {
        Ok(described) => described,
        Err(Error::OutOfMemory) => "\"tooLarge\": true".to_string(),
        Err(error) => panic!("{}, {}, {}: {error}", options.kind, options.error_rate, options.capacity),
    };
    println!("{{{}, \"items\": {items}, {described}}}", options.json());
}

/// Returns the shape of a filter and its bytes. For filters with blocks, adds the error rates with `items` items and at
/// capacity, and the table that a growing filter gets later.
fn describe(options: &Options, items: u64) -> Result<String, Error> {
    let budget = match options.kind {
        "native" => Budget::RedisBloom { rate: options.error_rate },
        "nonscaling" => Budget::Tight,
        _ => {
            let filter = options.build()?;
            return Ok(format!("\"bytes\": {}, {}", filter.memory_usage(), json_of(table_of(&filter).addressing())));
        }
    };
    let share = if options.kind == "native" { LAYER_SHARE } else { 1.0 };
    let rate = share * options.error_rate;
    let shape = BlockShape::choose(options.capacity, rate, budget).ok_or(Error::OutOfMemory)?;
    let bytes = size_of::<Filter>() as u64 + shape.bytes();
    if bytes <= MOST_BYTES {
        assert_eq!(options.build()?.memory_usage() as u64, bytes);
    }
    let rate_of_table = options.error_rate - shape.full_rate(options.capacity, rate).min(rate);
    let overflow = match options.kind {
        "native" => json_of(Table::growing(rate_of_table, Payload::Nothing)?.addressing()),
        _ => "\"lengths\": null".to_string(),
    };
    let BlockShape { blocks, words, blocks_per_item, probes } = shape;
    Ok(format!(
        "\"bytes\": {bytes}, \"shape\": {{\"blocks\": {blocks}, \"words\": {words}, \
         \"blocksPerItem\": {blocks_per_item}, \"probes\": {probes}}}, \"rate\": {:?}, \"fullRate\": {:?}, {overflow}",
        shape.false_positive_rate(items as f64),
        shape.false_positive_rate(options.capacity as f64),
    ))
}

/// Prints a filter after items were added: its options, the number of items, its bytes and its error rate.
fn print_filled(random: &mut Random) {
    let options = Options { seed: random.next(), ..Options::any(random, 5.0, 20.0) };
    let mut filter = options.build().expect("there is memory for a small filter");
    let limit = if options.grows() { 200_000.0 } else { options.capacity as f64 };
    let items = (limit * random.fraction()) as u64 + 1;
    // Filters that forget get a steady stream for three windows and a half.
    let added = if options.forgets() { options.capacity * 7 / 2 } else { items };
    for item in 0..added {
        let now = WINDOW.mul_f64(item as f64 / options.capacity as f64);
        filter.advance_to(WINDOW + now);
        match filter.insert(item.to_le_bytes()) {
            Ok(_) | Err(Error::Full) => {}
            Err(error) => panic!("{} after {item} items: {error}", options.json()),
        }
    }
    println!(
        "{{{}, \"items\": {items}, \"bytes\": {}, \"rate\": {:?}}}",
        options.json(),
        filter.memory_usage(),
        filter.false_positive_rate()
    );
}

/// Returns the table of a filter that counts, or the first table of one that forgets.
fn table_of(filter: &Filter) -> &Table {
    match filter.content() {
        Content::Counting(filter) => filter.table(),
        Content::NativeCuckoo(filter) => filter.table(),
        Content::Windowed(filter) => filter.tables().0,
        _ => unreachable!("these filters have blocks or layers"),
    }
}

fn json_of(addressing: Addressing) -> String {
    match addressing {
        Addressing::Growing(lengths) => {
            let [shortest, longer_below] = lengths.to_bytes();
            format!("\"lengths\": {{\"shortest\": {shortest}, \"longerBelow\": {longer_below}}}")
        }
        Addressing::Fixed(space) => {
            let (level, width, scale) = (space.level, space.width, space.scale as f64);
            format!("\"space\": {{\"level\": {level}, \"width\": {width}, \"scale\": {scale:?}}}")
        }
    }
}

impl Options {
    /// Returns random options: a capacity of up to `10^digits`, and an error rate down to `2^-bits`. Half of the
    /// filters are small.
    fn any(random: &mut Random, digits: f64, bits: f64) -> Options {
        let most = if random.next().is_multiple_of(2) { digits.min(4.0) } else { digits };
        let capacity = 10f64.powf(most * random.fraction()) as u64;
        let error_rate = match random.next() % 4 {
            0 => 10f64.powi(-1 - (random.fraction() * bits * 0.3) as i32),
            1 => 0.9 * random.fraction() + 1e-3,
            _ => 2f64.powf(-bits * random.fraction() - 0.01),
        };
        let kind = KINDS[random.next() as usize % KINDS.len()];
        let slices = if random.next().is_multiple_of(2) { DEFAULT_SLICES } else { 2 + (random.next() % 63) as u8 };
        Options { kind, error_rate, capacity: capacity.max(1), slices, seed: 7 }
    }

    fn grows(&self) -> bool {
        matches!(self.kind, "native" | "counting" | "cuckoo" | "window")
    }

    fn forgets(&self) -> bool {
        self.kind.contains("window") || self.kind == "rolling"
    }

    fn build(&self) -> Result<Filter, Error> {
        if self.kind == "cuckoo" {
            return self.build_cuckoo();
        }
        let with_growth = |builder: FilterBuilder| if self.grows() { builder.growing(2) } else { builder };
        let builder = Filter::builder().error_rate(self.error_rate).capacity(self.capacity).seed(self.seed);
        let builder = if self.forgets() { builder.slices(self.slices) } else { builder };
        with_growth(match self.kind {
            "counting" | "counting-nonscaling" => builder.counting(),
            "window" | "window-nonscaling" => builder.window(WINDOW),
            "rolling" => builder.rolling(),
            "window-rolling" => builder.window(WINDOW).rolling(),
            _ => builder,
        })
        .build()
    }

    /// Creates a native cuckoo filter, as CF.RESERVE does.
    fn build_cuckoo(&self) -> Result<Filter, Error> {
        let growth = Growth::By(NonZeroU32::MIN);
        let layout = Layout::NativeCuckoo { seed: self.seed, spec: CuckooSpec::new(growth, 2, 20)? };
        let error_rate = ErrorRate::new(self.error_rate).ok_or(Error::InvalidErrorRate)?;
        let capacity = NonZeroU64::new(self.capacity).ok_or(Error::InvalidCapacity)?;
        Filter::create(CreateParams { error_rate, capacity, growth, layout }, &mut |_bytes| true)
    }

    fn json(&self) -> String {
        format!(
            "\"kind\": \"{}\", \"errorRate\": {:?}, \"capacity\": {}, \"slices\": {}",
            self.kind, self.error_rate, self.capacity, self.slices
        )
    }
}

/// Random numbers (SplitMix64, Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Returns a number that is at least 0 and less than 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
