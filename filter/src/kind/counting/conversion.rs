//! Converts a cuckoo filter into a counting filter that stands for it.
//!
//! No item is needed: what a cuckoo filter stores of an item is the first bits of the item's hash in a table (see
//! [`hash::cuckoo`](crate::hash::cuckoo)). A layer stores the more of them the larger it is, as the slots of a growing
//! table do, the larger the table was when they were added. So all items stay, with their counts. Those that come later
//! have longer fingerprints, so the error rate hardly rises any more, and falls when the old items are removed.

use super::CountingFilter;
use super::figures::CuckooFigures;
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::ItemCount;
use crate::kind::cuckoo::{CuckooFilter, CuckooSpec};
use crate::kind::{Kind, NativeCuckooFilter};
use crate::memory::{Admit, request};
use crate::spec::OwnSpec;
use crate::table::{Payload, Table};

impl NativeCuckooFilter {
    /// Converts a cuckoo filter. The new filter grows, with an expansion of 1 if the cuckoo filter did not. Calls
    /// `admit` with the bytes that it takes, as they become known; `admit` may reject them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] or [`Error::CannotGrow`].
    pub fn converted(cuckoo: &CuckooFilter, admit: Admit<'_>) -> Result<NativeCuckooFilter, Error> {
        let error_rate = cuckoo.spec().error_rate();
        let spec = CuckooSpec { expansion: cuckoo.spec().expansion.max(1), ..*cuckoo.spec() };
        let mut table = Table::growing(error_rate.get(), Payload::Count)?;
        let stored = cuckoo.chain().iter().map(|layer| layer.fingerprints().count() as u64).sum();
        request((size_of::<NativeCuckooFilter>() + table.allocated()) as u64, admit)?;
        table.split_for_entries(stored, admit)?;
        for layer in cuckoo.chain() {
            let log_buckets = layer.spec().buckets.ilog2();
            for (fingerprint, bucket) in layer.fingerprints() {
                let (hash, length) = Hash::of_stored(fingerprint, bucket, log_buckets);
                table.add_prefix(hash, length, &mut *admit)?;
            }
        }
        table.set_counts(ItemCount::new(table.entries().min(stored), true), stored);
        let figures = CuckooFigures { spec, removals: cuckoo.removals(), is_converted: true };
        let spec = OwnSpec { seed: 0, error_rate, growth: spec.growth() };
        Ok(CountingFilter { spec, capacity: cuckoo.parameters().capacity, table, history: 0, figures })
    }
}
