//! The internal interface, for the module, the benchmarks and the tests.
//!
//! It may change with any version, and so may the methods of [`Filter`](crate::Filter) that the documentation hides.

pub use crate::arch::with_each_version;
pub use crate::array::{Array, Bytes, Mover};
pub use crate::batch::{BATCH, HashedBatch};
pub use crate::error::Interrupted;
pub use crate::following::CHANGE_BYTES;
pub use crate::hash::{Hash, Hasher};
pub use crate::item_count::{ItemCount, MAX_ITEMS, MergeOp};
pub use crate::kind::classic::ClassicFilter;
pub use crate::kind::counting::CountingFilter;
pub use crate::kind::cuckoo::{CuckooFilter, CuckooSpec};
pub use crate::kind::native::NativeFilter;
pub use crate::kind::native::blocked_layer::BlockedLayer;
pub use crate::kind::valkey::{FIXED_SEED, SEED_BYTES, ValkeyFilter, ValkeySpec};
pub use crate::kind::windowed::WindowedFilter;
pub use crate::kind::windowed::slices::Slice;
pub use crate::kind::{AnyFilter, CreateParams, Kind, KindFilter, KindParams, NativeCuckooFilter};
pub use crate::layer::LayerInfo;
pub use crate::memory::{Admit, try_vec};
pub use crate::spec::{DEFAULT_STORED_EXPANSION, ErrorRate, Growth, InsertOptions, OnDuplicate, Parameters};
pub use crate::table::{AddOutcome, Addressing, END, Payload, Position, SliceAddition, Stamps, Table, end_of};
pub use crate::window::{DEFAULT_SLICES, Window};

/// Filters as bytes.
pub mod codec {
    pub use crate::codec::*;
}

/// The limits and the sizes of classic filters.
pub mod classic {
    use crate::kind::chain::ChainSpec;
    pub use crate::kind::chain::probes::MAX_BITS;
    use crate::kind::chain::probes::Probes;
    pub use crate::kind::chain::spec::MAX_PROBES;
    pub use crate::kind::classic::probes_for;
    use crate::kind::classic::{ClassicProbes, ClassicSpec};

    pub const MAX_LAYERS: usize = ClassicSpec::MAX_LAYERS;
    pub const MAX_LOOKUP_PROBES: u32 = ClassicProbes::MAX_OF_LOOKUP;
    pub const FILTER_BYTES: usize = ClassicSpec::FILTER_BYTES;
    pub const LAYER_BYTES: usize = ClassicSpec::LAYER_BYTES;
}

/// The limits of filters.
pub mod limits {
    pub use crate::kind::cuckoo::{MAX_BUCKET_SIZE, MAX_EXPANSION};
    pub use crate::table::MAX_ENTRY_COUNT as MAX_COUNT;
    pub use crate::window::{MAX_LENGTH, SLICES};

    pub const MAX_CUCKOO_LAYERS: usize = crate::kind::cuckoo::CuckooSpec::MAX_LAYERS;
    pub const MAX_VALKEY_LAYERS: usize = <crate::kind::valkey::ValkeySpec as crate::kind::chain::ChainSpec>::MAX_LAYERS;
}

/// The shapes of layers.
pub mod sizing {
    pub use crate::sizing::*;
}
