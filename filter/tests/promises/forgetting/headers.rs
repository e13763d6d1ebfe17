//! Headers with arbitrary numbers and times.

use models::window::Answer;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{Header, Origin};
use oxbloom_filter::internals::{Growth, Window, limits};

use crate::forgetting::filters::{EXACT, START, contains, insert, window, windowed};
use crate::model::{body, by, through_a_client, through_a_file, whole, with_checksum};

/// Fills a window with as many slices as it can remember: first slices that end by time, and then full ones.
fn spanning(window: Window) -> Filter {
    /// The number of items in a full slice.
    const FULL: u64 = 3;
    let slices = u64::from(window.slices);
    let mut filter = windowed(EXACT, FULL * slices, Growth::Fixed, window);
    let mut now = START;
    if window.length.is_some() {
        insert(&mut filter, &[0], now, None);
        for step in 1..=slices {
            now = START + step * window.slice_length().get();
            insert(&mut filter, &[1], now, None);
        }
    }
    if !window.rolling {
        return filter;
    }
    // Renewed items leave their slices, so they fill more slices than there is room for.
    for round in 0..=slices {
        let first = if window.refresh { 2 } else { 2 + FULL * round };
        insert(&mut filter, &(first..first + FULL).collect::<Vec<_>>(), now, None);
    }
    filter
}

#[test]
fn windows_that_remember_as_many_slices_as_they_can_are_stored_and_loaded() {
    for slices in limits::SLICES {
        for (slice_length, rolling) in [(1000, false), (0, true), (1000, true)] {
            let length = slice_length * u64::from(slices);
            let window = Window { rolling, refresh: length > 0, ..window(length, slices) };
            let filter = spanning(window);
            let remembered = filter.windowed().expect("a filter that forgets").slices().remembered().len() as u8;
            let most = if rolling && length > 0 { 2 * slices + 2 } else { slices + u8::from(!rolling) };
            assert!(most == remembered && most <= window.span(), "{remembered} of {window:?}");
            for copy in [through_a_file(&filter), through_a_client(&filter)] {
                assert_eq!(whole(&copy), whole(&filter), "{window:?}");
            }
        }
    }
}

/// A header without its checksum, and the offsets of its fields with the times of slices.
struct Times {
    body: Vec<u8>,
    forgotten: usize,
    latest: usize,
    /// The offset of the time when each slice is forgotten.
    ends: Vec<usize>,
    is_rolling: bool,
}

impl Times {
    fn of(filter: &Filter) -> Times {
        let (body, latest) = (body(filter), filter.time_of_change().to_le_bytes());
        let latest = body.windows(8).position(|field| field == latest).expect("the time of the last change");
        let slices = filter.windowed().expect("a filter that forgets").slices();
        let ends = (0..slices.remembered().len()).map(|slice| latest + 32 + 24 * slice).collect();
        Times { body, forgotten: latest - 8, latest, ends, is_rolling: slices.window().rolling }
    }

    fn get(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.body[at..].first_chunk().unwrap())
    }

    fn set(&mut self, at: usize, number: u64) {
        self.body[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }

    /// Moves all times by a number of slices.
    fn shift(&mut self, slices: i64, length: u64) {
        for at in self.ends.iter().copied().chain([self.latest]).collect::<Vec<_>>() {
            self.set(at, self.get(at).wrapping_add_signed(slices * length as i64));
        }
        // A slice of a rolling filter also ends when it is full, so the numbers of slices do not depend on the time.
        if !self.is_rolling {
            self.set(self.forgotten, self.get(self.forgotten).wrapping_add_signed(slices));
        }
    }

    fn load(&self) -> Option<Filter> {
        Header::decode(&with_checksum(&self.body), Origin::Client).ok().map(|header| header.build().unwrap())
    }
}

