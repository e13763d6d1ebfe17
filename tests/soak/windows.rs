//! Filters that forget, compared with the time of each addition. No item is forgotten before its window is over, and
//! the memory of forgotten items is freed.

use std::time::Duration;

use models::random::Random;
use oxbloom_filter::Filter;

/// For each filter: the error rate, the number of slices, true if it grows, and true if additions renew items.
const FILTERS: [(f64, u8, bool, bool); 4] =
    [(0.01, 8, true, false), (0.4, 3, true, true), (1e-6, 64, false, false), (0.01, 16, true, true)];

/// The number of different items, and the length of the window in milliseconds.
const UNIVERSE: u64 = 1 << 20;
const WINDOW: u64 = 3_600_000;

/// The maximum size of a filter that has forgotten all but some hundred items, in bytes. Each of these may be in a
/// segment of its own.
const SMALL: usize = 400_000;

/// Performs `operations` random additions.
pub(crate) fn soak(operations: u64, mut random: Random) {
    for (error_rate, slices, grows, refresh) in FILTERS {
        let capacity = if grows { UNIVERSE / 20 } else { 2 * UNIVERSE };
        let builder = Filter::builder().error_rate(error_rate).capacity(capacity).seed(random.next_u64());
        let builder = builder.window(Duration::from_millis(WINDOW)).slices(slices);
        let builder = if grows { builder.growing(2) } else { builder };
        let mut filter = if refresh { builder.refresh() } else { builder }.build().expect("memory");
        // The time until which each item must be remembered.
        let mut due = vec![0u64; UNIVERSE as usize];
        let (mut now, mut peak, mut left) = (1_600_000_000_123, 0, operations / FILTERS.len() as u64);
        while left > 0 {
            // The load varies between floods, streams, trickles and silence.
            let (pace, steps) = [(0, UNIVERSE / 2), (7, UNIVERSE), (2000, 5000), (WINDOW, 3)][random.below(4) as usize];
            let steps = steps.min(left);
            for _ in 0..steps {
                now += random.below(pace + 1);
                filter.advance_to(Duration::from_millis(now));
                let range = if random.chance(50) { UNIVERSE } else { UNIVERSE / 64 };
                let number = random.below(range);
                let is_new = filter.insert(number.to_le_bytes()).expect("memory");
                let due = &mut due[number as usize];
                assert!(!is_new || *due <= now, "item {number} was forgotten {} ms early", *due - now);
                if is_new || refresh && *due > now {
                    *due = now + WINDOW;
                }
            }
            left -= steps;
            peak = peak.max(filter.memory_usage());
            check(&filter, &due, now);
        }
        // Each further addition removes the forgotten slots of one more group.
        for number in 0..200_000u64 {
            now += WINDOW / 100;
            filter.advance_to(Duration::from_millis(now));
            filter.insert(number.to_le_bytes()).expect("memory");
        }
        assert!(filter.memory_usage() < SMALL, "{} of {peak} bytes", filter.memory_usage());
    }
}

/// Panics if an item is missing before its window is over.
fn check(filter: &Filter, due: &[u64], now: u64) {
    for (number, _) in due.iter().enumerate().filter(|(_, due)| **due > now) {
        assert!(filter.contains((number as u64).to_le_bytes()), "item {number} was forgotten early");
    }
}
