//! Fingerprints: their lengths, and the error rate that follows from them.
//!
//! At level `b`, a growing table has `2^b` quotients, and new fingerprints have `f(b)` bits. While the table fills from
//! half its quotients to all of them, it gets `2^b / 2` fingerprints. Each matches one path in `2^(b + f(b))`, so the
//! error rate rises by `2^-f(b) / 2`. When the table doubles, each fingerprint gives its top bit to the quotient, and
//! still matches the same paths. The error rate is therefore the sum over all levels so far (InfiniFilter, Dayan et
//! al., SIGMOD 2023).
//!
//! The sum must stay below the requested rate however far the table grows. A level whose fingerprints have a bit less
//! takes twice as much of the rate, so the shortest belong to the sizes that matter most: most tables that take much
//! memory have between `2^15` and `2^21` quotients. At these levels, fingerprints have the shortest length, and below
//! some level one bit more. Two levels above add a bit. Each level below adds a bit, but three are the most: longer ones
//! would save a tenth of a bit in large tables, and small tables would take a sixth more. In a filter from the default
//! settings, fingerprints have 12 bits at first, 10 bits from `2^15` quotients on, and 9 bits from `2^18` to `2^21`.
//!
//! A table from which items are removed has as many bits more at low levels as there are levels. So it cuts no
//! fingerprint off when it becomes small again, and counts its items exactly.

use super::bits::MAX_WIDTH;
use super::path::Path;
use super::segment::{GROUP_QUOTIENTS, MAX_BYTES, MAX_LOG_GROUPS, QUOTIENT_BITS, SlotFormat, bytes_of_segment};

/// The first level of a growing table: it has one pair of groups.
pub(super) const FIRST_LEVEL: u32 = QUOTIENT_BITS + 1;

/// The levels from `small` to `large` have the shortest fingerprints, and lower ones up to `most_longer` bits more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    small: u8,
    large: u8,
    most_longer: u8,
}

impl Levels {
    /// The levels of a table that only grows. Its stored lengths have a [`MARK`].
    pub(super) const OF_GROWTH: Levels = Levels { small: 15, large: 21, most_longer: 3 };
    /// The levels of a table that may shrink.
    pub(super) const OF_ALL: Levels = Levels { small: 14, large: 22, most_longer: u8::MAX };
}

/// The most steps between a shortest length and the next one.
const MAX_STEPS: usize = (Levels::OF_ALL.large - Levels::OF_ALL.small) as usize + 2;

/// The bit of the stored step that marks [`Levels::OF_GROWTH`].
const MARK: u8 = 1 << 7;

/// The largest level of a table of fixed size. It suffices for `10^11` items at 1 %, which take 200 GB: more need
/// segments of more than [`MAX_BYTES`]. The first item of such a table allocates a directory of pages of 3 MB, in a
/// millisecond or two. A table that grows has no such limit, and its directory grows with it.
pub(super) const MAX_LEVEL: u32 = 34;

/// The length of the longest fingerprint. A slot also has a terminator.
const MAX_LENGTH: u32 = MAX_WIDTH - 1;

/// The maximum number of spare quotients in a table of fixed size, in 64ths of the necessary number.
const MAX_SPARE: u32 = 24;
const SPARE_UNIT: f64 = 64.0;

/// The lengths of the fingerprints of a growing table, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintLengths {
    levels: Levels,
    shortest: u8,
    /// The level below which fingerprints have one bit more than that.
    longer_below: u8,
}

impl FingerprintLengths {
    /// Returns the shortest lengths that keep an error rate for all items but the first `given`, which have a rate of
    /// their own. Treats error rates below `2^-50` as `2^-50`.
    ///
    /// As with [block shapes](crate::sizing::BlockShape::choose), a change here breaks replication between versions.
    pub(super) fn for_error_rate(levels: Levels, error_rate: f64, given: u64) -> FingerprintLengths {
        let error_rate = error_rate.max(libm::exp2(-50.0));
        let steps = usize::from(levels.large - levels.small) + 2;
        // Longer ones have lower error rates, so they are searched by halves.
        let longest = FingerprintLengths { levels, shortest: MAX_LENGTH as u8, longer_below: 0 };
        let all = &mut [longest; MAX_LENGTH as usize * MAX_STEPS][..MAX_LENGTH as usize * steps];
        for (index, lengths) in all.iter_mut().enumerate() {
            lengths.shortest = 1 + (index / steps) as u8;
            lengths.longer_below = if index % steps == 0 { 0 } else { levels.small + (index % steps) as u8 };
        }
        let rate = |lengths: &FingerprintLengths| lengths.error_rate_at(u64::MAX) - lengths.error_rate_at(given);
        let shortest = all.partition_point(|lengths| rate(lengths) > error_rate);
        all.get(shortest).copied().unwrap_or(longest)
    }