#[test]
fn slices_in_the_past_and_in_the_future_load_and_those_that_are_out_of_order_do_not() {
    for window in [window(1000, 8), Window { rolling: true, ..window(1000, 8) }] {
        let mut filter = windowed(EXACT, 1000, Growth::Fixed, window);
        for step in 0..8 {
            insert(&mut filter, &(step * 10..step * 10 + 10).collect::<Vec<_>>(), START + step * 125, None);
        }
        let (items, now) = (filter.len(), filter.time_of_change());
        let edited = |edit: &dyn Fn(&mut Times)| {
            let mut times = Times::of(&filter);
            edit(&mut times);
            times.load()
        };
        assert_eq!(edited(&|_| ()).expect("an unchanged header").len_at(now), items);
        let unsound: [&dyn Fn(&mut Times); 6] = [
            &|times| {
                let (one, other) = (times.get(times.ends[1]), times.get(times.ends[2]));
                times.set(times.ends[1], other);
                times.set(times.ends[2], one);
            },
            &|times| times.set(times.ends[7], u64::MAX),
            &|times| times.set(times.ends[7], times.get(times.ends[7]) + 100_000),
            &|times| times.set(times.ends[0], times.get(times.ends[7]) + 1),
            &|times| times.set(times.latest, times.get(times.latest) - 100_000),
            &|times| times.set(times.latest, u64::MAX),
        ];
        for (number, edit) in unsound.into_iter().enumerate() {
            assert!(edited(edit).is_none(), "{window:?}, edit {number}");
        }
        // Items in past slices are forgotten. If slices are in the future, the filter's time stands still, and nothing
        // is forgotten.
        for (slices, expected) in [(-1_000_000, 0), (-20, 0), (20, items), (1_000_000_000, items)] {
            let mut shifted = edited(&|times| times.shift(slices, 125)).expect("slices in order");
            assert_eq!(shifted.len_at(now), expected, "{window:?} {slices}");
            assert_eq!(insert(&mut shifted, &[1000], now, None), [Some(Answer::New)]);
            assert!(contains(&shifted, 1000, now) && contains(&shifted, 1000, now + 999), "{window:?} {slices}");
            assert!(whole(&through_a_file(&shifted)) == whole(&shifted));
        }
    }
}

/// The offsets of fields in a header.
const FLAGS: usize = 32 + 17;
const FORGOTTEN: usize = 32 + 24;
const SLICES: usize = 32 + 64;

/// Returns a filter whose header has other numbers at these offsets, or `None` if the header is rejected.
fn forged(filter: &Filter, numbers: &[(usize, u64)]) -> Option<Filter> {
    let mut body = body(filter);
    numbers.iter().for_each(|&(at, number)| body[at..at + 8].copy_from_slice(&number.to_le_bytes()));
    Header::decode(&with_checksum(&body), Origin::Client).ok().map(|header| header.build().unwrap())
}

#[test]
fn slices_and_flags_that_no_filter_has_are_rejected() {
    let numbers: Vec<_> = (0..50).collect();
    let mut rolling = windowed(EXACT, 80, Growth::Fixed, Window { rolling: true, ..window(0, 8) });
    insert(&mut rolling, &numbers, START, None);
    for (at, number, is_sound) in [
        (SLICES, u64::MAX, true),
        (SLICES, START, false),
        (SLICES + 8, 10, true),
        (SLICES + 8, 11, false),
        (FORGOTTEN, 1 << 51, true),
        (FORGOTTEN, 1 << 52, false),
    ] {
        assert_eq!(forged(&rolling, &[(at, number)]).is_some(), is_sound, "{number} at {at}");
    }
    let mut fixed = windowed(EXACT, 80, Growth::Fixed, window(1000, 8));
    insert(&mut fixed, &numbers, START, None);
    for (items, is_sound) in [(0, true), (1, false)] {
        assert_eq!(forged(&fixed, &[(SLICES + 16, items)]).is_some(), is_sound, "{items} items in a table too many");
    }
    let growing = windowed(EXACT, 80, by(2), window(1000, 8));
    for (filter, flags, is_sound) in [(&fixed, 1, true), (&growing, 1, true), (&growing, 2, false), (&fixed, 4, false)]
    {
        let mut body = body(filter);
        body[FLAGS] = flags;
        let decoded = Header::decode(&with_checksum(&body), Origin::Client);
        assert_eq!(decoded.is_ok(), is_sound, "{flags}");
    }
}

/// One more item or slice could not be read from a file.
#[test]
fn a_filter_with_as_many_items_or_slices_as_any_takes_no_more() {
    const MAX: u64 = 1 << 48;
    let mut growing = windowed(EXACT, 100, by(2), window(1000, 8));
    insert(&mut growing, &[1], START, None);
    let mut rolling = windowed(EXACT, 80, Growth::Fixed, Window { rolling: true, ..window(0, 8) });
    insert(&mut rolling, &(0..10).collect::<Vec<_>>(), START, None);
    for (filter, at, number, has_room) in [
        // Another slice has an item, too.
        (&growing, SLICES + 8, MAX - 2, true),
        (&growing, SLICES + 8, MAX - 1, false),
        (&rolling, FORGOTTEN, (1 << 52) - 2, true),
        (&rolling, FORGOTTEN, (1 << 52) - 1, false),
    ] {
        let mut filter = forged(filter, &[(at, number)]).unwrap();
        let added = insert(&mut filter, &[1000], START, None);
        assert_eq!(added, [has_room.then_some(Answer::New)], "{number} at {at}");
        assert!(whole(&through_a_file(&filter)) == whole(&filter));
    }
}
