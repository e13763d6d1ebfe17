//! Encodes and decodes DUMP payloads, which DUMP returns, RESTORE accepts, and files contain.
//!
//! ```text
//!  7                    the RDB type: a module's value
//!  length               the module's data type: nine characters of six bits, and a version of ten bits
//!  2, length            an unsigned number   │
//!  4, eight bytes       a double             │ any number of these, in any order
//!  5, string            a string             │
//!  0                    the end
//!  u16                  the version of RDB: one that all servers accept
//!  u64                  the CRC-64 of all bytes before it
//! ```
//!
//! A *length* takes 1, 2, 5 or 9 bytes. A *string* is a length and the bytes. If the top two bits of its first byte are
//! set, the string has another form: an integer, which stands for its decimal digits, or bytes compressed with LZF.
//! (Servers compress strings of more than 20 bytes.) The encodings describe the values of the data types.
//!
//! The decoder trusts nothing. The checksum detects accidental damage, and each length is compared with the number of
//! bytes left before memory is allocated.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "lengths are compared before they are subtracted, and what is added has one or two bytes"
)]

use std::borrow::Cow;
use std::ffi::CStr;

use crc::{CRC_64_REDIS, Crc, Table};

use super::fields::Fields;
use super::{Encoding, Sink, Source};
use crate::array::Bytes;
use crate::error::{DecodeError, Error, ensure};
use crate::filter::Filter;
use crate::memory::{Admit, try_append, try_vec};

const MODULE_VALUE: u8 = 7;

const END: u64 = 0;
const UNSIGNED: u64 = 2;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

/// The RDB version of Redis 5 to 6.2. Later servers accept it, and the format of modules' values has not changed since.
const RDB_VERSION: u16 = 9;
/// The first RDB version that has modules' values.
const FIRST_RDB_VERSION: u16 = 8;

const FOOTER_BYTES: usize = 2 + 8;

const VERSION_BITS: u32 = 10;

/// The servers' CRC-64. With 16 tables, it handles 16 bytes at once.
static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Returns the ID of a data type of this name, without a version. All names consist of letters and hyphens.
fn type_id(name: &CStr) -> u64 {
    let code = |letter: &u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        _ => 62,
    };
    name.to_bytes().iter().fold(0, |id, letter| id << 6 | u64::from(code(letter))) << VERSION_BITS
}

/// Encodes a filter as a DUMP payload.
pub fn encode(filter: &Filter) -> Result<Vec<u8>, Error> {
    let encoding = Encoding::of(filter.kind());
    let id = type_id(encoding.type_name()) | u64::from(encoding.version());
    let mut writer = Writer { bytes: Vec::new(), failed: false };
    writer.append(&[MODULE_VALUE]);
    writer.length(id);
    super::write_rdb(filter, &mut writer)?;
    writer.length(END);
    writer.append(&RDB_VERSION.to_le_bytes());
    let checksum = CRC.checksum(&writer.bytes);
    writer.append(&checksum.to_le_bytes());
    if writer.failed { Err(Error::OutOfMemory) } else { Ok(writer.bytes) }
}

/// A payload that is being written. After a failed allocation, nothing more is written.
struct Writer {
    bytes: Vec<u8>,
    failed: bool,
}

impl Writer {
    fn append(&mut self, bytes: &[u8]) {
        self.failed = self.failed || try_append(&mut self.bytes, &[bytes]).is_err();
    }

    /// Writes a length in the fewest bytes, as servers do.
    fn length(&mut self, length: u64) {
        match length {
            0..=0x3f => self.append(&[length as u8]),
            0x40..=0x3fff => self.append(&(length as u16 | 0x4000).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.append(&[0x80]);
                self.append(&(length as u32).to_be_bytes());
            }
            _ => {
                self.append(&[0x81]);
                self.append(&length.to_be_bytes());
            }
        }
    }
}

impl Sink for Writer {
    fn unsigned(&mut self, number: u64) {
        self.length(UNSIGNED);
        self.length(number);
    }

    fn double(&mut self, number: f64) {
        self.length(DOUBLE);
        self.append(&number.to_le_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.length(STRING);
        self.length(bytes.len() as u64);
        self.append(bytes);
    }
}

/// Decodes a DUMP payload.
///
/// # Errors
///
/// [`DecodeError::OutOfMemory`] if `admit` rejects the memory, or it cannot be allocated; another error if the payload is
/// damaged, or is not that of a filter.
pub fn decode(payload: &[u8], admit: Admit<'_>) -> Result<Filter, DecodeError> {
    let (checked, checksum) = payload.split_last_chunk().ok_or(DecodeError::Corrupt)?;
    let (value, version) = checked.split_last_chunk().ok_or(DecodeError::Corrupt)?;
    ensure(
        u16::from_le_bytes(*version) >= FIRST_RDB_VERSION && u64::from_le_bytes(*checksum) == CRC.checksum(checked),
    )?;
    decode_value(value.strip_prefix(&[MODULE_VALUE]).ok_or(DecodeError::Corrupt)?, admit)
}

/// Decodes a module's value, as payloads and RDB files have it: from its data type to its end. See [`decode`].
pub fn decode_value(value: &[u8], admit: Admit<'_>) -> Result<Filter, DecodeError> {
    let mut reader = Reader(Fields(value));
    let id = reader.length()?;
    let (name, version) = (id >> VERSION_BITS << VERSION_BITS, id & ((1 << VERSION_BITS) - 1));
    let is_of = |type_name| type_id(type_name) == name;
    let has_it = |encoding: &Encoding| is_of(encoding.type_name()) || encoding.name_beside().is_some_and(is_of);
    let encoding = Encoding::ALL.iter().copied().find(has_it);
    let filter = encoding.ok_or(DecodeError::Corrupt)?.read(version, &mut reader, admit)?;
    ensure(reader.length()? == END && reader.0.0.is_empty())?;
    Ok(filter)
}

/// Returns true if the bytes look like a DUMP payload.
pub fn is_payload(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MODULE_VALUE) && bytes.len() > FOOTER_BYTES
}

