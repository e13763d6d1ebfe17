//! Tables of entries that no additions make.

use crate::forgery::fields::END;

/// The number of quotients in a group.
pub const GROUP: usize = 64;

const LOG_GROUP: u32 = 6;

/// The parameters for the widths of a table's slots.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// The parameters of a table that does not grow. The width is 0 in a growing table.
    pub level: u32,
    pub width: u32,
    /// The parameters for the lengths of fingerprints.
    shortest: u32,
    longer_below: u32,
    stamp_bits: u32,
}

impl Widths {
    /// Reads them from the record of a table.
    pub fn of(record: &[u8]) -> Widths {
        let [level, width, shortest, longer_below, stamp_bits] = [32, 33, 34, 35, 36].map(|at| u32::from(record[at]));
        Widths { level, width, shortest, longer_below, stamp_bits }
    }

    /// Returns the depth of all segments of a table that does not grow, or 0.
    pub fn depth(&self) -> u32 {
        self.level.saturating_sub(LOG_GROUP + 5)
    }

    pub fn is_growing(&self) -> bool {
        self.width == 0
    }

    /// Returns the width of a slot at a level, in bits.
    pub fn width_at(&self, level: u32) -> u32 {
        // A mark tells the lengths of a table that never shrinks.
        let (small, large, most) = if self.longer_below < 128 { (14u32, 22, 56) } else { (15, 21, 3) };
        let below = (u32::from(level < self.longer_below % 128) + small.saturating_sub(level)).min(most);
        let length = (self.shortest + below + level.saturating_sub(large).div_ceil(2)).min(56);
        if self.is_growing() { length + 1 } else { self.width }
    }
}

/// Entries that no additions make.
#[derive(Clone, Copy, Debug)]
pub enum Entries {
    /// An entry with these digits of its count, which stand for a count of three more.
    Digits(u128),
    /// Different entries in one quotient: the first, and their number.
    Run(u64, u64),
    /// In each quotient, an entry with this count, and with no bits of a fingerprint if the table grows.
    Void(u64),
}

impl Entries {
    /// Returns a part with the entries in its first segment, and otherwise empty segments. `base` is the base of the
    /// segment in a table that forgets.
    pub(crate) fn part(self, widths: &Widths, base: Option<u64>) -> Vec<u8> {
        // The numbers in the record may be forged, too.
        let stamp_bits = widths.stamp_bits.min(8);
        let depth = widths.depth().min(10);
        let log_groups = if widths.is_growing() { 1 } else { widths.level.saturating_sub(LOG_GROUP).min(5) };
        let width = widths.width_at(depth + log_groups + LOG_GROUP).clamp(2, 57 - stamp_bits);
        let mut runs = vec![Vec::new(); GROUP << log_groups];
        let last = 1 << (width - 1);
        match self {
            Entries::Digits(digits) => runs[5] = slots_of(last, digits, width),
            Entries::Run(first, number) => {
                runs[5] = (first..first + number).take_while(|&value| value < last).collect()
            }
            Entries::Void(count) => {
                let value = if widths.is_growing() { last } else { 1 };
                runs.fill(slots_of_count(value, count, width));
            }
        }
        let slots = runs.iter().map(Vec::len).sum::<usize>();
        let mut part = [0u64.to_le_bytes(), END.to_le_bytes()].concat();
        part.extend([depth as u8, log_groups as u8]);
        part.extend_from_slice(&(slots as u32).to_le_bytes());
        part.extend(base.into_iter().flat_map(u64::to_le_bytes));
        for group in runs.chunks(GROUP) {
            part.extend(base.map(|_| 0));
            let stamped: Vec<Vec<u64>> =
                group.iter().map(|run| run.iter().map(|slot| slot << stamp_bits).collect()).collect();
            write_group(&stamped, width + stamp_bits, &mut part);
        }
        (1..1 << depth).for_each(|_| part.extend([depth as u8, log_groups as u8, 0, 0, 0, 0]));
        part
    }
}

/// All [`Entries`] to try.
pub const ENTRIES: [Entries; 28] = [
    Entries::Digits(0),
    Entries::Digits((1 << 48) - 4),
    Entries::Digits((1 << 48) - 3),
    Entries::Digits((1 << 48) - 2),
    Entries::Digits((1 << 63) - 3),
    Entries::Digits((1 << 64) - 5),
    Entries::Digits((1 << 64) - 4),
    Entries::Digits((1 << 64) - 3),
    Entries::Digits((1 << 64) - 2),
    Entries::Digits((1 << 64) - 1),
    Entries::Digits(1 << 64),
    Entries::Digits((1 << 64) + 1),
    Entries::Digits(1 << 65),
    Entries::Digits(u128::MAX >> 8),
    Entries::Run(1, 8),
    Entries::Run(1, 60),
    Entries::Run(1, 255),
    Entries::Run(1, 256),
    Entries::Run(1, 257),
    Entries::Run(1, 1000),
    Entries::Run(1, 4000),
    Entries::Run(1, 24_000),
    Entries::Void(1),
    Entries::Void(2),
    Entries::Void(3),
    Entries::Void(1 << 16),
    Entries::Void((1 << 48) - 1),
    Entries::Void(1 << 48),
];

/// Returns the slots of an entry with a count.
pub fn slots_of_count(value: u64, count: u64, width: u32) -> Vec<u64> {
    match count {
        0 => vec![],
        1 | 2 => vec![value; count as usize],
        _ => slots_of(value, (count - 3).into(), width),
    }
}

/// Returns the slots of an entry with these digits, the lowest first.
fn slots_of(value: u64, mut left: u128, width: u32) -> Vec<u64> {
    let (mut slots, bits) = (vec![value, 0], width - 1);
    loop {
        let more = u64::from(left >> bits > 0);
        slots.push(left as u64 & ((1 << bits) - 1) | more << bits);
        left >>= bits;
        if more == 0 {
            return slots;
        }
    }
}

/// Writes a group: for each quotient, a zero and then a one for each of its slots; a last zero; and the slots, from the
/// end.
pub fn write_group(runs: &[Vec<u64>], width: u32, bytes: &mut Vec<u8>) {
    let mut upper = runs.iter().flat_map(|run| [&[false][..], &vec![true; run.len()]].concat()).collect::<Vec<_>>();
    upper.push(false);
    let slots = runs.concat();
    let mut lower = vec![false; (slots.len() * width as usize).next_multiple_of(8)];
    let length = lower.len();
    for (index, slot) in slots.iter().enumerate() {
        let first = length - (index + 1) * width as usize;
        (0..width as usize).for_each(|bit| lower[first + bit] = slot >> bit & 1 > 0);
    }
    for bits in upper.chunks(8).chain(lower.chunks(8)) {
        bytes.push(bits.iter().enumerate().map(|(bit, &is_set)| u8::from(is_set) << bit).sum());
    }
}