    /// Restores stored lengths. Returns `None` if [`for_error_rate`](Self::for_error_rate) cannot return them.
    pub fn from_bytes([shortest, longer_below]: [u8; 2]) -> Option<FingerprintLengths> {
        let levels = if longer_below >= MARK { Levels::OF_GROWTH } else { Levels::OF_ALL };
        let longer_below = longer_below % MARK;
        let is_step = longer_below == 0 || (levels.small < longer_below && longer_below <= levels.large + 1);
        ((1..=MAX_LENGTH).contains(&shortest.into()) && is_step).then_some(FingerprintLengths {
            levels,
            shortest,
            longer_below,
        })
    }

    /// Returns the lengths as they are stored.
    pub fn to_bytes(self) -> [u8; 2] {
        [self.shortest, self.longer_below + if self.levels == Levels::OF_ALL { 0 } else { MARK }]
    }

    /// Returns the length of new fingerprints at a level. It decreases by at most one bit per level, so that a table whose
    /// segments are divided further never matches more: see `following.rs`.
    pub(super) fn at(self, level: u32) -> u32 {
        let [small, large, most] = [self.levels.small, self.levels.large, self.levels.most_longer].map(u32::from);
        let below = u32::from(level < self.longer_below.into()) + small.saturating_sub(level);
        let longer = below.min(most) + level.saturating_sub(large).div_ceil(2);
        (u32::from(self.shortest) + longer).min(MAX_LENGTH)
    }

    /// Returns the expected false-positive rate of a table that has grown to `items` items.
    pub(super) fn error_rate_at(self, items: u64) -> f64 {
        let items = items as f64;
        let added_at = |level: u32| {
            let quotients = libm::exp2(f64::from(level));
            if level == FIRST_LEVEL {
                items.min(quotients)
            } else {
                (items - quotients / 2.0).clamp(0.0, quotients / 2.0)
            }
        };
        let matched = |level: u32| libm::exp2(-f64::from(level + self.at(level)));
        (FIRST_LEVEL..u64::BITS).map(|level| added_at(level) * matched(level)).sum()
    }
}

/// The address space of a table of fixed size. Its size, quotients times fingerprints, is just what the error rate
/// needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace {
    /// The number of bits that choose a quotient.
    pub level: u8,
    /// The number of bits in a value.
    pub width: u8,
    /// The fraction of the quotients that is used, in units of `2^-64`; 0 stands for all.
    pub scale: u64,
}

impl AddressSpace {
    /// Returns the space in which `capacity` items take the least memory at an error rate. Each slot also has a stamp
    /// of `stamp_bits` bits. Returns `None` if the capacity is too large.
    ///
    /// With `n` items in a space of size `u`, an absent item collides with probability `1 - (1 - 1/u)^n`. The error
    /// rate `e` therefore needs `u = -n / ln(1 - e)`. The fingerprint 0 is replaced by 1. Of the `2^w` values, 1 is
    /// therefore twice as likely, and two items collide as if there were `2^w / (1 + 2^(1-w))` values.
    ///
    /// With more quotients than necessary, each segment has fewer slots. If the segments then fit into a smaller size
    /// class of the allocator, the table takes less memory: a tenth less at 1 % with stamps of four bits.
    pub(super) fn for_items(capacity: u64, error_rate: f64, stamp_bits: u32) -> Option<AddressSpace> {
        let items = capacity as f64;
        let size = items / -libm::log1p(-error_rate.max(libm::exp2(-50.0)));
        let spaces = (2..=MAX_WIDTH - stamp_bits).flat_map(|width| {
            let values = libm::exp2(f64::from(width));
            let min = size * (1.0 + 2.0 / values) / values;
            (0..=MAX_SPARE).map(move |spare| AddressSpace::of(width, min * (1.0 + f64::from(spare) / SPARE_UNIT)))
        });
        let bytes = |space: &AddressSpace| space.bytes_for(items, stamp_bits);
        let possible = spaces.filter(|space| u32::from(space.level) <= MAX_LEVEL && bytes(space).is_finite());
        possible.min_by(|a, b| bytes(a).total_cmp(&bytes(b)))
    }

    /// Returns the smallest space with at least this many quotients.
    ///
    /// If a part of a quotient is used, a larger part of its values are 0 and 1, which collide. It is one of many,
    /// unless there are few, which then are whole.
    fn of(width: u32, quotients: f64) -> AddressSpace {
        let is_few = quotients < f64::from(GROUP_QUOTIENTS);
        let quotients = if is_few { libm::ceil(quotients) } else { quotients };
        let level = libm::ceil(libm::log2(quotients)).max(f64::from(QUOTIENT_BITS));
        let scale = libm::ceil(quotients / libm::exp2(level) * libm::exp2(64.0));
        let whole = scale >= libm::exp2(64.0);
        AddressSpace { level: level as u8, width: width as u8, scale: if whole { 0 } else { scale as u64 } }
    }

