//! The parts of quotient tables: repeated, damaged and forged ones.

use models::random::Random;
use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::{Addressing, END, Payload, Stamps, Table, end_of};

use crate::table::{add, hash, new, parts};

/// The level and the bits of a value of a table at an error rate of 1/2 that has not grown.
const LEVEL: i32 = 7;
const VALUE_BITS: u32 = 12;

/// The slots of each quotient of a table that has not grown.
type Runs = Vec<Vec<u64>>;

/// The kind of the entries in forged segments.
#[derive(Clone, Copy, Debug)]
enum Entries {
    Set,
    Counted,
    /// With stamps. The base of all groups is 5.
    Stamped,
}

impl Entries {
    fn payload(self) -> Payload {
        match self {
            Entries::Set => Payload::Nothing,
            Entries::Counted => Payload::Count,
            Entries::Stamped => Payload::Slice(Stamps { forgotten: 5, span: 3 }),
        }
    }

    fn stamp_bits(self) -> u32 {
        2 * u32::from(matches!(self, Entries::Stamped))
    }

    /// Returns the slots of an entry.
    fn slots_of(self, value: u64, random: &mut Random) -> Vec<u64> {
        match self {
            Entries::Set => vec![value],
            // Slices 6 to 8.
            Entries::Stamped => vec![(value << 2) + (6 + random.below(3)) % 4],
            Entries::Counted => match [1, 1, 2, 3, 5, 2050, 1 << 20, 1 << 48][random.below(8) as usize] {
                1 => vec![value],
                2 => vec![value, value],
                count => {
                    let digits = (0..)
                        .map_while(|digit| Some((count - 3u64) >> (11 * digit)).filter(|&left| digit == 0 || left > 0));
                    let digit = |left: u64| left % (1 << 11) + (u64::from(left >= 1 << 11) << 11);
                    [value, 0].into_iter().chain(digits.map(digit)).collect()
                }
            },
        }
    }

    /// Returns the values of a run, or `None` if it is not valid.
    fn values_of(self, run: &[u64]) -> Option<Vec<u64>> {
        let mut values = Vec::new();
        let mut rest = run;
        while let [first, others @ ..] = rest {
            rest = others;
            let value = first >> self.stamp_bits();
            match (self, rest) {
                // The fourth slice after the base.
                (Entries::Stamped, _) if (first + 2) % 4 == 3 => return None,
                (Entries::Counted, [second, others @ ..]) if second == first => rest = others,
                (Entries::Counted, [0, digits @ ..]) => {
                    let last = digits.iter().position(|digit| digit >> 11 == 0)?;
                    let number = digits[..=last]
                        .iter()
                        .rev()
                        .fold(0u128, |number, digit| number << 11 | u128::from(digit % (1 << 11)));
                    if last > 0 && digits[last] == 0 || number + 3 > 1 << 48 {
                        return None;
                    }
                    rest = &digits[last + 1..];
                }
                _ => {}
            }
            if value == 0 || values.contains(&value) {
                return None;
            }
            values.push(value);
        }
        Some(values)
    }

    fn bytes_of_group(self, runs: &[Vec<u64>]) -> Vec<u8> {
        let width = (VALUE_BITS + self.stamp_bits()) as usize;
        let slots: Vec<u64> = runs.concat();
        let mut upper = vec![0; (64 + 1 + slots.len()).div_ceil(8)];
        let mut at = 0;
        for run in runs {
            (at + 1..=at + run.len()).for_each(|bit| upper[bit / 8] |= 1 << (bit % 8));
            at += 1 + run.len();
        }
        let mut lower = vec![0; (slots.len() * width).div_ceil(8)];
        for (index, slot) in slots.iter().enumerate() {
            let start = 8 * lower.len() - (index + 1) * width;
            let ones = (0..width).filter(|bit| slot >> bit & 1 == 1);
            ones.for_each(|bit| lower[(start + bit) / 8] |= 1 << ((start + bit) % 8));
        }
        let base: &[u8] = if let Entries::Stamped = self { &[1] } else { &[] };
        [base, &upper, &lower].concat()
    }

    /// Returns the part that is a whole table with these runs.
    fn part_of(self, runs: &Runs) -> Vec<u8> {
        let slots = runs.concat().len() as u32;
        let base = if let Entries::Stamped = self { 4u64.to_le_bytes().to_vec() } else { Vec::new() };
        let groups: Vec<u8> = runs.chunks(64).flat_map(|runs| self.bytes_of_group(runs)).collect();
        [&0u64.to_le_bytes()[..], &END.to_le_bytes(), &[0, 1], &slots.to_le_bytes(), &base, &groups].concat()
    }
}

