//! Counting filters: an item stays present until it has been removed as often as it was added.
//!
//! - [`replies`]: the replies of their commands; [`options`]: COUNTING and NX, and filters that reject removals;
//! - [`room`]: the room and memory that removals make.

mod options;
mod replies;
mod room;
