//! The library's predictions as WebAssembly, for the calculator of the site.
//!
//! The page calls [`predict`] with numbers, and reads the [`Answer`] from the module's memory. All numbers are floating
//! point, as in JavaScript: they hold whole numbers up to `2^53`.

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroU64};

use oxbloom_filter::internals::{
    CreateParams, CuckooSpec, DEFAULT_STORED_EXPANSION, ErrorRate, Growth, KindParams, Window,
};
use oxbloom_filter::{Error, Filter, Prediction};

/// The size of a [`Filter`] without what it points to, on servers. In WebAssembly, pointers are smaller.
const FILTER_BYTES: u64 = 80;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Filter>() as u64 == FILTER_BYTES);

/// The status of a filter that holds the items.
pub const FITS: f64 = 0.0;
/// The status of a filter that rejects some of the items.
pub const IS_FULL: f64 = 1.0;
/// The status of a filter that cannot be created.
pub const IS_IMPOSSIBLE: f64 = 2.0;

/// The prediction for a filter. The page reads its fields in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    /// [`FITS`], [`IS_FULL`] or [`IS_IMPOSSIBLE`]. If it does not fit, the other fields are 0.
    pub status: f64,
    /// The bytes that the filter requests.
    pub memory: f64,
    /// The expected false-positive rate.
    pub false_positive_rate: f64,
    /// 1 if the memory depends on the hashes of the items, and 0 if it is exact.
    pub is_estimate: f64,
    /// The number of bits that an item sets, or of slots that it fills.
    pub probes: f64,
    /// The number of blocks, or 0 if the filter has none.
    pub blocks: f64,
    /// The size of a block in bytes.
    pub block_bytes: f64,
    /// The number of blocks that an item touches.
    pub blocks_per_item: f64,
}

thread_local! {
    static LAST_ANSWER: Cell<Answer> = Cell::default();
}

/// Predicts a filter with `items` distinct items. With a window, that many items come in each window.
///
/// `kind` is a position in the page's list of kinds; `slices` are those of a window.
#[unsafe(no_mangle)]
pub extern "C" fn predict(kind: u32, error_rate: f64, capacity: f64, slices: u32, items: f64) -> *const Answer {
    let prediction = params(kind, error_rate, capacity, slices).and_then(|params| params.predict(items as u64));
    LAST_ANSWER.with(|last| {
        last.set(answer(prediction));
        last.as_ptr().cast_const()
    })
}

fn answer(prediction: Result<Prediction, Error>) -> Answer {
    match prediction {
        Ok(prediction) => {
            let shape = prediction.shape;
            Answer {
                status: FITS,
                memory: (prediction.memory + FILTER_BYTES - size_of::<Filter>() as u64) as f64,
                false_positive_rate: prediction.false_positive_rate,
                is_estimate: f64::from(u8::from(prediction.is_estimate)),
                probes: prediction.probes.into(),
                blocks: shape.map_or(0.0, |shape| shape.blocks as f64),
                block_bytes: shape.map_or(0.0, |shape| f64::from(shape.words) * 8.0),
                blocks_per_item: shape.map_or(0.0, |shape| shape.blocks_per_item.into()),
            }
        }
        Err(Error::Full) => Answer { status: IS_FULL, ..Answer::default() },
        Err(_) => Answer { status: IS_IMPOSSIBLE, ..Answer::default() },
    }
}

/// Returns the parameters of a filter, as a command would set them.
fn params(kind: u32, error_rate: f64, capacity: f64, slices: u32) -> Result<CreateParams, Error> {
    let doubling = Growth::By(NonZeroU32::MIN.saturating_add(1));
    let seed = 0;
    // The length of a window does not change the size.
    let window = |length, rolling| {
        let slices = u8::try_from(slices).unwrap_or(u8::MAX);
        let window = Window { length, slices, refresh: false, rolling };
        KindParams::Windowed { seed, window }
    };
    let length = Some(NonZeroU64::MIN);
    let spec = CuckooSpec::new(Growth::By(NonZeroU32::MIN), 2, 20)?;
    let (kind, growth) = match kind {
        0 => (KindParams::Native { seed }, doubling),
        1 => (KindParams::Native { seed }, Growth::Fixed),
        2 => (KindParams::Counting { seed }, doubling),
        3 => (KindParams::Counting { seed }, Growth::Fixed),
        4 => (KindParams::NativeCuckoo { seed, spec }, doubling),
        5 => (window(length, false), doubling),
        6 => (window(length, false), Growth::Fixed),
        7 => (window(None, true), Growth::Fixed),
        8 => (window(length, true), Growth::Fixed),
        9 => (KindParams::Classic { stored_expansion: DEFAULT_STORED_EXPANSION }, doubling),
        10 => (KindParams::Classic { stored_expansion: DEFAULT_STORED_EXPANSION }, Growth::Fixed),
        _ => (KindParams::Cuckoo { spec }, doubling),
    };
    let error_rate = ErrorRate::new(error_rate).ok_or(Error::InvalidErrorRate)?;
    let capacity = NonZeroU64::new(capacity as u64).ok_or(Error::InvalidCapacity)?;
    Ok(CreateParams { error_rate, capacity, growth, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_sizes_of_filters() {
        for kind in 0..12 {
            let params = params(kind, 0.01, 1000.0, 15).unwrap();
            let filter = Filter::create(params, &mut |_bytes| true).unwrap();
            let answer = answer(params.predict(0));
            assert_eq!((answer.status, answer.memory), (FITS, filter.memory_usage() as f64), "kind {kind}");
        }
    }

    #[test]
    fn filters_that_do_not_fit_have_a_status() {
        let status = |kind, capacity, items| answer(params(kind, 0.01, capacity, 15).unwrap().predict(items)).status;
        assert_eq!(status(1, 1000.0, 1001), IS_FULL);
        assert_eq!(status(1, 1e18, 1), IS_IMPOSSIBLE);
    }
}
