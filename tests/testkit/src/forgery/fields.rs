//! The fields of a number in a header or in a chunk, their limits, and the values to try.

/// The position after all paths of a table.
pub(crate) const END: u64 = 1 << 48;

/// The bytes of a part of a table before its first segment.
const PLACES: usize = 16;

/// The offset of the slots and the segments in the record of a table. Both follow from the chunks.
const SLOTS: usize = 16;

/// The start of the records in a header.
pub(crate) const RECORDS: usize = 32;

const RECORD_BYTES: usize = 48;
pub(crate) const CHECKSUM_BYTES: usize = 8;
pub(crate) const MAX_ITEMS: u64 = 1 << 48;
const MAX_SLICE: u64 = 1 << 52;
const MAX_LENGTH: u64 = 100 * 36525 * 24 * 3600 * 10;

/// Values near the limits of decoders, and values that overflow when others are added to them or multiply them.
const OVERFLOWING: [u64; 20] = [
    (1 << 32) - 1,
    1 << 32,
    (1 << 48) - 3,
    (1 << 48) - 2,
    (1 << 48) - 1,
    1 << 48,
    (1 << 48) + 1,
    (1 << 52) - 8,
    (1 << 52) - 1,
    1 << 52,
    (1 << 52) + 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    (1 << 63) | (1 << 48),
    (1 << 63) | ((1 << 48) - 1),
    u64::MAX - 3,
    u64::MAX - 2,
    u64::MAX - 1,
    u64::MAX,
];

/// Doubles that no rate and no number of bits is, or that are at a limit of these.
const DOUBLES: [f64; 12] = [
    -0.0,
    f64::MIN_POSITIVE / 2.0,
    f64::MIN_POSITIVE,
    f64::EPSILON,
    1.0 - f64::EPSILON / 2.0,
    2.0,
    f64::MAX,
    f64::INFINITY,
    f64::NAN,
    -1.0,
    f64::MIN,
    f64::NEG_INFINITY,
];

/// A number in a header, or in the first chunk of a table.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// The offset in bytes, and the number of bytes.
    pub at: usize,
    pub width: usize,
    /// The largest valid value.
    pub limit: u64,
    /// True if the bytes are those of a double.
    pub is_double: bool,
}

impl Field {
    pub(crate) fn new(name: &'static str, at: usize, width: usize, limit: u64) -> Field {
        Field { name, at, width, limit, is_double: false }
    }

