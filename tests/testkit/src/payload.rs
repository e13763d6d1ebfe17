//! Parses and builds DUMP payloads of a module's data types.

use std::ops::Range;

/// A value that a data type writes with one call.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Unsigned(u64),
    Double(f64),
    String(Vec<u8>),
}

/// A DUMP payload: its type and values (`body`), and the version of the RDB format.
pub struct Payload {
    pub body: Vec<u8>,
    version: [u8; 2],
}

/// The size of the type in a body: one byte for the kind of value, nine for the module's type.
pub const TYPE_BYTES: usize = 10;

/// The codes before the parts, and the code after the last one.
const END: u64 = 0;
const UNSIGNED: u64 = 2;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

impl Payload {
    /// Parses a payload that was created without compression.
    pub fn parse(payload: &[u8]) -> Payload {
        let (rest, checksum) = payload.split_last_chunk::<8>().unwrap();
        assert_eq!(u64::from_le_bytes(*checksum), crc64(rest), "the server's checksum");
        let (body, version) = rest.split_last_chunk::<2>().unwrap();
        Payload { body: body.to_vec(), version: *version }
    }

    /// Returns a payload with this body, and with the right version and checksum.
    pub fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut payload = [body, &self.version].concat();
        let checksum = crc64(&payload);
        payload.extend_from_slice(&checksum.to_le_bytes());
        payload
    }

    /// Returns a payload of the same data type with these parts, in this version of its encoding.
    pub fn with_parts(&self, encoding: u64, parts: &[Part]) -> Vec<u8> {
        let mut body = self.body[..2].to_vec();
        // The low ten bits of the module type's number are the version of its encoding.
        let number = u64::from_be_bytes(self.body[2..TYPE_BYTES].try_into().unwrap());
        body.extend_from_slice(&(number & !1023 | encoding).to_be_bytes());
        for part in parts {
            match part {
                Part::Unsigned(number) => {
                    write_length(&mut body, UNSIGNED);
                    write_length(&mut body, *number);
                }
                Part::Double(number) => {
                    write_length(&mut body, DOUBLE);
                    body.extend_from_slice(&number.to_le_bytes());
                }
                Part::String(bytes) => {
                    write_length(&mut body, STRING);
                    write_length(&mut body, bytes.len() as u64);
                    body.extend_from_slice(bytes);
                }
            }
        }
        write_length(&mut body, END);
        self.seal(&body)
    }

    /// Returns the version of the data type's encoding.
    pub fn encoding(&self) -> u64 {
        u64::from_be_bytes(self.body[2..TYPE_BYTES].try_into().unwrap()) & 1023
    }

    pub fn parts(&self) -> Vec<Part> {
        let mut reader = Reader::new(&self.body);
        std::iter::from_fn(|| reader.next()).map(|(part, _)| part).collect()
    }
}

/// Returns the byte ranges of the strings in a body.
pub fn strings(body: &[u8]) -> Vec<Range<usize>> {
    let mut reader = Reader::new(body);
    let parts = std::iter::from_fn(|| reader.next());
    parts.filter(|(part, _)| matches!(part, Part::String(_))).map(|(_, place)| place).collect()
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(body: &'a [u8]) -> Reader<'a> {
        Reader { body, at: TYPE_BYTES }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        self.at += length;
        &self.body[self.at - length..self.at]
    }

    fn length(&mut self) -> u64 {
        let first = self.take(1)[0];
        match first >> 6 {
            0 => u64::from(first),
            1 => u64::from(first & 0x3f) << 8 | u64::from(self.take(1)[0]),
            _ if first == 0x80 => u32::from_be_bytes(self.take(4).try_into().unwrap()).into(),
            _ => u64::from_be_bytes(self.take(8).try_into().unwrap()),
        }
    }

    /// Returns the next part, and the byte range of its content.
    fn next(&mut self) -> Option<(Part, Range<usize>)> {
        let kind = self.length();
        let mut from = self.at;
        let part = match kind {
            END => return None,
            UNSIGNED => Part::Unsigned(self.length()),
            DOUBLE => Part::Double(f64::from_le_bytes(self.take(8).try_into().unwrap())),
            STRING => {
                let length = self.length() as usize;
                from = self.at;
                Part::String(self.take(length).to_vec())
            }
            other => panic!("unknown part {other}"),
        };
        Some((part, from..self.at))
    }
}

fn write_length(body: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => body.push(length as u8),
        64..0x4000 => body.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            body.push(0x80);
            body.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            body.push(0x81);
            body.extend_from_slice(&length.to_be_bytes());
        }
    }
}

/// Returns the checksum of RDB files and payloads: CRC-64 with the polynomial of Jones.
pub fn crc64(bytes: &[u8]) -> u64 {
    /// `0xad93d23594c935a9`, with its bits reversed.
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    bytes
        .iter()
        .fold(0, |crc, &byte| (0..8).fold(crc ^ u64::from(byte), |crc, _| (crc >> 1) ^ (POLYNOMIAL * (crc & 1))))
}
