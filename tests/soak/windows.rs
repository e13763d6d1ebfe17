//! Filters that forget, beside a note of when each item was added: what the window is not over for is there, and what is
//! forgotten gives its memory back.

use std::time::Duration;

use oxbloom_filter::Filter;
use testkit::random::Random;

/// Error rates, slices, and whether the filter grows and renews its items.
const FILTERS: [(f64, u8, bool, bool); 4] =
    [(0.01, 8, true, false), (0.4, 3, true, true), (1e-6, 64, false, false), (0.01, 16, true, true)];

/// Items are numbers below this, and the window has so many milliseconds.
const UNIVERSE: u64 = 1 << 20;
const WINDOW: u64 = 3_600_000;

/// Bytes that a filter may take that forgot all but some hundred items: each of these may be in a segment of its own.
const SMALL: usize = 400_000;

/// Adds at random, `operations` times in all.
pub(crate) fn soak(operations: u64, mut random: Random) {
    for (error_rate, slices, grows, refresh) in FILTERS {
        let capacity = if grows { UNIVERSE / 20 } else { 2 * UNIVERSE };
        let builder = Filter::builder().error_rate(error_rate).capacity(capacity).seed(random.next_u64());
        let builder = builder.window(Duration::from_millis(WINDOW)).slices(slices);
        let builder = if grows { builder.growing(2) } else { builder };
        let mut filter = if refresh { builder.refresh() } else { builder }.build().expect("memory");
        // Until when each item must be remembered.
        let mut due = vec![0u64; UNIVERSE as usize];
        let (mut now, mut most, mut left) = (1_600_000_000_123, 0, operations / FILTERS.len() as u64);
        while left > 0 {
            // Floods, streams, trickles and silence.
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
            most = most.max(filter.memory_usage());
            check(&filter, &due, now);
        }
        // What is left goes as others come, one for each slot that is looked at again.
        for number in 0..200_000u64 {
            now += WINDOW / 100;
            filter.advance_to(Duration::from_millis(now));
            filter.insert(number.to_le_bytes()).expect("memory");
        }
        assert!(filter.memory_usage() < SMALL, "{} of {most} bytes", filter.memory_usage());
    }
}

/// Panics if an item is missing whose window is not over.
fn check(filter: &Filter, due: &[u64], now: u64) {
    for (number, _) in due.iter().enumerate().filter(|(_, due)| **due > now) {
        assert!(filter.contains((number as u64).to_le_bytes()), "item {number} is forgotten early");
    }
}
