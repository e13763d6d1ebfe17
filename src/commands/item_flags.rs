//! One flag for each item of a command.

use crate::admission;
use crate::reply_error::Error;
use crate::server::Context;
use oxbloom_filter::internals::BATCH;

/// One flag per item, for the reply and for replication. Results are buffered because the length of the reply is only
/// known after the last insert. Up to [`BATCH`] items need no allocation.
pub(super) struct ItemFlags {
    /// The flags of at most [`BATCH`] items.
    inline: [bool; BATCH],
    /// The flags of more items.
    allocated: Vec<bool>,
}

impl ItemFlags {
    /// Returns a flag for each of `count` items, all false.
    pub(super) fn new(ctx: &Context, count: usize) -> Result<ItemFlags, Error> {
        let mut allocated = Vec::new();
        if count > BATCH {
            allocated = admission::try_vec(ctx, count)?;
            allocated.resize(count, false);
        }
        Ok(ItemFlags { inline: [false; BATCH], allocated })
    }

    /// Returns the flags. There may be more of them than items.
    pub(super) fn as_mut_slice(&mut self) -> &mut [bool] {
        if self.allocated.is_empty() { &mut self.inline } else { &mut self.allocated }
    }
}
