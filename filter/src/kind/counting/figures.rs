//! The figures that a counting filter stores besides its items.
//!
//! ```text
//!  none, or of a cuckoo filter
//!  0   bucket size, maximum of iterations, expansion (u16 each), 1 if it was converted, else 0 (u16)
//!  8   removals (u64)
//! ```

use super::{CountingFilter, Figures};
use crate::error::{DecodeError, Error};
use crate::hash::Hasher;
use crate::kind::CreateParams;
use crate::kind::cuckoo::CuckooSpec;
use crate::memory::Admit;
use crate::prediction::Prediction;
use crate::spec::{Growth, OwnSpec};
use crate::stored::fields::Fields;

/// A counting filter that has none.
impl Figures for () {
    const CODE: u8 = 2;
    const BYTES: usize = 0;

    fn encode(&self, _header: &mut Vec<u8>) {}

    fn decode(_fields: &mut Fields<'_>, _growth: Growth) -> Result<(), DecodeError> {
        Ok(())
    }

    fn cleared(self) {}

    fn count_removal(&mut self) {}

    fn hasher(&self, seed: u64) -> Hasher<'static> {
        Hasher::Xxh3 { seed }
    }
}

/// The figures of the cuckoo filter that a counting filter stands for. Only clients that ask for them see them.
#[derive(Clone, Copy)]
pub struct CuckooFigures {
    /// The parameters of the cuckoo filter.
    pub spec: CuckooSpec,
    /// The number of removals.
    pub removals: u64,
    /// True if the filter was converted from a cuckoo filter, and so has its hash function.
    pub is_converted: bool,
}

impl Figures for CuckooFigures {
    const CODE: u8 = 4;
    const BYTES: usize = 16;

    fn encode(&self, header: &mut Vec<u8>) {
        let CuckooSpec { bucket_size, max_iterations, expansion } = self.spec;
        let numbers = [bucket_size, max_iterations, expansion, self.is_converted.into()];
        header.extend_from_slice(numbers.map(u16::to_le_bytes).as_flattened());
        header.extend_from_slice(&self.removals.to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>, growth: Growth) -> Result<CuckooFigures, DecodeError> {
        let [bucket_size, max_iterations, expansion] = [fields.u16()?, fields.u16()?, fields.u16()?];
        let is_converted = match fields.u16()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Corrupt),
        };
        let spec = CuckooSpec { bucket_size, max_iterations, expansion };
        let figures = CuckooFigures { spec, removals: fields.u64()?, is_converted };
        (spec.is_sound() && spec.growth() == growth).then_some(figures).ok_or(DecodeError::Corrupt)
    }

    fn cleared(self) -> CuckooFigures {
        CuckooFigures { removals: 0, ..self }
    }

    fn count_removal(&mut self) {
        self.removals = self.removals.saturating_add(1);
    }

    fn hasher(&self, seed: u64) -> Hasher<'static> {
        if self.is_converted { Hasher::ConvertedCuckoo } else { Hasher::Xxh3 { seed } }
    }
}

/// Returns the parameters of a filter. Its growth is that of the cuckoo filter, which rounds the expansion up: filters
/// that were asked for the one or the other expansion are the same.
fn own(params: &CreateParams, seed: u64, spec: CuckooSpec) -> OwnSpec {
    OwnSpec { growth: spec.growth(), ..params.own(seed) }
}

impl CountingFilter<CuckooFigures> {
    /// Creates an empty filter, as [`CountingFilter::create`] does. It has room for as many items as the cuckoo filter
    /// would have slots.
    pub fn create(
        params: &CreateParams,
        seed: u64,
        spec: CuckooSpec,
        admit: Admit<'_>,
    ) -> Result<CountingFilter<CuckooFigures>, Error> {
        let capacity = spec.first(params.capacity.get())?.checked_slots().ok_or(Error::OutOfMemory)?;
        let figures = CuckooFigures { spec, removals: 0, is_converted: false };
        CountingFilter::with_figures(own(params, seed, spec), capacity, figures, admit)
    }

    /// Predicts a filter with `items` items. See [`FilterBuilder::predict`](crate::FilterBuilder::predict).
    pub fn predict(params: &CreateParams, seed: u64, spec: CuckooSpec, items: u64) -> Result<Prediction, Error> {
        let capacity = spec.first(params.capacity.get())?.checked_slots().ok_or(Error::OutOfMemory)?;
        CountingFilter::<CuckooFigures>::predict_at(own(params, seed, spec), capacity, items)
    }

    /// Returns the figures of the cuckoo filter.
    pub fn figures(&self) -> &CuckooFigures {
        &self.figures
    }

    /// Returns the number of buckets that the cuckoo filter was created with.
    pub fn buckets(&self) -> u64 {
        self.capacity / u64::from(self.figures.spec.bucket_size)
    }
}
