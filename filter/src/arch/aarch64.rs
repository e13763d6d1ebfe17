//! aarch64.

use super::Processor;

/// The operations of every processor of this architecture.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

impl Processor for Baseline {
    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a prefetch is a hint; it does not fault whatever the address. `prfm` reads no register but its
        // address and writes none.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }
}
