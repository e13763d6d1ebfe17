//! Counting filters that grow and shrink, compared with exact counts. No item is missing, no count is too low, and a
//! filter without items is small.

use models::random::Random;
use oxbloom_filter::Filter;

/// The error rates, and true if the filter grows. At high error rates, most entries become void, and match whole
/// quotients.
const FILTERS: [(f64, bool); 4] = [(0.01, true), (0.4, true), (1e-7, true), (0.01, false)];

/// The number of different items, and the highest count of an item.
const UNIVERSE: u64 = 1 << 21;
const MOST: u8 = 200;

/// The maximum size of an empty filter, in bytes.
const SMALL: usize = 1000;

/// Performs `operations` random additions and removals.
pub(crate) fn soak(operations: u64, mut random: Random) {
    for (error_rate, grows) in FILTERS {
        let builder = Filter::builder().error_rate(error_rate).capacity(UNIVERSE).counting().seed(random.next_u64());
        let mut filter = if grows { builder.growing(2) } else { builder }.build().expect("memory");
        let mut counts = vec![0u8; UNIVERSE as usize];
        let mut left = operations / FILTERS.len() as u64;
        while left > 0 {
            // The percentage of additions is random at first, and then falls in steps.
            for percent in [random.below(100), 90, 60, 40, 10] {
                let steps = left.min(UNIVERSE / 2);
                (0..steps).for_each(|_| step(&mut filter, &mut counts, &mut random, percent));
                left -= steps;
            }
            check(&filter, &counts);
        }
        let peak = filter.memory_usage();
        for (number, count) in counts.iter_mut().enumerate() {
            (0..std::mem::take(count)).for_each(|_| remove(&mut filter, number as u64));
        }
        assert!(filter.is_empty() && filter.memory_usage() < SMALL, "{} of {peak} bytes", filter.memory_usage());
    }
}

fn step(filter: &mut Filter, counts: &mut [u8], random: &mut Random, percent: u64) {
    // Half of the operations use one item in 64, so that these items have high counts.
    let range = if random.chance(50) { UNIVERSE } else { UNIVERSE / 64 };
    let number = random.below(range);
    let count = &mut counts[number as usize];
    if random.chance(percent) && *count < MOST {
        filter.insert(number.to_le_bytes()).expect("memory");
        *count += 1;
    } else if *count > 0 {
        remove(filter, number);
        *count -= 1;
    }
}

fn remove(filter: &mut Filter, number: u64) {
    assert_eq!(filter.remove(number.to_le_bytes()), Ok(true), "removal of item {number}");
}

/// Panics if an item is missing, or its count is too low.
fn check(filter: &Filter, counts: &[u8]) {
    for (number, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let counted = filter.count((number as u64).to_le_bytes()).expect("a counting filter");
        assert!(counted >= count.into(), "item {number} was added {count} times, but its count is {counted}");
    }
}
