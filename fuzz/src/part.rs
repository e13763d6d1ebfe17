//! Reads and edits parts of a filter's table, and composes them of arbitrary entries.
//!
//! The format is that of `filter/src/table/part.rs`. This is an independent implementation, so that a table can be
//! compared with its own dump.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{Kind, codec};
use testkit::forgery::entries::{GROUP, Widths, slots_of_count, write_group};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::input::{Reader, item};

/// The position after all paths.
pub(crate) const END: u64 = 1 << POSITION_BITS;

const POSITION_BITS: u32 = 48;

/// The bytes before the first segment of a part: its start, and the end of the last segment.
const PLACES: usize = 16;

/// The bytes of a segment before its groups.
const SEGMENT_HEADER: usize = 6;

const LOG_GROUP: u32 = 6;

/// The parameters with which a table finds its items.
pub(crate) struct Shape {
    seed: u64,
    scale: u64,
    widths: Widths,
    /// True if the paths of items follow from their hashes in a cuckoo filter.
    is_converted: bool,
}

/// Returns the offset of the record of a filter's table in its header.
pub(crate) fn record_start(filter: &Filter) -> usize {
    match filter.kind() {
        Kind::Counting => 48,
        Kind::NativeCuckoo => 64,
        _ => 72,
    }
}

/// An entry: the first bits of the paths that it matches, and its count.
#[derive(Debug)]
pub(crate) struct Entry {
    prefix: u128,
    length: u32,
    count: u64,
}

impl Shape {
    /// Returns the shape of a filter's table.
    pub(crate) fn of(filter: &Filter) -> Shape {
        let header = codec::encode_header(filter).expect("little memory");
        let record = &header[record_start(filter)..];
        let scale = u64::from_le_bytes(*record[40..].first_chunk().expect("a record"));
        let is_converted = filter.native_cuckoo().is_some_and(|filter| filter.figures().is_converted);
        Shape { seed: filter.seed().unwrap_or(0), scale, widths: Widths::of(record), is_converted }
    }

    /// Returns the depth of all segments of a table that does not grow, or 0.
    pub(crate) fn depth(&self) -> u32 {
        self.widths.depth()
    }

    /// Returns true if [`count`](Self::count) is right. It does not know the hashes of cuckoo filters.
    pub(crate) fn knows_paths(&self) -> bool {
        !self.is_converted
    }

    /// Returns the path of an item, which must not be longer than 16 bytes. Longer ones would need the filter's secret.
    fn path(&self, number: u64) -> u128 {
        let path = xxh3_128_with_seed(&item(number), self.seed).rotate_left(64);
        match (self.widths.is_growing(), u128::from(self.scale)) {
            (true, _) | (false, 0) => path,
            (false, scale) => (path >> 64) * scale + (((path & u128::from(u64::MAX)) * scale) >> 64),
        }
    }

    /// Returns the count of an item in a table with these entries.
    pub(crate) fn count(&self, number: u64, entries: &[Entry]) -> u64 {
        let path = self.path(number);
        let is_matched = |entry: &&Entry| {
            let path = if self.widths.is_growing() || path << self.widths.level >> (128 - self.widths.width) > 0 {
                path
            } else {
                // There is no fingerprint 0.
                path | 1 << (128 - self.widths.level - self.widths.width)
            };
            (path ^ entry.prefix) >> (128 - entry.length) == 0
        };
        // The prefixes of all entries are longer than this.
        let bucket = |prefix: u128| prefix >> (128 - LOG_GROUP);
        let first = entries.partition_point(|entry| bucket(entry.prefix) < bucket(path));
        let candidates = entries[first..].iter().take_while(|entry| bucket(entry.prefix) == bucket(path));
        candidates.filter(is_matched).map(|entry| entry.count).sum()
    }

