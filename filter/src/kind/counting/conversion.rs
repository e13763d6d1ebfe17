//! Converts a cuckoo filter into a counting filter that stands for it.
//!
//! No item is needed: what a cuckoo filter stores of an item is the first bits of the item's hash in a table (see
//! [`hash::cuckoo`](crate::hash::cuckoo)). A layer stores the more of them the larger it is, as the slots of a growing
//! table do, the larger the table was when they were added. So all items stay, with their counts. Those that come later
//! have longer fingerprints, so the error rate hardly rises any more, and falls when the old items are removed.
//!
//! A filter stores equal bits of many items, since only the size of a layer says how many bits there are. Added one by
//! one, each item would be copied into all quotients that it matches. So the items of all layers of a size are sorted,
//! and equal ones become one entry before the table gets them. To need little memory, a pass over the layers takes
//! only some of the fingerprints, whose items are next to each other in the table.

use std::ops::RangeInclusive;

use super::CountingFilter;
use super::figures::CuckooFigures;
use crate::error::Error;
use crate::hash::Hash;
use crate::hash::cuckoo::FINGERPRINTS;
use crate::item_count::ItemCount;
use crate::kind::cuckoo::cuckoo_layer::CuckooLayer;
use crate::kind::cuckoo::{CuckooFilter, CuckooSpec};
use crate::kind::{KindFilter, NativeCuckooFilter};
use crate::memory::{Admit, request, try_vec};
use crate::spec::OwnSpec;
use crate::table::{Payload, Table};

/// The number of slots of the filter for each item in the buffer. The buffer is an eighth as large as the filter, and
/// there are at most as many passes as this.
const SLOTS_PER_BUFFERED: u64 = 64;

/// The least number of items in the buffer.
const MIN_BUFFERED: u64 = 1 << 15;

impl NativeCuckooFilter {
    /// Converts a cuckoo filter. The new filter grows, with an expansion of 1 if the cuckoo filter did not.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] or [`Error::CannotGrow`].
    pub fn converted(cuckoo: &CuckooFilter, admit: Admit<'_>) -> Result<NativeCuckooFilter, Error> {
        let error_rate = cuckoo.spec().error_rate();
        let spec = CuckooSpec { expansion: cuckoo.spec().expansion.max(1), ..*cuckoo.spec() };
        let mut table = Table::growing(error_rate.get(), Payload::Count)?;
        request((size_of::<NativeCuckooFilter>() + table.allocated()) as u64, admit)?;
        let layers = cuckoo.chain();
        let stored = layers.iter().map(|layer| layer.fingerprints(1..=u8::MAX).count() as u64).sum::<u64>();
        // The layers cannot tell more items apart than their bits have values.
        let bits = layers.last().map_or(0, |layer| *Hash::stored_lengths(log_buckets(layer)).start());
        table.split_for_entries(stored.min((1 << bits) - 1), admit)?;
        let buffered = stored.min(MIN_BUFFERED.max(cuckoo.capacity() / SLOTS_PER_BUFFERED));
        let mut buffer = try_vec(buffered as usize)?;
        let passes = stored.div_ceil(buffered.max(1));
        let first = |pass: u64| (1 + pass * FINGERPRINTS / passes) as u8;
        for layers in layers.chunk_by(|one, other| one.spec() == other.spec()) {
            for pass in 0..passes {
                let fingerprints = first(pass)..=first(pass + 1).wrapping_sub(1);
                add_layers(&mut table, layers, fingerprints, &mut buffer, &mut *admit)?;
            }
        }
        table.set_counts(ItemCount::new(table.entries().min(stored), true), stored);
        let figures = CuckooFigures { spec, removals: cuckoo.removals(), is_converted: true };
        let spec = OwnSpec { seed: 0, error_rate, growth: spec.growth() };
        Ok(CountingFilter { spec, capacity: cuckoo.parameters().capacity, table, history: 0, figures })
    }
}

/// Returns the number of bits that choose a bucket of a layer.
fn log_buckets(layer: &CuckooLayer) -> u32 {
    layer.spec().buckets.ilog2()
}

/// Adds what layers of one size store of items with these fingerprints, whenever the buffer is full.
fn add_layers(
    table: &mut Table,
    layers: &[CuckooLayer],
    fingerprints: RangeInclusive<u8>,
    buffer: &mut Vec<u64>,
    admit: Admit<'_>,
) -> Result<(), Error> {
    let log_buckets = layers.first().map_or(0, log_buckets);
    for length in Hash::stored_lengths(log_buckets) {
        let stored = layers.iter().flat_map(|layer| layer.fingerprints(fingerprints.clone()));
        let stored = stored.map(|(fingerprint, bucket)| Hash::of_stored(fingerprint, bucket, log_buckets));
        for (hash, _) in stored.filter(|&(_, of_stored)| of_stored == length) {
            if buffer.len() == buffer.capacity() {
                table.add_prefixes(buffer, length, &mut *admit)?;
                buffer.clear();
            }
            buffer.push(hash.first);
        }
        table.add_prefixes(buffer, length, &mut *admit)?;
        buffer.clear();
    }
    Ok(())
}
