//! Items and their requests, which are encoded before the clock starts.

use std::io::Write as _;
use std::ops::Range;

use crate::workloads::Delivery;
use models::random::Random;
use testkit::packing::Packing;

/// The lengths of items in bytes: those of a short identifier, a typical URL, and a long URL.
pub(crate) const LENGTHS: [usize; 3] = [16, 28, 200];

/// The number of base-36 digits at the end of an item, enough for 2^41 items.
const DIGITS: usize = 8;

/// The index of the first item that is never inserted.
pub(crate) const NEVER_INSERTED: u64 = 1 << 40;

/// Returns random indexes of a range.
pub(crate) fn some_of(range: Range<u64>, count: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random(seed);
    (0..count).map(move |_| range.start + random.below(range.end - range.start))
}

/// The indexes of items that are never inserted.
pub(crate) const ABSENT: Range<u64> = NEVER_INSERTED..2 * NEVER_INSERTED;

/// Encoded requests of one command, all with the same number of items.
pub(crate) struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pub items_each: usize,
    reply: Form,
}

/// The form of a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An integer of one digit.
    Integer,
    /// An array with such an integer for each item.
    Array,
    /// A string with a bit for each item.
    Bits,
}

impl Requests {
    /// Returns requests with one item each. `words` are the command, the key, and options.
    pub(crate) fn single(words: &[&str], length: usize, indexes: impl Iterator<Item = u64>) -> Requests {
        Requests { reply: Form::Integer, ..Requests::batches(words, length, 1, indexes) }
    }

    /// Returns requests with one item each, or with the items of a batch.
    pub(crate) fn delivered(
        delivery: Delivery,
        words: &[&str],
        length: usize,
        indexes: impl Iterator<Item = u64>,
    ) -> Requests {
        match delivery {
            Delivery::Batch(items) => Requests::batches(words, length, items, indexes),
            Delivery::Pipelined | Delivery::Unpipelined => Requests::single(words, length, indexes),
        }
    }

    /// Returns requests with `items_each` items each. Remaining items are left out.
    pub(crate) fn batches(
        words: &[&str],
        length: usize,
        items_each: usize,
        indexes: impl Iterator<Item = u64>,
    ) -> Requests {
        let mut item = Item::new(length);
        let items: Vec<_> = indexes.map(|index| item.bytes(index).to_vec()).collect();
        Requests::of_items(words, &items, items_each, None)
    }

    /// Returns requests with `items_each` items each, which may be packed. Remaining items are left out.
    pub(crate) fn of_items(words: &[&str], items: &[Vec<u8>], items_each: usize, packing: Option<Packing>) -> Requests {
        let reply = if packing.is_some() { Form::Bits } else { Form::Array };
        let mut requests = Requests { bytes: Vec::new(), ends: Vec::new(), items_each, reply };
        for items in items.chunks_exact(items_each) {
            let packed = packing.map(|packing| packing.pack(items));
            requests.push(words, packed.as_deref().unwrap_or(items));
        }
        requests
    }

    /// Appends a request.
    fn push(&mut self, words: &[&str], arguments: &[Vec<u8>]) {
        let _ = write!(self.bytes, "*{}\r\n", words.len() + arguments.len());
        for word in words.iter().map(|word| word.as_bytes()).chain(arguments.iter().map(Vec::as_slice)) {
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
        };
        self.reply_header() + content
    }

    /// Returns the number of ones in `replies`. Integers from 1 to 9 are ones, and the other integers must be 0.
    pub(crate) fn count_ones(&self, replies: &[u8]) -> usize {
        let contents = replies.chunks(self.reply_length()).map(|reply| &reply[self.reply_header()..]);
        if self.reply == Form::Bits {
            let bits = contents.flat_map(|content| &content[..content.len() - b"\r\n".len()]);
            return bits.map(|byte| byte.count_ones() as usize).sum();
        }
        let integers = contents.flat_map(|content| content.chunks(INTEGER));
        integers
            .map(|integer| match integer {
                b":0\r\n" => 0,
                [b':', b'1'..=b'9', b'\r', b'\n'] => 1,
                _ => panic!("unexpected reply: {}", replies.escape_ascii()),
            })
            .sum()
    }

    fn reply_header(&self) -> usize {
        match self.reply {
            Form::Integer => 0,
            Form::Array => format!("*{}\r\n", self.items_each).len(),
            Form::Bits => format!("${}\r\n", self.items_each.div_ceil(8)).len(),
        }
    }
}

/// The length of a reply that is an integer of one digit.
const INTEGER: usize = b":0\r\n".len();

/// The bytes of an item. Only its last digits change.
pub(crate) struct Item(Vec<u8>);

impl Item {
    pub(crate) fn new(length: usize) -> Item {
        let site: &[u8] = if length < 20 + DIGITS { b"page-id/" } else { b"https://example.com/" };
        let filler = b"a-long-path/".iter().cycle();
        Item(site.iter().chain(filler).copied().take(length - DIGITS).chain([b'0'; DIGITS]).collect())
    }

    /// Returns the item with this number.
    pub(crate) fn bytes(&mut self, mut index: u64) -> &[u8] {
        let digits = self.0.len() - DIGITS;
        for digit in self.0[digits..].iter_mut().rev() {
            *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(index % 36) as usize];
            index /= 36;
        }
        &self.0
    }
}