#[test]
fn a_part_is_accepted_if_a_table_could_have_its_entries_and_only_then() {
    let mut random = Random(0);
    for entries in [Entries::Set, Entries::Counted, Entries::Stamped] {
        let mut accepted = 0;
        for number in 0..600 {
            let mut runs = vec![Vec::new(); 128];
            for run in &mut runs {
                let mut values = Vec::new();
                for _ in 0..if random.below(40) == 0 { random.below(14) } else { random.below(3) } {
                    let value = 1 + random.below((1 << VALUE_BITS) - 1);
                    if !values.contains(&value) {
                        values.push(value);
                        run.extend(entries.slots_of(value, &mut random));
                    }
                }
            }
            // Half of the segments are damaged.
            let longest = (0..128).max_by_key(|&run| runs[run].len()).unwrap_or(0);
            let run = if number % 4 == 0 { longest } else { random.below(128) as usize };
            if number % 2 == 0
                && let Some(last) = runs[run].len().checked_sub(1)
            {
                let slot = random.below(last as u64 + 1) as usize;
                runs[run][slot] = match random.below(3) {
                    0 => runs[run][slot] % (1 << entries.stamp_bits()),
                    1 => runs[run][random.below(last as u64 + 1) as usize],
                    _ => runs[run][slot] ^ 1 << random.below(u64::from(VALUE_BITS + entries.stamp_bits())),
                };
            }
            let values: Option<Vec<_>> = runs.iter().map(|run| entries.values_of(run)).collect();
            let part = entries.part_of(&runs);
            let mut table = Table::growing(0.5, entries.payload()).unwrap();
            let added = table.add_part(&part, &mut |_bytes| true);
            let Some(values) = values else {
                assert_eq!(added, Err(DecodeError::Corrupt), "{entries:?}: {runs:?}");
                continue;
            };
            assert_eq!(added, Ok(true), "{entries:?}: {runs:?}");
            accepted += 1;
            assert_eq!(parts(&table, 10_000), [part]);
            let matched: f64 = values.concat().iter().map(|value| f64::from(1 << value.trailing_zeros())).sum();
            let rate = (matched / f64::from(LEVEL + VALUE_BITS as i32 - 1).exp2()).min(1.0);
            assert!((table.false_positive_rate() - rate).abs() < 1e-9, "{entries:?}: {runs:?}");
        }
        assert!((320..560).contains(&accepted), "{accepted} of {entries:?}");
    }
}

#[test]
fn a_part_with_one_run_is_accepted_if_its_entries_are_remembered_and_differ() {
    let stamped = |value: u64, slice: u64| (value << 2) + slice % 4;
    for (entries, run, is_valid) in [
        (Entries::Set, vec![7, 3], true),
        (Entries::Set, vec![7, 7], false),
        (Entries::Counted, vec![7, 7], true),
        (Entries::Counted, vec![7, 7, 7], false),
        (Entries::Counted, vec![7, 3, 7], false),
        (Entries::Stamped, vec![stamped(7, 6), stamped(3, 8)], true),
        (Entries::Stamped, vec![stamped(7, 6), stamped(7, 8)], false),
        (Entries::Stamped, vec![stamped(7, 9)], false),
    ] {
        let mut runs = vec![Vec::new(); 128];
        runs[100] = run;
        let mut table = Table::growing(0.5, entries.payload()).unwrap();
        let added = table.add_part(&entries.part_of(&runs), &mut |_bytes| true);
        assert_eq!(added.is_ok(), is_valid, "{entries:?}: {:?}", runs[100]);
    }
}

#[test]
fn a_part_with_a_run_that_is_too_long_is_rejected() {
    for (entries, shift) in [(Entries::Set, 0), (Entries::Counted, 0), (Entries::Stamped, 2)] {
        for (length, is_valid) in [(256, true), (257, false)] {
            let mut runs = vec![Vec::new(); 128];
            runs[100] = (1..=length).map(|value| (value << shift) + shift).collect();
            let mut table = Table::growing(0.5, entries.payload()).unwrap();
            assert_eq!(table.add_part(&entries.part_of(&runs), &mut |_bytes| true).is_ok(), is_valid, "{length}");
        }
    }
}

