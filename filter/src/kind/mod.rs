//! The kinds of filters. A kind is a folder: what it stores and what it does.
//!
//! [`Kind`] names a kind, and [`KindParams`] has the parameters that only it has. [`KindFilter`] is a filter of one
//! kind, and [`AnyFilter`] of any. To add a kind, write its folder and its encoding (a file of `codec/` or
//! `codec/own/`), and add its row to `kinds!` and to the encodings (`codec/mod.rs` or `codec/own/mod.rs`). The module
//! needs the option that chooses the kind, and its parameters (both in `commands/bloom/options.rs`).

pub(crate) mod chain;
pub(crate) mod classic;
pub(crate) mod counting;
pub(crate) mod cuckoo;
pub(crate) mod native;
pub(crate) mod valkey;
pub(crate) mod windowed;

use std::cmp::Reverse;
use std::ffi::CStr;
use std::num::NonZeroU64;

use crate::array::{Mover, Stop, try_box};
use crate::error::{Error, Interrupted, MergeError, Mismatch};
use crate::hash::{Hash, Hasher};
use crate::item_count::MergeOp;
use crate::layer::LayerInfo;
use crate::memory::{Admit, try_vec};
use crate::prediction::Prediction;
use crate::spec::{ErrorRate, Growth, InsertOptions, OwnSpec, Parameters};
use crate::table::Position;
use crate::window::Window;
use cuckoo::CuckooSpec;

/// A counting filter that stands for a cuckoo filter.
pub type NativeCuckooFilter = counting::CountingFilter<counting::figures::CuckooFigures>;

/// The parameters of a new filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreateParams {
    /// The false-positive rate of the whole filter, however far it grows.
    pub error_rate: ErrorRate,
    /// The number of distinct items that fit before the filter grows or rejects items.
    pub capacity: NonZeroU64,
    /// The behaviour of the full filter.
    pub growth: Growth,
    /// The kind of the filter.
    pub kind: KindParams,
}

impl CreateParams {
    /// Returns the parameters of a filter of our own.
    fn own(&self, seed: u64) -> OwnSpec {
        OwnSpec { seed, error_rate: self.error_rate, growth: self.growth }
    }
}

