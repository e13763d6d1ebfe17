//! The internal interface, for the module, the benchmarks and the tests.
//!
//! It may change with any version, and so may the methods of [`Filter`](crate::Filter) that the documentation hides.

pub use crate::array::{Array, Bytes};
pub use crate::batch::{BATCH, HashedBatch};
pub use crate::classic::ClassicFilter;
pub use crate::counting::{CountingFilter, OnDuplicate};
pub use crate::error::Interrupted;
pub use crate::filter::Content;
pub use crate::hash::{Hash, Hasher};
pub use crate::item_count::{ItemCount, MAX_ITEMS, MergeOp};
pub use crate::layer::LayerInfo;
pub use crate::layer::blocked::BlockedLayer;
pub use crate::layer::classic::{self, ClassicLayer};
pub use crate::memory::{Admit, try_vec};
pub use crate::native::NativeFilter;
pub use crate::plan::Plan;
pub use crate::prefetch_hint::PrefetchHint;
pub use crate::spec::{CreateParams, ErrorRate, FilterKind, Growth, Layout};
pub use crate::table::{Addressing, END, Payload, Position, Stamps, Table, end_of};
pub use crate::window::{DEFAULT_SLICES, MAX_LENGTH, SLICES, Slice, Window};
pub use crate::windowed::{InsertOptions, WindowedFilter};

/// Filters as bytes.
pub mod codec {
    pub use crate::codec::{chunk, classic, header, packing, *};
}

/// The shapes of layers.
pub mod sizing {
    pub use crate::sizing::*;
}
