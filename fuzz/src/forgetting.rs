//! Adds arbitrary items at arbitrary times to filters that forget, and loads arbitrary states as files and as chunks.
//!
//! ```text
//!  script     window, operations
//!  window     slices, flags, length in units of 250 ms (u8 each)
//!  operation  code (u8), arguments
//! ```

use std::num::NonZeroU64;

use models::window::{Answer, Rules, WindowModel};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::chunk::{self, SealedChunk};
use oxbloom_filter::internals::codec::{self, DumpChunk, Encoding, Header, Origin};
use oxbloom_filter::internals::{CreateParams, ErrorRate, Growth, InsertOptions, KindParams, OnDuplicate, Window};
use xxhash_rust::xxh3::xxh3_64;

use crate::decoding::copies::MEMORY_LIMIT;
use crate::decoding::parts::sealed;
use crate::input::{Reader, Writer, item};

/// A time that is not a multiple of any slice, in milliseconds since 1970.
const START: u64 = 1_600_000_000_123;

/// Runs a script: see the module's documentation.
pub fn forgetting(bytes: &[u8]) {
    let mut rest = Reader(bytes);
    if let Some(mut subject) = Subject::new(&mut rest) {
        while subject.step(&mut rest).is_some() {
            subject.check();
        }
    }
}

/// Returns the model of a filter whose slices may be full at any time. An edited filter that rolls may forget as much as
/// one that refreshes: everything.
fn model_of(capacity: u64, window: Window, edited: bool) -> WindowModel {
    let Window { length, refresh, rolling, .. } = window;
    let refresh = refresh || edited && rolling;
    let mut model = WindowModel::new(Rules { capacity, has_window: length.is_some(), refresh, rolling });
    model.crowd();
    model
}

/// A filter, and the items that it must remember.
struct Subject {
    filter: Filter,
    now: u64,
    model: WindowModel,
    capacity: u64,
    /// True if the content was edited. A slice may then have more items than the capacity allows, and they can all be
    /// forgotten together.
    edited: bool,
}

impl Subject {
    fn new(rest: &mut Reader<'_>) -> Option<Subject> {
        let (slices, flags, length) = (rest.u8()?, rest.u8()?, u64::from(rest.u8()?) * 250);
        let capacity = [1, 20, 300, 5000][usize::from(flags >> 2 & 3)];
        let window = Window {
            length: NonZeroU64::new(length),
            slices: 2 + slices % 63,
            refresh: flags & 1 > 0 && length > 0,
            rolling: flags & 2 > 0 || length == 0,
        };
        let grows = flags & 16 > 0 && !window.rolling;
        let params = CreateParams {
            error_rate: ErrorRate::new([0.5, 0.01, 1e-6, 1e-30][usize::from(flags >> 5 & 3)])?,
            capacity: capacity.try_into().ok()?,
            growth: if grows { Growth::By(2.try_into().ok()?) } else { Growth::Fixed },
            kind: KindParams::Windowed { seed: 7, window },
        };
        let filter = Filter::create(params, &mut |_| true).expect("little memory");
        Some(Subject { model: model_of(capacity, window, false), filter, now: START, capacity, edited: false })
    }

    fn window(&self) -> Window {
        self.filter.windowed().expect("a filter that forgets").slices().window()
    }

    /// Returns the filter's time, which may be ahead of ours.
    fn time(&self) -> u64 {
        self.filter.windowed().map_or(0, |filter| filter.slices().time(self.now))
    }

    /// Runs an operation. Returns `None` at the end of the bytes.
    fn step(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let operation = rest.u8()?;
        match operation & 7 {
            0 | 1 => {
                let (first, count) = (rest.u16()?, rest.u8()?);
                let lifetime = if operation & 8 > 0 { u64::from(rest.u16()?) } else { 0 };
                self.add(first.into(), u64::from(count) << (operation >> 5), lifetime);
            }
            2 if operation & 8 > 0 => {
                let (first, count) = (rest.u16()?, rest.u8()?);
                self.add_to_slices(first.into(), count, operation & 16 > 0);
            }
            2 => self.now += u64::from(rest.u16()?) << (operation >> 4 & 7),
            3 => self.now = self.now.saturating_sub(rest.u16()?.into()).max(START),
            4 => {
                let mut copy = self.copied();
                check_same(&copy, &self.filter);
                std::mem::swap(&mut copy, &mut self.filter);
            }
            5 => self.replace_by_edited_header(rest)?,
            6 => self.replace_by_edited_part(rest)?,
            _ => self.load_any(rest)?,
        }
        Some(())
    }