    /// Returns the number at the start of the bytes.
    pub(crate) fn number(bytes: &[u8]) -> u64 {
        u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    fn get(&self, bytes: &[u8]) -> u64 {
        let mut number = [0; 8];
        number[..self.width].copy_from_slice(&bytes[self.at..self.at + self.width]);
        u64::from_le_bytes(number)
    }

    pub(crate) fn set(&self, bytes: &mut [u8], value: u64) {
        bytes[self.at..self.at + self.width].copy_from_slice(&value.to_le_bytes()[..self.width]);
    }

    /// Returns the values to try: 0, 1, those near the limit and near the present value, and those that overflow.
    pub(crate) fn values(&self, bytes: &[u8]) -> Vec<u64> {
        let (present, max) = (self.get(bytes), u64::MAX >> (64 - 8 * self.width));
        let near = |value: u64| [value.wrapping_sub(1), value, value.wrapping_add(1)];
        let mut values = [&[0, 1], &near(self.limit)[..], &near(present), &OVERFLOWING].concat();
        values.extend(DOUBLES.map(f64::to_bits).iter().filter(|_| self.is_double));
        values.retain(|&value| value <= max && value != present);
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// Returns the fields of a valid header of one of our own filters. Of the slices of a window, only the oldest that has
/// items and the newest are there.
pub(crate) fn header_fields(header: &[u8]) -> Vec<Field> {
    let error_rate = Field::new("error rate", 24, 8, 1f64.to_bits());
    let mut fields = vec![Field { is_double: true, ..error_rate }];
    let mut add = |start: usize, described: &[(&'static str, usize, usize, u64)]| {
        fields.extend(described.iter().map(|&(name, at, width, limit)| Field::new(name, start + at, width, limit)));
    };
    add(0, &[("kind", 4, 1, 4), ("expansion", 8, 4, u32::MAX.into()), ("records", 12, 4, 2)]);
    add(0, &[("seed", 16, 8, u64::MAX)]);
    let capacity = ("capacity", 0, 8, i64::MAX as u64);
    let first_record = match header[4] {
        0 => {
            let blocks = ("blocks", 0, 8, 1 << 48);
            add(RECORDS, &[blocks, ("items", 16, 8, MAX_ITEMS), ("bits set", 24, 8, bits_of(header))]);
            add(RECORDS, &[("blocks per item", 32, 1, 16), ("probes", 33, 1, 255), ("words", 34, 1, 8)]);
            add(RECORDS + 8, &[capacity]);
            RECORDS + 40
        }
        2 => {
            add(RECORDS, &[capacity, ("history", 8, 8, u64::MAX)]);
            RECORDS + 16
        }
        4 => {
            add(RECORDS, &[capacity, ("history", 8, 8, u64::MAX)]);
            add(RECORDS + 16, &[("bucket size", 0, 2, 255), ("iterations", 2, 2, u16::MAX.into())]);
            add(RECORDS + 16, &[("figure of expansion", 4, 2, 32768), ("converted", 6, 2, 1)]);
            add(RECORDS + 24, &[("removals", 0, 8, u64::MAX)]);
            RECORDS + 32
        }
        _ => {
            add(RECORDS, &[capacity, ("window", 8, 8, MAX_LENGTH), ("slices", 16, 1, 64), ("flags", 17, 1, 3)]);
            add(RECORDS, &[("remembered", 18, 1, header[RECORDS + 18].into())]);
            add(RECORDS + 24, &[("forgotten", 0, 8, MAX_SLICE), ("latest", 8, 8, MAX_SLICE)]);
            add(RECORDS + 40, &[("history", 0, 8, u64::MAX), ("cursor", 8, 8, END - 1), ("cursor 2", 16, 8, END - 1)]);
            let (slices, number) = (RECORDS + 64, usize::from(header[RECORDS + 18]));
            if number > 0 {
                let has_items = |&slice: &usize| header[slices + 24 * slice + 8..][..16] != [0; 16];
                let filled = (0..number).find(has_items).unwrap_or(0);
                let oldest = [("oldest until", 0, 8, MAX_SLICE), ("oldest items", 8, 8, MAX_ITEMS)];
                let newest = [("newest until", 0, 8, MAX_SLICE), ("newest items", 8, 8, MAX_ITEMS)];
                add(slices + 24 * filled, &[oldest[0], oldest[1], ("oldest items 2", 16, 8, MAX_ITEMS)]);
                add(slices + 24 * (number - 1), &[newest[0], newest[1], ("newest items 2", 16, 8, MAX_ITEMS)]);
            }
            slices + 24 * number
        }
    };
    for start in records_from(header, first_record) {
        add(start, &[("table items", 0, 8, MAX_ITEMS), ("table occurrences", 8, 8, u64::MAX)]);
        add(start, &[("table slots", 16, 8, u32::MAX.into()), ("table segments", 24, 8, END)]);
        add(start, &[("level", 32, 1, 56), ("width", 33, 1, 56), ("shortest", 34, 1, 56), ("longer below", 35, 1, 25)]);
        add(start, &[("stamp bits", 36, 1, 8), ("scale", 40, 8, u64::MAX)]);
    }
    fields
}

/// Returns the number of bits of the blocks of a native filter.
fn bits_of(header: &[u8]) -> u64 {
    Field::number(&header[RECORDS..]).saturating_mul(64 * u64::from(header[RECORDS + 34]))
}

/// Returns the offsets of the records of tables in a valid header.
pub(crate) fn table_records(header: &[u8]) -> Vec<usize> {
    let first = match header[4] {
        0 => RECORDS + 40,
        2 => RECORDS + 16,
        4 => RECORDS + 32,
        _ => RECORDS + 64 + 24 * usize::from(header[RECORDS + 18]),
    };
    records_from(header, first).collect()
}

fn records_from(header: &[u8], first: usize) -> impl Iterator<Item = usize> + use<> {
    let end = header.len() - CHECKSUM_BYTES;
    (first..end).step_by(RECORD_BYTES)
}

/// Returns the fields of a part of a table.
pub(crate) fn part_fields(forgets: bool) -> Vec<Field> {
    let mut fields = vec![
        Field::new("part's start", 0, 8, END),
        Field::new("part's end", 8, 8, END),
        Field::new("depth", PLACES, 1, 42),
        Field::new("groups", PLACES + 1, 1, 5),
        Field::new("slots", PLACES + 2, 4, u32::MAX.into()),
    ];
    if forgets {
        fields.push(Field::new("segment's base", PLACES + 6, 8, MAX_SLICE));
        fields.push(Field::new("group's base", PLACES + 14, 1, 255));
    }
    fields
}

/// Returns the offsets of the numbers in a valid header that follow from the chunks: of set bits, slots and segments.
pub(crate) fn counts_of_content(header: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let set_bits = (header[4] == 0).then_some(RECORDS + 24);
    let sizes = table_records(header).into_iter().flat_map(|record| [record + SLOTS, record + SLOTS + 8]);
    set_bits.into_iter().chain(sizes)
}