    /// Returns the approximate size of the segments that hold these items, in bytes. It is infinite if the items do not
    /// fit.
    fn bytes_for(self, items: f64, stamp_bits: u32) -> f64 {
        let segments = (self.used() * libm::exp2(f64::from(self.depth()))).max(1.0);
        let mean = items / segments;
        // The number of slots has a Poisson distribution: few segments exceed the mean by more than two deviations, and
        // one in 10^15 by more than eight. Segments do not split, so even that one must have room.
        let deviation = if segments > 1.0 { libm::sqrt(mean) } else { 0.0 };
        let format = SlotFormat { width: u32::from(self.width) + stamp_bits, stamp_bits };
        let bytes = |slots: f64| {
            // A slot takes at least one bit. With this limit, no sum overflows.
            let slots = libm::ceil(slots).min((u8::BITS as usize * MAX_BYTES) as f64);
            bytes_of_segment(slots as usize, self.log_groups(), format)
        };
        if bytes(mean + 8.0 * deviation) > MAX_BYTES {
            return f64::INFINITY;
        }
        segments * bytes(mean + 2.0 * deviation) as f64
    }

    /// Returns the fraction of the quotients that is used.
    pub(super) fn used(self) -> f64 {
        if self.scale == 0 { 1.0 } else { self.scale as f64 / libm::exp2(64.0) }
    }

    /// Returns true if the space is within the limits, for stamps of `stamp_bits` bits.
    pub fn is_sound(self, stamp_bits: u32) -> bool {
        (QUOTIENT_BITS..=MAX_LEVEL).contains(&self.level.into())
            && (2..=MAX_WIDTH.saturating_sub(stamp_bits)).contains(&self.width.into())
    }

    /// Returns the binary logarithm of the number of groups in a segment.
    pub(super) fn log_groups(self) -> u32 {
        (u32::from(self.level) - QUOTIENT_BITS).min(MAX_LOG_GROUPS)
    }

    /// Returns the depth of all segments.
    pub(super) fn depth(self) -> u32 {
        u32::from(self.level) - QUOTIENT_BITS - self.log_groups()
    }

    #[inline(always)]
    pub(super) fn path(self, hash: Path) -> Path {
        match self.scale {
            0 => hash,
            scale => {
                let high = (hash >> 64) as u64;
                let low = hash as u64;
                u128::from(high) * u128::from(scale) + ((u128::from(low) * u128::from(scale)) >> 64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_keep_the_rate_and_waste_little() {
        let all = [(Levels::OF_ALL, 0), (Levels::OF_GROWTH, 0), (Levels::OF_GROWTH, 100)];
        for (exponent, (levels, given)) in (0..70).flat_map(|exponent| all.map(|of| (exponent, of))) {
            let rate = 0.5 * 0.75f64.powi(exponent);
            let lengths = FingerprintLengths::for_error_rate(levels, rate, given);
            let limit = lengths.error_rate_at(u64::MAX) - lengths.error_rate_at(given);
            assert!((0.79 * rate..=rate).contains(&limit), "{rate} {lengths:?} {limit}");
            assert!((1..64).all(|level| lengths.at(level + 1) + 1 >= lengths.at(level)));
            assert_eq!(FingerprintLengths::from_bytes(lengths.to_bytes()), Some(lengths));
            for level in FIRST_LEVEL + 1..40 {
                let [before, after] = [level - 1, level].map(|level| lengths.error_rate_at(1 << level));
                let rise = libm::exp2(-f64::from(lengths.at(level))) / 2.0;
                assert!((after - before - rise).abs() < 1e-9 * after, "{rate} {lengths:?} {level}");
            }
        }
    }

    #[test]
    fn lengths_are_pinned() {
        // A master and its replicas must split at the same sizes.
        let pinned = |levels, given| {
            let lengths = |rate| FingerprintLengths::for_error_rate(levels, rate, given).to_bytes();
            [0.5, 0.1, 0.01, 0.001, 1e-7].map(lengths)
        };
        assert_eq!(pinned(Levels::OF_ALL, 0), [[3, 21], [6, 0], [9, 17], [12, 21], [26, 0]]);
        assert_eq!(pinned(Levels::OF_GROWTH, 0), [[3, 148], [6, 128], [9, 144], [12, 148], [26, 128]]);
        assert_eq!(pinned(Levels::OF_GROWTH, 100), [[3, 148], [6, 128], [9, 144], [12, 147], [25, 150]]);
    }

    #[test]
    fn spaces_are_sound_at_all_rates() {
        for (rate, stamp_bits) in
            [0.5, 0.01, 1e-15, 1e-40].into_iter().flat_map(|rate| [0, 1, 8].map(|bits| (rate, bits)))
        {
            for items in [1, 1000, 1_000_000, 1_000_000_000] {
                let space = AddressSpace::for_items(items, rate, stamp_bits);
                assert!(space.is_some_and(|space| space.is_sound(stamp_bits)), "{items} {rate} {stamp_bits}");
            }
        }
    }

    #[test]
    fn paths_are_scaled_to_the_last_bit() {
        for hash in [0, 1, Path::MAX, Path::MAX << 64, Path::from(u64::MAX), Path::MAX / 3, Path::MAX / 5] {
            for shift in 0..8 {
                let scale = 1u64.unbounded_shl(u64::BITS - shift);
                assert_eq!(AddressSpace { level: 20, width: 9, scale }.path(hash), hash >> shift);
            }
        }
    }
}