    fn add(&mut self, first: u64, count: u64, lifetime: u64) {
        let window = self.window();
        let numbers: Vec<u64> = (first..first + count.min(2000)).collect();
        let hashes: Vec<_> = numbers.iter().map(|&number| self.filter.hash(&item(number))).collect();
        let lifetime = match window.length {
            Some(length) if !window.rolling => NonZeroU64::new(lifetime.min(length.get())),
            _ => None,
        };
        let options = InsertOptions { now: self.now, lifetime, ..OnDuplicate::Count.into() };
        let (mut new, mut renewed) = (vec![false; hashes.len()], vec![false; hashes.len()]);
        let mut taken = self.filter.memory_usage() as u64;
        let inserted = self.filter.insert_hashes(&hashes, &mut new, &mut renewed, &options, &mut |bytes| {
            taken += bytes;
            taken <= 8 * MEMORY_LIMIT
        });
        let handled = inserted.map_or_else(|interrupted| interrupted.handled, |()| hashes.len());
        let until = self.time().saturating_add(lifetime.or(window.length).map_or(0, NonZeroU64::get));
        for (index, &number) in numbers[..handled].iter().enumerate() {
            assert!(window.rolling || self.filter.contains_at(&item(number), self.now), "item {number} is missing");
            let answer = match (new[index], renewed[index]) {
                (true, false) => Answer::New,
                (false, true) => Answer::Renewed,
                (false, false) => Answer::Present,
                (true, true) => panic!("item {number} is new and renewed"),
            };
            self.model.add(number, answer, [self.time(), until], lifetime.is_some());
        }
    }

    /// Adds an item to each of several slices that follow each other: always the same one, or the next one.
    fn add_to_slices(&mut self, first: u64, count: u8, is_other: bool) {
        for step in 0..u64::from(count) {
            self.now += self.window().slice_length().get();
            self.add(first + if is_other { step } else { 0 }, 1, 0);
        }
    }

    /// Returns true if the filter must contain the item.
    fn must_remember(&self, number: u64) -> bool {
        self.model.must_remember(number, self.time())
    }

    fn check(&self) {
        let must_be_there = self.model.due().keys().filter(|&&number| self.must_remember(number));
        must_be_there.for_each(|&number| {
            assert!(self.filter.contains_at(&item(number), self.now), "item {number} is missing");
        });
        let rate = self.filter.false_positive_rate_at(self.now);
        assert!((0.0..=1.0).contains(&rate) && (0.0..=1.0).contains(&self.filter.fill()));
        assert!(self.filter.len_at(self.now) <= self.filter.len() && self.filter.len() <= self.filter.capacity());
    }

    /// Returns a copy of the filter, after checking that copies through a file and through bytes agree.
    fn copied(&self) -> Filter {
        let mut file = Writer::default();
        codec::write_rdb(&self.filter, &mut file).expect("little memory");
        let version = Encoding::Own.version().into();
        let from_file = Encoding::Own.read(version, &mut Reader(&file.0), &mut |_| true).expect("a sound file");
        check_same(&from_file, &self.filter.try_clone().expect("little memory"));
        Filter::from_bytes(&self.filter.to_bytes().expect("little memory")).expect("sound bytes")
    }