#[test]
fn a_part_with_entries_of_forgotten_or_later_bases_is_rejected() {
    let mut runs = vec![vec![1 << 2 | 2]; 128];
    runs[0].clear();
    let part = Entries::Stamped.part_of(&runs);
    for forgotten in 0..10 {
        let mut table = Table::growing(0.5, Payload::Slice(Stamps { forgotten, span: 3 })).unwrap();
        assert_eq!(table.add_part(&part, &mut |_bytes| true).is_ok(), forgotten >= 5);
        let mut of_segment = part.clone();
        of_segment[22] = 8;
        let mut table = Table::growing(0.5, Payload::Slice(Stamps { forgotten, span: 3 })).unwrap();
        assert_eq!(table.add_part(&of_segment, &mut |_bytes| true).is_ok(), forgotten >= 9);
    }
}

/// The directories for a deep forged segment could take gigabytes.
#[test]
fn a_part_that_is_rejected_changes_nothing() {
    const DEEP: [u8; 6] = [40, 5, 0, 0, 0, 0];
    for items in [0, 1, 50_000] {
        let mut source = new(0.01, 0, true, Payload::Count);
        for number in 0..50_000 {
            add(&mut source, number);
        }
        let stored = parts(&source, 10_000);
        let mut forged = stored[0].clone();
        let end = end_of(&forged).unwrap() + (END >> 40);
        forged[8..16].copy_from_slice(&end.to_le_bytes());
        forged.extend(DEEP);
        let mut table = new(0.01, 0, true, Payload::Count);
        for number in 0..items {
            add(&mut table, number);
        }
        let before = (parts(&table, 10_000), table.segments(), table.slots());
        assert!(table.add_part(&forged, &mut |_| true).is_err());
        assert_eq!((parts(&table, 10_000), table.segments(), table.slots()), before);
        if items == 0 {
            stored.iter().for_each(|part| assert_eq!(table.add_part(part, &mut |_| true), Ok(true)));
            assert_eq!(parts(&table, 10_000), stored);
        }
    }
}

/// Memory may be refused at any request, also after some entries of the part were added.
#[test]
fn a_part_for_which_memory_is_refused_changes_nothing() {
    for (items, of_part) in [(0, 20_000), (1_000, 20_000), (20_000, 30_000), (40_000, 20_000)] {
        let (mut table, mut other) = (new(0.01, 0, true, Payload::Nothing), new(0.01, 0, true, Payload::Nothing));
        for number in 0..items {
            add(&mut table, number);
        }
        for number in 0..of_part {
            add(&mut other, 1_000_000 + number);
        }
        for part in parts(&other, 20_000) {
            let whole = |table: &Table| (parts(table, usize::MAX), table.segments(), table.slots());
            let before = whole(&table);
            let (rate, allocated) = (table.false_positive_rate(), table.allocated());
            for refused in 0.. {
                let mut requests = 0..=refused;
                match table.add_part(&part, &mut |_| requests.next() != Some(refused)) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error, DecodeError::OutOfMemory),
                }
                assert!(whole(&table) == before, "{items} items, request {refused}");
                assert_eq!((table.false_positive_rate(), table.allocated()), (rate, allocated));
            }
        }
        assert!((0..of_part).all(|number| table.contains(hash(1_000_000 + number))));
        assert!((0..items).all(|number| table.contains(hash(number))));
    }
}

/// A part of a table of `10^11` items is far deeper than the few segments of the part need.
#[test]
fn deep_parts_load_if_the_header_announces_as_many_segments() {
    const DEPTH: u8 = 26;
    let mut part = [0u64.to_le_bytes(), (END >> DEPTH << 1).to_le_bytes()].concat();
    part.extend([DEPTH, 5, 0, 0, 0, 0].repeat(2));
    let mut table = new(0.01, 0, true, Payload::Nothing);
    assert_eq!(table.add_part(&part, &mut |_| true), Err(DecodeError::Corrupt));
    table.announce_segments(1 << DEPTH);
    assert_eq!(table.add_part(&part, &mut |_| true), Ok(false));
}

/// Returns a part without entries: empty segments of the same depth.
fn empty_part(start: u64, end: u64, depth: u8, segments: usize) -> Vec<u8> {
    [&start.to_le_bytes()[..], &end.to_le_bytes(), &[depth, 5, 0, 0, 0, 0].repeat(segments)].concat()
}

