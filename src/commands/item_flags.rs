//! A flag for each item of a command.

use crate::admission;
use crate::reply_error::Error;
use crate::server::{Args, Context};
use oxbloom_filter::internals::BATCH;

/// One flag per item, for the reply and the replicas. Results are buffered because the array's length is only known
/// once an insert has failed or not. Up to [`BATCH`] items need no allocation.
pub(super) struct ItemFlags {
    few: [bool; BATCH],
    many: Vec<bool>,
}

impl ItemFlags {
    /// Returns a flag for each of `items`, all false.
    pub(super) fn new(ctx: &Context, items: Args) -> Result<ItemFlags, Error> {
        let mut many = Vec::new();
        if items.len() > BATCH {
            many = admission::try_vec(ctx, items.len())?;
            many.resize(items.len(), false);
        }
        Ok(ItemFlags { few: [false; BATCH], many })
    }

    /// Returns the flags, of which there may be more than items.
    pub(super) fn as_mut_slice(&mut self) -> &mut [bool] {
        if self.many.is_empty() { &mut self.few } else { &mut self.many }
    }
}