    /// Reads the entries of a part, in the order of their quotients. Returns the number of filled slots, or `None` if
    /// it is not a part of such a table.
    pub(crate) fn read(&self, part: &[u8], entries: &mut Vec<Entry>) -> Option<u64> {
        let mut position = u64::from_le_bytes(*part.first_chunk()?);
        let (mut rest, mut total) = (part.get(PLACES..)?, 0);
        while let Some((&[depth, log_groups, a, b, c, d], groups)) = rest.split_first_chunk() {
            let (depth, slots) = (u32::from(depth), u32::from_le_bytes([a, b, c, d]));
            let level = depth + u32::from(log_groups) + LOG_GROUP;
            rest = groups;
            let mut filled = 0;
            for group in 0..if slots > 0 { 1 << log_groups } else { 0 } {
                let lengths = run_lengths(rest)?;
                let in_group: usize = lengths.iter().sum();
                let width = self.widths.width_at(level);
                let (upper, lower) = ((GROUP + 1 + in_group).div_ceil(8), (in_group * width as usize).div_ceil(8));
                let lower = rest.get(upper..upper + lower)?;
                rest = &rest[upper + lower.len()..];
                let mut first = 0;
                for (quotient, length) in lengths.into_iter().enumerate() {
                    let run = (first..first + length).map(|slot| slot_of(lower, slot, width)).collect::<Vec<_>>();
                    let quotient = (group * GROUP + quotient) as u128;
                    let start = u128::from(position) << (128 - POSITION_BITS) | quotient << (128 - level);
                    self.read_run(start, level, &run, entries)?;
                    first += length;
                }
                filled += in_group as u64;
            }
            if filled != u64::from(slots) {
                return None;
            }
            total += filled;
            position += END >> depth;
        }
        (rest.is_empty() && end_of(part) == Some(position)).then_some(total)
    }

    /// Reads the entries of a quotient.
    fn read_run(&self, start: u128, level: u32, mut run: &[u64], entries: &mut Vec<Entry>) -> Option<()> {
        let width = self.widths.width_at(level);
        while let Some((&value, rest)) = run.split_first() {
            let mut count = 1;
            run = rest;
            match rest.split_first() {
                Some((&0, digits)) => {
                    let more = digits.iter().take_while(|&digit| digit >> (width - 1) > 0).count();
                    let (number, rest) = digits.split_at_checked(more + 1)?;
                    let bits = |digit: u64| u128::from(digit & ((1 << (width - 1)) - 1));
                    let number = number.iter().rev().fold(0, |sum: u128, &digit| sum << (width - 1) | bits(digit));
                    count = u64::try_from(number).ok()? + 3;
                    run = rest;
                }
                Some((&next, rest)) if next == value => (count, run) = (2, rest),
                _ => {}
            }
            let spare = if self.widths.is_growing() { value.trailing_zeros() + 1 } else { 0 };
            let length = level + width.checked_sub(spare)?;
            let prefix = start | u128::from(value) >> spare << (128 - length);
            entries.push(Entry { prefix, length, count });
        }
        Some(())
    }
}

/// Returns the number of slots of each quotient of a group.
fn run_lengths(upper: &[u8]) -> Option<Vec<usize>> {
    let mut lengths = vec![0];
    for bit in 0.. {
        match upper.get(bit / 8)? >> (bit % 8) & 1 {
            0 if lengths.len() == GROUP + 1 => break,
            0 => lengths.push(0),
            _ => *lengths.last_mut()? += 1,
        }
    }
    // No slot may precede the first quotient's zero.
    (lengths.remove(0) == 0).then_some(lengths)
}

/// Returns a slot of a group's lower part, which is filled from its end.
fn slot_of(lower: &[u8], slot: usize, width: u32) -> u64 {
    let first = lower.len() * 8 - (slot + 1) * width as usize;
    let bits = (0..width as usize).map(|bit| u64::from(lower[(first + bit) / 8] >> ((first + bit) % 8) & 1) << bit);
    bits.sum()
}

