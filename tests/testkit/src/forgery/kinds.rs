//! Filters of all layouts and shapes.

use std::num::{NonZeroU32, NonZeroU64};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Header, Origin};
use oxbloom_filter::internals::{
    CreateParams, CuckooSpec, ErrorRate, FIXED_SEED, Growth, InsertOptions, KindParams, OnDuplicate, Window,
};

/// The kinds of filters to forge.
pub const KINDS: [Kind; 25] = [
    Kind { name: "native", error_rate: 0.01, capacity: 300, expansion: 2, items: 20 },
    Kind { name: "native, grown", error_rate: 0.01, capacity: 20, expansion: 2, items: 60 },
    Kind { name: "counting", error_rate: 0.01, capacity: 20, expansion: 2, items: 40 },
    Kind { name: "counting, short", error_rate: 0.5, capacity: 20, expansion: 2, items: 40 },
    Kind { name: "counting, fixed", error_rate: 0.01, capacity: 300, expansion: 0, items: 40 },
    Kind { name: "by time", error_rate: 0.01, capacity: 300, expansion: 0, items: 40 },
    Kind { name: "by time, grown", error_rate: 0.01, capacity: 20, expansion: 2, items: 60 },
    Kind { name: "by time, empty", error_rate: 0.01, capacity: 20, expansion: 2, items: 0 },
    Kind { name: "by time, renewed", error_rate: 0.01, capacity: 20, expansion: 1, items: 60 },
    Kind { name: "rolling", error_rate: 0.01, capacity: 30, expansion: 0, items: 70 },
    Kind { name: "rolling by time", error_rate: 0.01, capacity: 30, expansion: 0, items: 70 },
    Kind { name: "rolling by time, renewed", error_rate: 0.01, capacity: 30, expansion: 0, items: 70 },
    Kind { name: "classic", error_rate: 0.01, capacity: 30, expansion: 2, items: 40 },
    Kind { name: "classic, grown", error_rate: 0.01, capacity: 5, expansion: 1, items: 60 },
    Kind { name: "classic, fixed", error_rate: 0.01, capacity: 100, expansion: 0, items: 40 },
    Kind { name: "classic, old", error_rate: 0.01, capacity: 100, expansion: 2, items: 40 },
    Kind { name: "valkey", error_rate: 0.01, capacity: 30, expansion: 2, items: 40 },
    Kind { name: "valkey, grown", error_rate: 0.01, capacity: 5, expansion: 1, items: 60 },
    Kind { name: "valkey, fixed", error_rate: 0.01, capacity: 100, expansion: 0, items: 40 },
    Kind { name: "cuckoo", error_rate: 0.01, capacity: 100, expansion: 2, items: 40 },
    Kind { name: "cuckoo, grown", error_rate: 0.01, capacity: 8, expansion: 2, items: 60 },
    Kind { name: "cuckoo, fixed", error_rate: 0.01, capacity: 100, expansion: 0, items: 40 },
    Kind { name: "native cuckoo", error_rate: 0.01, capacity: 20, expansion: 2, items: 40 },
    Kind { name: "native cuckoo, fixed", error_rate: 0.01, capacity: 300, expansion: 0, items: 40 },
    Kind { name: "cuckoo, converted", error_rate: 0.01, capacity: 20, expansion: 2, items: 60 },
];

/// The parameters of a filter, and its number of items. Its name tells its kind and options.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    error_rate: f64,
    capacity: u64,
    expansion: u32,
    items: u64,
}

impl Kind {
    /// Returns the filter. Its window has four slices and `window` milliseconds, and its items are added in the next
    /// milliseconds after `begin`, in a few slices.
    pub fn filter(&self, item: impl Fn(u64) -> Vec<u8>, begin: u64, window: u64) -> Filter {
        let growth = NonZeroU32::new(self.expansion).map_or(Growth::Fixed, Growth::By);
        let spec = CuckooSpec::new(growth, 4, 20).expect("a small expansion");
        let kind = match self.name.split(',').next() {
            Some("cuckoo") => KindParams::Cuckoo { spec },
            Some("native cuckoo") => KindParams::NativeCuckoo { seed: 7, spec },
            Some("native") => KindParams::Native { seed: 7 },
            Some("counting") => KindParams::Counting { seed: 7 },
            Some("classic") => KindParams::Classic { stored_expansion: 2 },
            Some("valkey") => {
                KindParams::Valkey { seed: FIXED_SEED, tightening: ErrorRate::new(0.5).expect("an error rate") }
            }
            _ => {
                let length = NonZeroU64::new(if self.name.contains("by time") { window } else { 0 });
                let (refresh, rolling) = (self.name.contains("renewed"), self.name.contains("rolling"));
                KindParams::Windowed { seed: 7, window: Window { length, slices: 4, refresh, rolling } }
            }
        };
        let params = CreateParams {
            error_rate: ErrorRate::new(self.error_rate).expect("an error rate"),
            capacity: self.capacity.try_into().expect("a capacity"),
            growth,
            kind,
        };
        let mut filter = Filter::create(params, &mut |_| true).expect("little memory");
        if self.name.contains("old") {
            filter = without_options(&filter);
        }
        for number in 0..self.items {
            let hash = filter.hash(&item(number));
            let options = InsertOptions { now: begin + number / 20 * window / 5, ..OnDuplicate::Count.into() };
            let added = filter.insert_hashes(&[hash], &mut [false], &mut [false], &options, &mut |_| true);
            added.expect("little memory");
        }
        if self.name.contains("converted") {
            filter = filter.converted(&mut |_| true).expect("little memory").expect("a cuckoo filter");
        }
        filter
    }
}

/// Returns an empty classic filter as RedisBloom created it before 2.0: with 32-bit hashes, and layers rounded up to
/// powers of two.
pub fn without_options(filter: &Filter) -> Filter {
    let mut header = codec::encode_header(filter).expect("little memory");
    header[12..16].fill(0);
    Header::decode(&header, Origin::Client).and_then(|header| header.build()).expect("a sound header")
}