/// The unread rest of a payload.
struct Reader<'a>(Fields<'a>);

enum StringStart {
    Plain(u64),
    Number(i64),
    Compressed { packed: u64, unpacked: u64 },
}

impl Reader<'_> {
    fn length(&mut self) -> Result<u64, DecodeError> {
        match self.start()? {
            StringStart::Plain(length) => Ok(length),
            StringStart::Number(_) | StringStart::Compressed { .. } => Err(DecodeError::Corrupt),
        }
    }

    /// Reads a length, or the start of a string in one of the other two forms.
    fn start(&mut self) -> Result<StringStart, DecodeError> {
        let first = self.0.u8()?;
        Ok(match (first >> 6, first & 0x3f) {
            (0, length) => StringStart::Plain(length.into()),
            (1, high) => StringStart::Plain(u64::from(high) << 8 | u64::from(self.0.u8()?)),
            (2, 0) => StringStart::Plain(u32::from_be_bytes(*self.0.array()?).into()),
            (2, 1) => StringStart::Plain(u64::from_be_bytes(*self.0.array()?)),
            (3, 0) => StringStart::Number(i8::from_le_bytes(*self.0.array()?).into()),
            (3, 1) => StringStart::Number(i16::from_le_bytes(*self.0.array()?).into()),
            (3, 2) => StringStart::Number(i32::from_le_bytes(*self.0.array()?).into()),
            (3, 3) => StringStart::Compressed { packed: self.length()?, unpacked: self.length()? },
            _ => return Err(DecodeError::Corrupt),
        })
    }

    fn expect(&mut self, opcode: u64) -> Result<(), DecodeError> {
        ensure(self.length()? == opcode)
    }
}

impl<'a> Source for Reader<'a> {
    type String = Cow<'a, [u8]>;

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        self.expect(UNSIGNED)?;
        self.length()
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        self.expect(DOUBLE)?;
        self.0.f64()
    }

    fn string(&mut self) -> Result<Cow<'a, [u8]>, DecodeError> {
        self.expect(STRING)?;
        match self.start()? {
            StringStart::Plain(length) => self.0.take(length).map(Cow::Borrowed),
            StringStart::Number(number) => Ok(Cow::Owned(number.to_string().into_bytes())),
            StringStart::Compressed { packed, unpacked } => unpack(self.0.take(packed)?, unpacked).map(Cow::Owned),
        }
    }

    fn has_string_next(&self) -> Option<bool> {
        Some(Reader(Fields(self.0.0)).length() == Ok(STRING))
    }

    fn array(&mut self, _bytes: u64) -> Result<Bytes, DecodeError> {
        Ok(Bytes::copied(&self.string()?)?)
    }
}

/// The length of the longest copy in LZF, which takes three bytes.
const MOST_UNPACKED: u64 = 264;

/// Decompresses LZF, which consists of literal bytes, and of copies of bytes that were decompressed before.
///
/// ```text
///  000xxxxx                     x + 1 literal bytes follow
///  xxxyyyyy yyyyyyyy            copy x + 2 bytes, from y + 1 bytes before the end of the output (x is 1 to 6)
///  111yyyyy xxxxxxxx yyyyyyyy   copy x + 9 bytes, from the same place
/// ```
fn unpack(packed: &[u8], unpacked: u64) -> Result<Vec<u8>, DecodeError> {
    ensure(unpacked <= (packed.len() as u64).saturating_mul(MOST_UNPACKED))?;
    let unpacked = usize::try_from(unpacked).map_err(|_| DecodeError::Corrupt)?;
    let mut bytes = try_vec(unpacked)?;
    let mut fields = Fields(packed);
    while !fields.0.is_empty() {
        let control = fields.u8()?;
        let (code, high) = (control >> 5, control & 0x1f);
        if code == 0 {
            let run = fields.take(usize::from(high) + 1)?;
            ensure(run.len() <= unpacked - bytes.len())?;
            bytes.extend_from_slice(run);
            continue;
        }
        let mut length = usize::from(code) + 2;
        if code == 7 {
            length += usize::from(fields.u8()?);
        }
        let distance = (usize::from(high) << 8 | usize::from(fields.u8()?)) + 1;
        let start = bytes.len().checked_sub(distance).ok_or(DecodeError::Corrupt)?;
        ensure(length <= unpacked - bytes.len())?;
        if distance >= length {
            bytes.extend_from_within(start..start + length);
        } else {
            // The copy overlaps its own output, so it repeats a pattern.
            (start..start + length).for_each(|index| bytes.push(bytes[index]));
        }
    }
    debug_assert!(bytes.len() <= unpacked, "more than was reserved");
    ensure(bytes.len() == unpacked)?;
    Ok(bytes)
}