/// Declares the kinds of filters: for each, the parameters that only it has, its name, its filter, and how
/// [`AnyFilter`] holds the filter. `$d` is a dollar, for the macro in the macro.
macro_rules! kinds {
    ($d:tt $(
        $(#[$doc:meta])*
        $kind:ident { $($(#[$parameter_doc:meta])* $parameter:ident: $type:ty,)* }
            = $name:literal, $filter:ty, in $holder:ty;
    )*) => {
        /// The kinds of filters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// The kinds, in the order of their discriminants.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Returns the name of the kind, in the form in which a module hands texts to its server.
            pub const fn name(self) -> &'static CStr {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// Returns true if filters of this kind count how often they contain each item, and can remove items.
            #[inline]
            pub const fn counts(self) -> bool {
                match self {
                    $(Kind::$kind => <$filter as KindFilter>::COUNTS,)*
                }
            }

            /// Returns true if copies of filters of this kind can follow them: only additions change what they contain.
            pub const fn can_be_followed(self) -> bool {
                match self {
                    $(Kind::$kind => <$filter as KindFilter>::CAN_BE_FOLLOWED,)*
                }
            }

            /// Returns the reason if filters of this kind cannot be merged.
            pub(crate) const fn unmerged(self) -> Option<MergeError> {
                match self {
                    $(Kind::$kind => <$filter as KindFilter>::UNMERGED,)*
                }
            }

        }

        /// A kind, with the parameters that only it has.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum KindParams {
            $($(#[$doc])* $kind { $($(#[$parameter_doc])* $parameter: $type,)* },)*
        }

        /// A filter of any kind.
        pub enum AnyFilter {
            $($(#[$doc])* $kind($holder),)*
        }

        impl AnyFilter {
            /// Returns the kind of the filter.
            #[inline]
            pub fn kind(&self) -> Kind {
                match self {
                    $(AnyFilter::$kind(_) => Kind::$kind,)*
                }
            }

            /// Lets a mover move the allocation that holds the filter, if there is one.
            pub(crate) fn relocate_holder(&mut self, mover: Mover<'_>) {
                match self {
                    $(AnyFilter::$kind(holder) => Holder::<$filter>::relocate(holder, mover),)*
                }
            }
        }

        impl CreateParams {
            /// Predicts the filter that would be created, with `items` distinct items that were counted as new. For a
            /// filter with a window, `items` come in each window, in a steady stream; the filter also remembers the
            /// items of one more slice.
            ///
            /// # Errors
            ///
            /// [`Error::Full`] if the filter does not grow and has no room for the items; [`Error::OutOfMemory`] or
            /// [`Error::CannotGrow`] if no filter can hold them.
            pub fn predict(&self, items: u64) -> Result<Prediction, Error> {
                match self.kind {
                    $(KindParams::$kind { $($parameter),* } => <$filter>::predict(self, ($($parameter,)*), items),)*
                }
            }

            /// Creates an empty filter.
            pub(crate) fn create(&self, admit: Admit<'_>) -> Result<AnyFilter, Error> {
                match self.kind {
                    $(KindParams::$kind { $($parameter),* } => {
                        <$filter>::create(self, ($($parameter,)*), admit)?.into_any()
                    })*
                }
            }
        }

        $(impl Contained for $filter {
            fn of(filter: &AnyFilter) -> Option<&$filter> {
                if let AnyFilter::$kind(filter) = filter { Some(filter) } else { None }
            }

            fn into_any(self) -> Result<AnyFilter, Error> {
                Holder::hold(self).map(AnyFilter::$kind)
            }
        })*

        /// Evaluates an expression for a filter of any kind.
        macro_rules! for_each_kind {
            ($d any:expr, $d filter:ident => $d body:expr) => {
                match $d any {
                    $($crate::kind::AnyFilter::$kind($d filter) => $d body,)*
                }
            };
        }
        pub(crate) use for_each_kind;
    };
}

// The filters of some kinds are boxed, so that plain filters are small.
kinds! { $
    /// Bits in blocks, which are cache lines except in small filters; and a table if the filter has grown.
    Native {
        /// The seed of the hash. Filters with the same shape and seed have the same bits for the same items. Anyone who
        /// knows it can craft collisions.
        seed: u64,
    } = c"native", native::NativeFilter, in native::NativeFilter;
    /// Fingerprints with their counts, in a table, so that items can be removed.
    Counting {
        /// The same as for native filters.
        seed: u64,
    } = c"counting", counting::CountingFilter, in Box<counting::CountingFilter>;
    /// The same, with the parameters of the cuckoo filter that it stands for.
    NativeCuckoo {
        /// The same as for native filters.
        seed: u64,
        /// The parameters of the cuckoo filter.
        spec: CuckooSpec,
    } = c"native_cuckoo", NativeCuckooFilter, in Box<NativeCuckooFilter>;
    /// Fingerprints with the slices in which they expire, in tables.
    Windowed {
        /// The same as for native filters.
        seed: u64,
        /// The time after which they expire. A rolling filter does not grow.
        window: Window,
    } = c"windowed", windowed::WindowedFilter, in Box<windowed::WindowedFilter>;
    /// RedisBloom's chain of layers of bits.
    Classic {
        /// The expansion that is stored if the filter does not grow.
        stored_expansion: u32,
    } = c"classic", classic::ClassicFilter, in classic::ClassicFilter;
    /// RedisBloom's chain of layers of fingerprints, from which items can be removed.
    Cuckoo {
        /// The parameters of its layers.
        spec: CuckooSpec,
    } = c"classic_cuckoo", cuckoo::CuckooFilter, in Box<cuckoo::CuckooFilter>;
    /// valkey-bloom's chain of layers of bits.
    Valkey {
        /// The seed of the hash. Anyone who knows it can craft collisions.
        seed: [u8; valkey::SEED_BYTES],
        /// The ratio of the error rates of successive layers.
        tightening: ErrorRate,
    } = c"valkey", valkey::ValkeyFilter, in Box<valkey::ValkeyFilter>;
}

/// Items to insert, and their results: see [`Filter::insert_hashes`](crate::Filter::insert_hashes).
pub struct Insertion<'a> {
    pub hashes: &'a [Hash],
    pub new: &'a mut [bool],
    pub renewed: &'a mut [bool],
    pub options: &'a InsertOptions,
}

/// How [`AnyFilter`] holds a filter: as it is, or in a box.
trait Holder<F>: Sized {
    fn hold(filter: F) -> Result<Self, Error>;

    /// Lets a mover move the allocation of the holder, if it has one.
    fn relocate(&mut self, _mover: Mover<'_>) {}
}

impl<F> Holder<F> for F {
    fn hold(filter: F) -> Result<F, Error> {
        Ok(filter)
    }
}

impl<F> Holder<F> for Box<F> {
    fn hold(filter: F) -> Result<Box<F>, Error> {
        try_box(filter)
    }

    fn relocate(&mut self, mover: Mover<'_>) {
        mover.move_box(self);
    }
}

/// A filter that [`AnyFilter`] holds.
pub trait Contained: Sized {
    /// Returns the filter, if it is of this kind.
    fn of(filter: &AnyFilter) -> Option<&Self>;

    /// Returns the filter as one of any kind.
    fn into_any(self) -> Result<AnyFilter, Error>;
}

/// A filter of one kind.
///
/// Methods with a default are abilities that not every kind has. Times are in milliseconds since 1970, and only matter
/// to filters that forget. 0 stands for the time of the last change.
pub trait KindFilter: Contained {
    /// True if filters count how often they contain each item, and can remove items.
    const COUNTS: bool = false;
    /// True if [copies](crate::Filter::insert_changes) can follow filters of this kind.
    const CAN_BE_FOLLOWED: bool = false;
    /// The reason if filters of this kind cannot be merged. Others implement all methods about merges.
    const UNMERGED: Option<MergeError> = None;

    /// The values of the parameters that only this kind has, in their order in [`KindParams`].
    type Params;

    /// Creates an empty filter.
    fn create(params: &CreateParams, own: Self::Params, admit: Admit<'_>) -> Result<Self, Error>;
    /// Predicts a filter: see [`CreateParams::predict`].
    fn predict(params: &CreateParams, own: Self::Params, items: u64) -> Result<Prediction, Error>;

    /// Returns the parameters with which the filter was created.
    fn parameters(&self) -> Parameters;
    /// Returns the hash function.
    fn hasher(&self) -> Hasher<'_>;
    /// Returns an empty filter with the same parameters and shape.
    fn empty_copy(&self, admit: Admit<'_>) -> Result<Self, Error>;
    /// Returns a copy that shares nothing.
    fn try_clone(&self) -> Result<Self, Error>;

    /// Returns the number of items that fit before the filter grows again, or is full.
    fn capacity(&self) -> u64;
    /// Returns the number of items that were new when they were inserted, without those that were removed or forgotten.
    fn items(&self) -> u64;
    /// Returns the number of items at a time.
    fn items_at(&self, _now: u64) -> u64 {
        self.items()
    }
    /// Returns true if the number of items is an estimate, or `None` if the filter does not store this.
    fn is_estimate(&self) -> Option<bool> {
        None
    }
    /// Returns the bytes requested from the allocator, those of the [`Filter`](crate::Filter) included.
    fn memory_usage(&self) -> usize;
    /// Returns the approximate number of allocations.
    fn num_allocations(&self) -> usize;
    /// Returns true if many additions allocate a little memory each. Otherwise, few additions allocate much.
    fn grows_in_small_steps(&self) -> bool {
        !self.grows_by_layers()
    }
    /// Returns true if the filter grows by whole layers, whose sizes may be beyond all addresses.
    fn grows_by_layers(&self) -> bool {
        false
    }
    /// Returns the number of layers.
    fn num_layers(&self) -> usize {
        1
    }
    /// Describes the layers, oldest first.
    fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_>;
    /// Returns the fraction of bits that are set, or of slots that are filled, in what grows.
    fn fill(&self) -> f64;
    /// Returns the estimated false-positive rate at a time.
    fn false_positive_rate_at(&self, now: u64) -> f64;

    /// Prefetches the memory that any operation on the items reads first.
    fn prefetch(&self, hashes: &[Hash]);
    /// Prefetches the memory that a look-up of the item reads. Waits for no large part of it.
    fn look_ahead(&self, hash: Hash);
    /// Returns true if the item may be in the filter at a time.
    fn contains_at(&self, hash: Hash, now: u64) -> bool;
    /// Sets `found[i]` to whether the item of `hashes[i]` may be in the filter at a time.
    fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], now: u64);
    /// Inserts items: see [`Filter::insert_hashes`](crate::Filter::insert_hashes).
    fn insert_hashes(&mut self, items: Insertion<'_>, admit: Admit<'_>) -> Result<(), Interrupted>;
    /// Sets `counts[i]` to the number of times that the filter contains the item of `hashes[i]`: see
    /// [`Filter::count`](crate::Filter::count).
    fn count_hashes(&self, _hashes: &[Hash], _counts: &mut [u64]) -> Result<(), Error> {
        Err(Error::NotCounting)
    }
    /// Removes one occurrence of the item of each hash. Sets `removed[i]` to whether item `i` had one.
    fn remove_hashes(&mut self, _hashes: &[Hash], _removed: &mut [bool]) -> Result<(), Error> {
        Err(Error::NotCounting)
    }

    /// Counts a new item whose bits or entry the filter already has: see
    /// [`Filter::insert_changes`](crate::Filter::insert_changes).
    fn count_known(&mut self) {}

    /// Folds the filter: see [`Filter::fold`](crate::Filter::fold).
    fn fold(&mut self, _capacity: u64) -> Result<u64, Error> {
        Err(Error::CannotFold)
    }

    /// Returns the bytes of the blocks, and then the capacity, of a filter that a merge may fold. All filters of a
    /// merge get the size of the smallest. Of filters with as many blocks, this is the one with the most capacity.
    fn size_to_fold(&self) -> (u64, Reverse<u64>) {
        (0, Reverse(0))
    }
    /// Returns true if the other filter has the same size, or can be folded to it.
    fn is_sized_like(&self, other: &Self) -> bool {
        self.parameters().capacity == other.parameters().capacity
    }
    /// Returns the last part of what must be equal for a merge: true if both store the same for the same items, once
    /// the other one is folded.
    fn is_shaped_like(&self, _other: &Self) -> bool {
        false
    }
    /// Returns true if both filters grow in the same way.
    fn grows_like(&self, other: &Self) -> bool {
        self.parameters().expansion.is_some() == other.parameters().expansion.is_some()
    }
    /// Returns an error if the filter cannot be intersected with others.
    fn check_intersection(&self) -> Result<(), MergeError> {
        if self.num_layers() > 1 { Err(MergeError::IntersectedLayers) } else { Ok(()) }
    }
    /// Merges filters, at least one, into a new one. They do not [differ](Self::mismatch) from the smallest. A union
    /// adds the counts of each as often as the number says.
    fn merged(_sources: &[(&Self, u64)], _op: MergeOp, _admit: Admit<'_>) -> Result<Self, Error> {
        Err(const { Self::UNMERGED.expect("no merge") }.into())
    }
    /// Merges filters into this one, as for [`merged`](Self::merged). Returns true if it changed.
    fn merge(&mut self, _sources: &[(&Self, u64)], _op: MergeOp, _admit: Admit<'_>) -> Result<bool, Error> {
        Err(const { Self::UNMERGED.expect("no merge") }.into())
    }
    /// Returns the bytes of the filter's tables, which a merge replaces.
    fn table_bytes(&self) -> usize {
        0
    }

    /// Lets a mover move the allocations, from `start` on, until `should_stop` returns true. Returns where to continue,
    /// or `None` at the end.
    fn relocate(&mut self, start: Position, mover: Mover<'_>, should_stop: Stop<'_>) -> Option<Position>;

    /// Returns the first parameter that must be equal for a merge, and is not. The other filter must not be
    /// [smaller](Self::size_to_fold).
    fn mismatch(&self, other: &AnyFilter) -> Option<Mismatch> {
        let Some(other) = Self::of(other) else { return Some(Mismatch::Layout) };
        let agreements = [
            (Mismatch::Layout, self.hasher().is_like(other.hasher())),
            (Mismatch::ErrorRate, self.parameters().error_rate == other.parameters().error_rate),
            (Mismatch::Capacity, self.is_sized_like(other)),
            (Mismatch::Expansion, self.grows_like(other)),
            (Mismatch::Seed, self.hasher() == other.hasher()),
            (Mismatch::Size, self.is_shaped_like(other)),
        ];
        agreements.into_iter().find(|(_, agrees)| !agrees).map(|(mismatch, _)| mismatch)
    }
    /// Merges filters of this kind into a new one: see [`merged`](Self::merged).
    fn merged_any(&self, sources: &[(&AnyFilter, u64)], op: MergeOp, admit: Admit<'_>) -> Result<AnyFilter, Error> {
        Self::merged(&of_kind::<Self>(sources)?, op, admit)?.into_any()
    }
    /// Merges filters of this kind into the filter: see [`merge`](Self::merge).
    fn merge_any(&mut self, sources: &[(&AnyFilter, u64)], op: MergeOp, admit: Admit<'_>) -> Result<bool, Error> {
        self.merge(&of_kind::<Self>(sources)?, op, admit)
    }
}

fn of_kind<'a, K: KindFilter>(sources: &[(&'a AnyFilter, u64)]) -> Result<Vec<(&'a K, u64)>, Error> {
    let mut filters = try_vec(sources.len())?;
    filters.extend(sources.iter().filter_map(|&(filter, times)| Some((K::of(filter)?, times))));
    Ok(filters)
}
