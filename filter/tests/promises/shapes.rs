//! The sizes of native filters: the same on every machine and in every version, within their error rates and budgets.

use xxhash_rust::xxh3::xxh3_64;

use oxbloom_filter::internals::sizing::{
    BlockShape, Budget, LAYER_SHARE, WORDS_PER_LINE, textbook_bits_per_item, textbook_false_positive_rate,
};

#[test]
fn textbook_formula_reproduces_the_printed_table() {
    // Bits an item, and the rates for 1, 2, … 8 probes, as Bloom filter texts print them.
    const TABLE: &[(f64, &str)] = &[
        (2.0, "0.393 0.400"),
        (4.0, "0.221 0.155 0.147 0.160"),
        (8.0, "0.118 0.0489 0.0306 0.024 0.0217 0.0216 0.0229"),
        (10.0, "0.0952 0.0329 0.0174 0.0118 0.00943 0.00844 0.00819 0.00846"),
        (16.0, "0.0606 0.0138 0.005 0.00239 0.00139 0.000935 0.000702 0.000574"),
        (32.0, "0.0308 0.00367 0.000717 0.000191 6.33e-5 2.5e-5 1.13e-5 5.73e-6"),
    ];
    for (bits, row) in TABLE {
        for (probes, printed) in (1..).zip(row.split(' ')) {
            let rate = textbook_false_positive_rate(*bits, probes);
            let computed = match printed.split_once('.') {
                Some((_, decimals)) if !decimals.contains('e') => format!("{rate:.*}", decimals.len()),
                _ => format!("{rate:.*e}", printed.find('e').unwrap().saturating_sub(2)),
            };
            assert_eq!(computed, printed, "{bits} bits an item, {probes} probes");
        }
    }
    assert_eq!(format!("{:.7}", textbook_false_positive_rate(20.0, 10)), "0.0000889");
}

#[test]
fn blocked_formula_matches_the_known_costs() {
    // Bits an item at which one and four blocks per item reach the rate; Poisson figures without the variance term
    // are 9.90 and 9.60, 15.49 and 14.41, 21.91 and 19.28.
    for (rate, blocks_per_item, bits) in [(1e-2, 1, 9.92), (1e-2, 4, 9.60), (1e-3, 1, 15.55), (1e-3, 4, 14.42)] {
        let shape = |bits: f64, probes| {
            let blocks = (1e6 * bits / 512.0) as u64;
            BlockShape { blocks, words: WORDS_PER_LINE, blocks_per_item, probes }
        };
        let best = |bits| (4..20).map(|probes| shape(bits, probes).false_positive_rate(1e6)).fold(1.0, f64::min);
        assert!(
            best(bits + 0.03) < rate && best(bits - 0.03) > rate,
            "{rate} {blocks_per_item}: {} {}",
            best(bits + 0.03),
            best(bits - 0.03)
        );
    }
}

#[test]
fn shapes_keep_the_rate_and_the_budget() {
    for exponent in 0..60 {
        let rate = 0.3 * 0.65f64.powi(exponent);
        for capacity in [1, 2, 3, 7, 10, 64, 100, 999, 1_000, 10_000, 1 << 20, 1_000_000_007, 20_000_000_000] {
            for (budget, share) in [(Budget::Tight, 1.0), (Budget::RedisBloom { rate }, LAYER_SHARE)] {
                let shape = BlockShape::choose(capacity, rate * share, budget).unwrap();
                assert!(shape.false_positive_rate(capacity as f64) <= rate * share, "{capacity} {rate} {shape:?}");
                let textbook = match budget {
                    Budget::Tight => capacity as f64 * textbook_bits_per_item(rate) * 1.02,
                    Budget::RedisBloom { rate } => capacity as f64 * textbook_bits_per_item(rate / 2.0),
                };
                assert!(shape.is_sound());
                let max = match budget {
                    // The size of RedisBloom's first layer, whatever the capacity.
                    Budget::RedisBloom { .. } if rate < 0.25 => ((textbook as u64).div_ceil(64).max(1) + 2) * 64,
                    _ => (textbook / 64.0) as u64 * 64 + 512,
                };
                assert!(shape.bits() <= max, "{capacity} {rate} {budget:?} {shape:?} {textbook}");
            }
        }
    }
}