/// The next part may have entries there.
#[test]
fn a_part_that_only_divides_a_table_changes_it() {
    let mut source = new(0.01, 0, true, Payload::Nothing);
    (0..3000).for_each(|number| assert!(add(&mut source, number) || number > 0));
    let mut table = new(0.01, 0, true, Payload::Nothing);
    assert_eq!(table.add_part(&parts(&source, 100)[0], &mut |_| true), Ok(true));
    let segments = table.segments();
    let part = empty_part(END / 2, END, 3, 4);
    assert_eq!(table.add_part(&part, &mut |_| true), Ok(true));
    assert_eq!(table.segments(), segments + 3);
    assert_eq!(table.add_part(&part, &mut |_| true), Ok(false));
}

#[test]
fn a_part_that_does_not_end_where_its_segments_do_is_rejected() {
    let mut table = new(0.01, 0, true, Payload::Nothing);
    for (end, segments) in [(END / 4, 2), (END, 2), (END / 2, 0), (0, 0)] {
        let part = empty_part(0, end, 2, segments);
        assert_eq!(table.add_part(&part, &mut |_| true), Err(DecodeError::Corrupt));
    }
    assert_eq!(table.add_part(&empty_part(0, END / 2, 2, 2), &mut |_| true), Ok(false));
}

#[test]
fn a_part_with_segments_that_no_table_has_is_rejected() {
    for growing in [true, false] {
        let empty = || new(0.01, 100_000, growing, Payload::Count);
        let max_depth = match empty().addressing() {
            Addressing::Growing(_) => 40,
            Addressing::Fixed(space) => space.level - 11,
        };
        let depths = (0..50).chain([64, 128, u8::MAX]);
        for (depth, log_groups) in depths.flat_map(|depth| [0, 1, 4, 5, 6].map(|log_groups| (depth, log_groups))) {
            let mut part = empty_part(0, END.checked_shr(depth.into()).unwrap_or(0), depth, 1);
            part[17] = log_groups;
            let mut table = empty();
            table.announce_segments(1 << 50);
            // The directories of deep segments are large.
            let added = table.add_part(&part, &mut |bytes| bytes < 1 << 12);
            if (1..=max_depth).contains(&depth) && log_groups == 5 {
                assert!(matches!(added, Ok(false) | Err(DecodeError::OutOfMemory)), "{depth} {added:?}");
            } else {
                assert_eq!(added, Err(DecodeError::Corrupt), "{depth} {log_groups}");
            }
        }
        for (start, depth) in [(END, 1), (END / 4, 1), (1, 6), (u64::MAX / 2, 2)] {
            let part = empty_part(start, start + (END >> depth), depth, 1);
            assert_eq!(empty().add_part(&part, &mut |_bytes| true), Err(DecodeError::Corrupt), "{start} {depth}");
        }
    }
    // In a table of fixed size, all segments with entries have the same depth.
    let mut source = new(0.01, 100_000, false, Payload::Count);
    add(&mut source, 1);
    for part in parts(&source, 17) {
        let (start, depth) = (u64::from_le_bytes(*part.first_chunk().unwrap()), part[16]);
        if part[18..22] == [0; 4] {
            continue;
        }
        let length = END >> (depth - 1);
        let start = start & !(length - 1);
        let forged = [&start.to_le_bytes()[..], &(start + length).to_le_bytes(), &[depth - 1], &part[17..]].concat();
        for (part, expected) in [(part, Ok(true)), (forged, Err(DecodeError::Corrupt))] {
            let mut table = new(0.01, 100_000, false, Payload::Count);
            assert_eq!(table.add_part(&part, &mut |_bytes| true), expected, "{depth}");
        }
    }
}

/// Only a set can take up other entries: counts would be added twice.
#[test]
fn a_part_of_another_multiset_is_rejected() {
    let [mut one, other] = [0, 100].map(|first| {
        let mut table = new(0.01, 0, true, Payload::Count);
        (first..first + 100).for_each(|number| assert!(add(&mut table, number) || number > first));
        table
    });
    let before = parts(&one, 10_000);
    assert_eq!(one.add_part(&parts(&other, 10_000)[0], &mut |_bytes| true), Err(DecodeError::Foreign));
    assert_eq!(one.add_part(&before[0], &mut |_bytes| true), Ok(false));
    assert_eq!(parts(&one, 10_000), before);
}
