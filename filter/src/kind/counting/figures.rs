//! The figures that a counting filter stores besides its items.

use super::{CountingFilter, Figures};
use crate::error::Error;
use crate::hash::Hasher;
use crate::kind::CreateParams;
use crate::kind::cuckoo::CuckooSpec;
use crate::spec::OwnSpec;

/// A counting filter that has none.
impl Figures for () {
    type Params = (u64,);

    fn new(params: &CreateParams, (seed,): (u64,)) -> Result<(OwnSpec, u64, ()), Error> {
        Ok((params.own(seed), params.capacity.get(), ()))
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
    pub removals: u64,
    /// True if the filter was converted from a cuckoo filter, and so has its hash function.
    pub is_converted: bool,
}

impl Figures for CuckooFigures {
    type Params = (u64, CuckooSpec);

    /// The filter has room for as many items as the cuckoo filter would have slots. It grows as that one, which rounds
    /// the expansion up: filters that were asked for the one or the other expansion are the same.
    fn new(params: &CreateParams, (seed, spec): Self::Params) -> Result<(OwnSpec, u64, CuckooFigures), Error> {
        let capacity = spec.first(params.capacity.get())?.checked_slots().ok_or(Error::OutOfMemory)?;
        let own = OwnSpec { growth: spec.growth(), ..params.own(seed) };
        Ok((own, capacity, CuckooFigures { spec, removals: 0, is_converted: false }))
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

impl CountingFilter<CuckooFigures> {
    /// Returns the figures of the cuckoo filter.
    pub fn figures(&self) -> &CuckooFigures {
        &self.figures
    }

    /// Returns the number of buckets that the cuckoo filter was created with.
    pub fn buckets(&self) -> u64 {
        self.capacity / u64::from(self.figures.spec.bucket_size)
    }
}
