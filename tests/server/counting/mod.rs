//! Counting filters: an item stays present until it has been removed as often as it was added, also on replicas and
//! after restarts.
//!
//! - [`replies`]: the replies of their commands; [`options`]: COUNTING and NX, and filters that reject removals;
//! - [`counts`]: counts of items, however high; [`occurrences`]: the same item, added and removed many times;
//! - [`room`]: the room and memory that removals make;
//! - [`copying`]: BF.SCANDUMP and BF.LOADCHUNK between writes.

mod copying;
mod counts;
mod occurrences;
mod options;
mod replies;
mod room;
