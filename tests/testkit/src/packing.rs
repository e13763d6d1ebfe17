//! Packs items as clients do, and unpacks the replies.

use models::random::Random;

/// A way to pack items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packing {
    Fixed,
    /// Offsets of 32 bits that start at this number.
    Offsets(u32),
    /// Offsets of 64 bits that start at this number.
    Offsets64(u64),
    Lines,
}

impl Packing {
    pub fn any(random: &mut Random) -> Packing {
        match random.below(4) {
            0 => Packing::Fixed,
            1 => Packing::Offsets(random.below(1000) as u32),
            2 => Packing::Offsets64(random.next_u64() >> 1),
            _ => Packing::Lines,
        }
    }

    /// Returns an item for a number, of any bytes that this packing allows.
    pub fn item(self, number: u64) -> Vec<u8> {
        match self {
            Packing::Fixed => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec(),
            // Some are empty, and some are not the only ones that start so.
            Packing::Offsets(_) | Packing::Offsets64(_) => cut(&format!("\n{number:x}\r\n"), number % 8),
            Packing::Lines => cut(&format!("{number:x}\r"), number % 8),
        }
    }

    /// Returns the arguments that end a packed command.
    pub fn pack(self, items: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let ends = items.iter().scan(0, |end, item| {
            *end += item.len() as u64;
            Some(*end)
        });
        let offsets = |first: u64| [first].into_iter().chain(ends.map(move |end| first + end));
        let words: Vec<Vec<u8>> = match self {
            Packing::Fixed => vec![b"FIXED".into(), items.first().map_or(8, Vec::len).to_string().into_bytes()],
            Packing::Offsets(first) => {
                let offsets = offsets(first.into()).flat_map(|offset| (offset as u32).to_le_bytes());
                vec![b"OFFSETS".into(), offsets.collect()]
            }
            Packing::Offsets64(first) => {
                vec![b"OFFSETS64".into(), offsets(first).flat_map(u64::to_le_bytes).collect()]
            }
            Packing::Lines => vec![b"LINES".into()],
        };
        let separator: &[u8] = if self == Packing::Lines { b"\n" } else { b"" };
        let bytes = items.iter().flat_map(|item| [item, separator]).flatten().copied().collect();
        words.into_iter().chain([bytes]).collect()
    }
}

/// Returns the items of a packed command, and the number of arguments that they take; `None` if they are not valid.
pub fn unpack(words: &[Vec<u8>]) -> Option<(Vec<Vec<u8>>, usize)> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let [before @ .., parameter, items] = words else { return None };
    if is(parameter, "LINES") {
        let lines = items.strip_suffix(b"\n").unwrap_or(items).split(|&byte| byte == b'\n');
        let lines = if items.is_empty() { Vec::new() } else { lines.map(<[u8]>::to_vec).collect() };
        return Some((lines, 2));
    }
    let name = before.last()?;
    if is(name, "FIXED") {
        let width = std::str::from_utf8(parameter).ok()?.parse().ok().filter(|&width| width > 0)?;
        return Some((items.chunks(width).map(<[u8]>::to_vec).collect(), 3));
    }
    let width = [("OFFSETS", 4), ("OFFSETS64", 8)].into_iter().find(|(packing, _)| is(name, packing))?.1;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let offsets: Vec<u64> = parameter.chunks(width).map(number).collect();
    let at = |offset: u64| Some(offset.checked_sub(*offsets.first()?)? as usize);
    let items = offsets.windows(2).map(|pair| Some(items.get(at(pair[0])?..at(pair[1])?)?.to_vec()));
    Some((items.collect::<Option<_>>()?, 3))
}

/// Returns the first `count` bits of a reply, whose other bits must be zero.
pub fn bits(reply: &[u8], count: usize) -> Vec<bool> {
    assert_eq!(reply.len(), count.div_ceil(8), "bytes for {count} items");
    let bits = reply.iter().flat_map(|byte| (0..8).map(move |bit| byte & 0x80 >> bit != 0));
    let (bits, rest): (Vec<_>, Vec<_>) = bits.enumerate().partition(|(index, _)| *index < count);
    assert!(rest.iter().all(|(_, bit)| !bit), "a bit without an item");
    bits.into_iter().map(|(_, bit)| bit).collect()
}

/// Returns the first bytes of a text, at most `length`.
fn cut(text: &str, length: u64) -> Vec<u8> {
    text.bytes().take(length as usize).collect()
}
