//! The kinds of filters.

pub(crate) mod classic;
pub(crate) mod counting;
pub(crate) mod native;
pub(crate) mod prefetch_hint;
pub(crate) mod windowed;
