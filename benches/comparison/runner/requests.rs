//! Items and their requests, which are encoded before the clock starts.

use std::io::Write as _;
use std::ops::Range;

use testkit::packing::Packing;

/// The number of base-36 digits at the end of an item, enough for 2^41 items.
const DIGITS: usize = 8;

/// The numbers of items that are never inserted.
pub(crate) const ABSENT: Range<u64> = 1 << 40..1 << 41;

/// The least and the greatest length of items in bytes.
pub(crate) type Lengths = (usize, usize);

/// Returns items of all these lengths, given their numbers. Only the last digits of items of one length differ.
pub(crate) fn items((least, greatest): Lengths, numbers: impl IntoIterator<Item = u64>) -> Vec<Vec<u8>> {
    let mut templates: Vec<Vec<u8>> = (least..=greatest).map(template).collect();
    let item = |number: u64| {
        // Neighbours have different lengths.
        let scrambled = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = scrambled as usize % templates.len();
        let item = &mut templates[index];
        let (digits, mut left) = (item.len() - DIGITS, number);
        for digit in item[digits..].iter_mut().rev() {
            *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(left % 36) as usize];
            left /= 36;
        }
        item.clone()
    };
    numbers.into_iter().map(item).collect()
}

fn template(length: usize) -> Vec<u8> {
    let site: &[u8] = if length < 20 + DIGITS { b"page-id/" } else { b"https://example.com/" };
    let filler = b"a-long-path/".iter().cycle();
    site.iter().chain(filler).copied().take(length - DIGITS).chain([b'0'; DIGITS]).collect()
}

/// The way in which requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delivery {
    /// This number of items per command.
    Batch(usize),
    /// This number of items per command, packed.
    Packed(Packing, usize),
    /// One item per command, many commands at a time.
    Pipelined,
    /// One item per command, on many connections, each with one command at a time.
    Unpipelined,
}

/// Encoded requests of one command, all with the same number of items.
pub(crate) struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pub items_each: usize,
    reply: Form,
}

/// The form of a reply.
#[derive(Clone, Copy)]
enum Form {
    /// An integer of one digit.
    Integer,
    /// An array with such an integer for each item.
    Array,
    /// A string with a bit for each item.
    Bits,
    /// These bytes.
    Exactly(&'static str),
}

impl Requests {
    /// Returns requests that start with `words`: the command, the key, and options. Items that do not fill the last
    /// request are left out.
    pub(crate) fn new<W: AsRef<str>>(words: &[W], items: &[Vec<u8>], delivery: Delivery) -> Requests {
        let (items_each, packing, reply) = match delivery {
            Delivery::Batch(items) => (items, None, Form::Array),
            Delivery::Packed(packing, items) => (items, Some(packing), Form::Bits),
            Delivery::Pipelined | Delivery::Unpipelined => (1, None, Form::Integer),
        };
        let mut requests = Requests { bytes: Vec::new(), ends: Vec::new(), items_each, reply };
        for items in items.chunks_exact(items_each) {
            let packed = packing.map(|packing| packing.pack(items));
            requests.push(words, packed.as_deref().unwrap_or(items));
        }
        requests
    }

    /// Returns the requests, to which all replies are these bytes.
    pub(crate) fn replied_with(self, reply: &'static str) -> Requests {
        Requests { reply: Form::Exactly(reply), ..self }
    }

    fn push<W: AsRef<str>>(&mut self, words: &[W], arguments: &[Vec<u8>]) {
        let _ = write!(self.bytes, "*{}\r\n", words.len() + arguments.len());
        let words = words.iter().map(|word| word.as_ref().as_bytes());
        for word in words.chain(arguments.iter().map(Vec::as_slice)) {
            let _ = write!(self.bytes, "${}\r\n", word.len());
            self.bytes.extend_from_slice(word);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn items(&self) -> usize {
        self.len() * self.items_each
    }

    /// Returns the bytes of some of the requests.
    pub(crate) fn encoded(&self, requests: Range<usize>) -> &[u8] {
        let start = if requests.start == 0 { 0 } else { self.ends[requests.start - 1] };
        &self.bytes[start..self.ends[requests.end - 1]]
    }

    /// Returns the length of the reply to a request.
    pub(crate) fn reply_length(&self) -> usize {
        let content = match self.reply {
            Form::Integer => INTEGER,
            Form::Array => self.items_each * INTEGER,
            Form::Bits => self.items_each.div_ceil(8) + b"\r\n".len(),
            Form::Exactly(reply) => reply.len(),
        };
        self.reply_header() + content
    }

    fn reply_header(&self) -> usize {
        match self.reply {
            Form::Integer | Form::Exactly(_) => 0,
            Form::Array => format!("*{}\r\n", self.items_each).len(),
            Form::Bits => format!("${}\r\n", self.items_each.div_ceil(8)).len(),
        }
    }

    /// Returns the number of ones in `replies`. Integers from 1 to 9 are ones, and the other integers must be 0.
    pub(crate) fn count_ones(&self, replies: &[u8]) -> usize {
        let contents = replies.chunks(self.reply_length()).map(|reply| &reply[self.reply_header()..]);
        match self.reply {
            Form::Bits => {
                let bits = contents.flat_map(|content| &content[..content.len() - b"\r\n".len()]);
                bits.map(|byte| byte.count_ones() as usize).sum()
            }
            Form::Exactly(expected) => {
                contents.for_each(|content| assert_eq!(content, expected.as_bytes()));
                0
            }
            Form::Integer | Form::Array => {
                let integers = contents.flat_map(|content| content.chunks(INTEGER));
                let ones = integers.map(|integer| match integer {
                    b":0\r\n" => 0,
                    [b':', b'1'..=b'9', b'\r', b'\n'] => 1,
                    _ => panic!("unexpected reply: {}", replies.escape_ascii()),
                });
                ones.sum()
            }
        }
    }
}

/// The length of a reply that is an integer of one digit.
const INTEGER: usize = b":0\r\n".len();