/// At high rates, the optimum has a fraction of a probe. A shape has one or two probes then, and takes more.
#[test]
fn shapes_keep_high_rates() {
    for rate in [0.4, 0.5, 0.6, 0.75, 0.9, 0.99f64] {
        let needed =
            [1.0, 2.0].map(|probes| -probes / (1.0 - rate.powf(1.0 / probes)).ln()).into_iter().fold(9.0, f64::min);
        for capacity in [1, 10, 100, 1_000, 100_000, 1_000_000_007] {
            let shape = BlockShape::choose(capacity, rate, Budget::Tight).unwrap();
            assert!(shape.false_positive_rate(capacity as f64) <= rate, "{capacity} {rate} {shape:?}");
            assert!(shape.bits() as f64 <= 1.1 * needed * capacity as f64 + 512.0, "{capacity} {rate} {shape:?}");
        }
    }
}

#[test]
fn shapes_are_pinned() {
    // Replicas size their own growth, and old files replay creations: a change of these breaks both.
    let pinned = [
        (100, 0.01, Budget::Tight),
        (1_000_000, 0.01, Budget::Tight),
        (100_000_000, 0.001, Budget::Tight),
        (100, 0.01 * LAYER_SHARE, Budget::RedisBloom { rate: 0.01 }),
        (211, 1e-9 * LAYER_SHARE, Budget::RedisBloom { rate: 1e-9 }),
        (1_000_000, 0.01 * LAYER_SHARE, Budget::RedisBloom { rate: 0.01 }),
        (20_000_000_000, 1e-7 * LAYER_SHARE, Budget::RedisBloom { rate: 1e-7 }),
    ]
    .map(|(capacity, rate, budget)| {
        let BlockShape { blocks, words, blocks_per_item, probes } = BlockShape::choose(capacity, rate, budget).unwrap();
        (blocks, words, blocks_per_item, probes)
    });
    let expected = [
        (2, 8, 1, 7),
        (18912, 8, 2, 7),
        (2857680, 8, 2, 10),
        (2, 8, 2, 7),
        (7, 21, 3, 30),
        (20688, 8, 1, 7),
        (1354752000, 8, 5, 23),
    ];
    assert_eq!(pinned, expected);

    let capacities: Vec<u64> = (0..70).map(|step| 1.4f64.powi(step) as u64).collect();
    let rates: Vec<f64> = (0..24).map(|step| 0.9 * 0.3f64.powi(step)).collect();
    let mut sizes = Vec::new();
    for (&capacity, &rate) in capacities.iter().flat_map(|capacity| rates.iter().map(move |rate| (capacity, rate))) {
        for (rate, budget) in [(rate, Budget::Tight), (rate * LAYER_SHARE, Budget::RedisBloom { rate })] {
            let BlockShape { blocks, words, blocks_per_item, probes } =
                BlockShape::choose(capacity, rate, budget).unwrap();
            sizes.extend(blocks.to_le_bytes().into_iter().chain([words, blocks_per_item, probes]));
        }
    }
    assert_eq!(xxh3_64(&sizes), 5_250_763_165_690_107_427);
}

#[test]
fn shapes_that_cannot_be_addressed_are_rejected() {
    assert_eq!(BlockShape::choose(u64::MAX, 0.01, Budget::Tight), None);
    assert_eq!(BlockShape::choose(1 << 61, 1e-9, Budget::RedisBloom { rate: 1e-9 }), None);
    assert!(BlockShape::choose(1 << 40, 1e-300, Budget::Tight).is_some());
}

#[test]
fn the_fill_tells_the_items() {
    let shape = BlockShape::choose(10_000, 0.01, Budget::Tight).unwrap();
    assert_eq!(shape.items_from_fill(0), 0.0);
    assert!(shape.items_from_fill(shape.bits()).is_finite());
}