/// Returns the end of a part, or `None` if it is too short.
pub(crate) fn end_of(part: &[u8]) -> Option<u64> {
    part.get(8..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// Edits a part.
pub(crate) fn edit(part: &mut Vec<u8>, what: u8, at: usize, value: u8) {
    if part.is_empty() {
        return;
    }
    // Half of the edits hit the start, the end and the first segment's header, which are only a few of the bytes.
    let at = if what & 0x80 == 0 { at } else { at % (PLACES + SEGMENT_HEADER) } % part.len();
    match what & 7 {
        0 => part[at] ^= value,
        1 => part[at] = value,
        2 => part.insert(at, value),
        3 => drop(part.drain(at..part.len().min(at + 1 + usize::from(value)))),
        4 => part.truncate(at),
        // Changes the number of slots of the first segment.
        5 => {
            if let Some(slots) = part.get_mut(PLACES + 2..).and_then(|slots| slots.first_chunk_mut()) {
                *slots = u32::from_le_bytes(*slots).wrapping_add_signed(value.cast_signed().into()).to_le_bytes();
            }
        }
        // Changes the start or the end of the part.
        6 => {
            let place = at % 2 * 8;
            if let Some(place) = part.get_mut(place..).and_then(|place| place.first_chunk_mut()) {
                *place = (u64::from(value) << (POSITION_BITS - 8)).to_le_bytes();
            }
        }
        // Repeats some bytes.
        _ => {
            let copy = part[at..part.len().min(at + 1 + usize::from(value))].to_vec();
            part.splice(at..at, copy);
        }
    }
}

/// Composes a part from numbers in the input. It is valid if all numbers are. Returns `None` if there are too few.
///
/// ```text
///  part      start (two bytes), segments
///  segment   depth, log2 of the number of groups, number of entries, entries
///  entry     quotient (two bytes), fingerprint (two bytes), its length, count
/// ```
pub(crate) fn composed(rest: &mut Reader<'_>, shape: &Shape) -> Option<Vec<u8>> {
    const MAX_SEGMENTS: u8 = 31;
    let start = u64::from(rest.u16()?) << (POSITION_BITS - 16);
    let (mut end, mut segments) = (start, Vec::new());
    for _ in 0..=rest.u8()? & MAX_SEGMENTS {
        let Some((depth, log_groups)) = rest.u8().zip(rest.u8().map(|log_groups| log_groups & 7)) else { break };
        let depth = if shape.widths.is_growing() || depth & 0x80 > 0 { depth & 0x3F } else { shape.depth() as u8 };
        let log_groups = if log_groups == 6 { 5 } else { log_groups };
        let mut runs = vec![Vec::new(); GROUP << log_groups];
        let (level, mut slots) = (u32::from(depth) + u32::from(log_groups) + LOG_GROUP, 0);
        for _ in 0..rest.u8().unwrap_or(0) {
            let Some((quotient, value, count)) = shape.entry(rest, end, depth.into(), level) else { break };
            let content = slots_of_count(value, count, shape.widths.width_at(level));
            slots += content.len() as u32;
            let quotient = quotient % runs.len();
            runs[quotient].extend(content);
        }
        segments.extend([depth, log_groups]);
        segments.extend(slots.to_le_bytes());
        if slots > 0 {
            runs.chunks(GROUP).for_each(|runs| write_group(runs, shape.widths.width_at(level), &mut segments));
        }
        end = end.wrapping_add(END >> depth.min(POSITION_BITS as u8));
    }
    Some([&start.to_le_bytes()[..], &end.to_le_bytes(), &segments].concat())
}

impl Shape {
    /// Reads an entry: its quotient, its value and its count.
    fn entry(&self, rest: &mut Reader<'_>, position: u64, depth: u32, level: u32) -> Option<(usize, u64, u64)> {
        let (quotient, bits, length, count) = (rest.u16()?, rest.u16()?, rest.u8()?, rest.u8()?);
        // If this bit is set, the entry is that of an item, provided that the item is in this segment.
        let is_of_item = length & 0x80 > 0;
        let start = u128::from(position) << (128 - POSITION_BITS);
        let places = |path: u128| (path.wrapping_sub(start) << depth, path << level);
        let (quotient, bits) = match is_of_item {
            true => places(self.path(u64::from(bits) & 127)),
            false => (u128::from(quotient) << (128 - 11), u128::from(bits) << 112),
        };
        let (width, length) = (self.widths.width_at(level), u32::from(length & 0x7F));
        let quotient = quotient >> (128 - (level - depth));
        let value = if self.widths.is_growing() {
            let length = length.min(width - 1);
            (bits.checked_shr(128 - length).unwrap_or(0) as u64) << (width - length) | 1 << (width - 1 - length)
        } else {
            ((bits >> (128 - width)) as u64).max(u64::from(is_of_item))
        };
        let count = if count < 200 { u64::from(count) } else { 1 << (count - 200) };
        Some((quotient as usize, value, count))
    }
}
