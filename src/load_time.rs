//! Values that are chosen when the module is loaded, and only read from then on.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that the load of the module may replace.
pub(crate) struct LoadTime<T: 'static>(AtomicPtr<T>);

impl<T> LoadTime<T> {
    pub(crate) const fn new(usual: &'static T) -> LoadTime<T> {
        LoadTime(AtomicPtr::new(ptr::from_ref(usual).cast_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: the pointer is that of `new` or of `set`: a value that nobody changes or frees.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Replaces the value. The previous one is never freed, since it may still be borrowed. A server loads the module
    /// once, and tries that only a few times.
    pub(crate) fn set(&self, value: T) {
        self.0.store(Box::leak(Box::new(value)), Ordering::Release);
    }
}
