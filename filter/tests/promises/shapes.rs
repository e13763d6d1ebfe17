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
        (3.0, "0.283 0.237 0.253"),
        (4.0, "0.221 0.155 0.147 0.160"),
        (5.0, "0.181 0.109 0.092 0.092 0.101"),
        (6.0, "0.154 0.0804 0.0609 0.0561 0.0578 0.0638"),
        (7.0, "0.133 0.0618 0.0423 0.0359 0.0347 0.0364"),
        (8.0, "0.118 0.0489 0.0306 0.024 0.0217 0.0216 0.0229"),
        (9.0, "0.105 0.0397 0.0228 0.0166 0.0141 0.0133 0.0135 0.0145"),
        (10.0, "0.0952 0.0329 0.0174 0.0118 0.00943 0.00844 0.00819 0.00846"),
        (11.0, "0.0869 0.0276 0.0136 0.00864 0.0065 0.00552 0.00513 0.00509"),
        (12.0, "0.08 0.0236 0.0108 0.00646 0.00459 0.00371 0.00329 0.00314"),
        (13.0, "0.074 0.0203 0.00875 0.00492 0.00332 0.00255 0.00217 0.00199"),
        (14.0, "0.0689 0.0177 0.00718 0.00381 0.00244 0.00179 0.00146 0.00129"),
        (15.0, "0.0645 0.0156 0.00596 0.003 0.00183 0.00128 0.001 0.000852"),
        (16.0, "0.0606 0.0138 0.005 0.00239 0.00139 0.000935 0.000702 0.000574"),
        (17.0, "0.0571 0.0123 0.00423 0.00193 0.00107 0.000692 0.000499 0.000394"),
        (18.0, "0.054 0.0111 0.00362 0.00158 0.000839 0.000519 0.00036 0.000275"),
        (19.0, "0.0513 0.00998 0.00312 0.0013 0.000663 0.000394 0.000264 0.000194"),
        (20.0, "0.0488 0.00906 0.0027 0.00108 0.00053 0.000303 0.000196 0.00014"),
        (21.0, "0.0465 0.00825 0.00236 0.000905 0.000427 0.000236 0.000147 0.000101"),
        (22.0, "0.0444 0.00755 0.00207 0.000764 0.000347 0.000185 0.000112 7.46e-5"),
        (23.0, "0.0425 0.00694 0.00183 0.000649 0.000285 0.000147 8.56e-5 5.55e-5"),
        (24.0, "0.0408 0.00639 0.00162 0.000555 0.000235 0.000117 6.63e-5 4.17e-5"),
        (25.0, "0.0392 0.00591 0.00145 0.000478 0.000196 9.44e-5 5.18e-5 3.16e-5"),
        (26.0, "0.0377 0.00548 0.00129 0.000413 0.000164 7.66e-5 4.08e-5 2.42e-5"),
        (27.0, "0.0364 0.0051 0.00116 0.000359 0.000138 6.26e-5 3.24e-5 1.87e-5"),
        (28.0, "0.0351 0.00475 0.00105 0.000314 0.000117 5.15e-5 2.59e-5 1.46e-5"),
        (29.0, "0.0339 0.00444 0.000949 0.000276 9.96e-5 4.26e-5 2.09e-5 1.14e-5"),
        (30.0, "0.0328 0.00416 0.000862 0.000243 8.53e-5 3.55e-5 1.69e-5 9.01e-6"),
        (31.0, "0.0317 0.0039 0.000785 0.000215 7.33e-5 2.97e-5 1.38e-5 7.16e-6"),
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
        (18908, 8, 2, 7),
        (2859021, 8, 2, 10),
        (2, 8, 2, 7),
        (7, 21, 3, 30),
        (20689, 8, 1, 7),
        (1355480508, 8, 5, 23),
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
    assert_eq!(xxh3_64(&sizes), 14_718_207_151_563_534_896);
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