    /// Replaces the filter by one with unknown content.
    fn replace(&mut self, filter: Filter) {
        let mut used = filter.try_clone().expect("a copy");
        for now in [0, START, self.now, u64::MAX] {
            let hashes: Vec<_> = (0..40).map(|number| used.hash(&item(number))).collect();
            let options = InsertOptions { now, ..OnDuplicate::Count.into() };
            let mut taken = 0;
            let _ = used.insert_hashes(&hashes, &mut [false; 40], &mut [false; 40], &options, &mut |bytes| {
                taken += bytes;
                taken <= MEMORY_LIMIT
            });
            assert!((0.0..=1.0).contains(&used.false_positive_rate_at(now)));
        }
        let [before, after] = [&self.filter, &filter].map(|filter| filter.to_bytes().expect("little memory"));
        let edited = self.edited || before != after;
        let model =
            model_of(self.capacity, filter.windowed().expect("a filter that forgets").slices().window(), edited);
        let subject = Subject { model, filter, now: self.now, capacity: self.capacity, edited };
        let copy = subject.copied();
        check_same(&copy, &subject.filter);
        *self = Subject { filter: copy, ..subject };
    }

    /// Changes bytes of the header, and loads the chunks that fit the new header.
    fn replace_by_edited_header(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let mut header = codec::encode_header(&self.filter).expect("little memory");
        for _ in 0..rest.u8()? & 3 {
            let (at, value) = (usize::from(rest.u16()?) % header.len(), rest.u8()?);
            header[at] = value;
        }
        let Ok(header) = Header::decode(&sealed(&header), Origin::Client) else { return Some(()) };
        if header.memory() > MEMORY_LIMIT {
            return Some(());
        }
        let mut other = header.build().expect("little memory");
        let Some(tags) = other.windowed().and(codec::tags(&other)) else { return Some(()) };
        for part in codec::dump(&self.filter).skip(1) {
            let DumpChunk { cursor, data } = part.expect("little memory");
            let sound = SealedChunk::decode(cursor, &data).expect("a chunk");
            let tag = tags[usize::from(sound.end > crate::part::END)];
            let data = chunk::seal(sound.content, sound.end, tag).expect("little memory");
            let _ = codec::load_chunk(&mut other, cursor, &data, Origin::Client, &mut |_| true);
        }
        // A header and chunks that a client loads need not agree.
        self.replace(other);
        Some(())
    }

    /// Changes bytes of the first chunk, and loads it into an empty filter.
    fn replace_by_edited_part(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let chunk = codec::next_chunk(&self.filter, codec::HEADER_CURSOR).expect("little memory");
        let changes = rest.u8()? & 7;
        let Some(chunk) = chunk else { return Some(()) };
        let mut part = chunk.data[..chunk.data.len() - 16].to_vec();
        for _ in 0..changes {
            let (at, value) = (usize::from(rest.u16()?) % part.len(), rest.u8()?);
            part[at] ^= value;
        }
        let header = codec::encode_header(&self.filter).expect("little memory");
        let mut other = Header::decode(&header, Origin::Client).and_then(|header| header.build()).expect("sound");
        let [tag, _] = codec::tags(&other)?;
        let end = u64::from_le_bytes(*part.get(8..)?.first_chunk()?);
        let cursor = chunk::FIRST_CHUNK_CURSOR.wrapping_add(end);
        let data = chunk::seal(&part, end, tag).expect("little memory");
        let before = xxh3_64(&other.to_bytes().expect("little memory"));
        match codec::load_chunk(&mut other, cursor, &data, Origin::Replication, &mut |_| true) {
            Ok(_) => self.replace(other),
            Err(_) => assert_eq!(xxh3_64(&other.to_bytes().expect("little memory")), before),
        }
        Some(())
    }

    /// Loads arbitrary bytes as a chunk.
    fn load_any(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let (cursor, length) = (rest.u64()?, rest.u8()?);
        let data = rest.take(rest.0.len().min(length.into()))?;
        let before = self.filter.to_bytes().expect("little memory");
        let loaded = codec::load_chunk(&mut self.filter, cursor, data, Origin::Client, &mut |_| true);
        assert!(loaded.is_ok_and(|loaded| loaded.changed) || self.filter.to_bytes().expect("little memory") == before);
        Some(())
    }
}

/// Panics unless both are the same filter.
fn check_same(one: &Filter, other: &Filter) {
    assert!(one.to_bytes().expect("little memory") == other.to_bytes().expect("little memory"));
    assert_eq!(one.memory_usage(), other.memory_usage());
}
