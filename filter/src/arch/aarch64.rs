//! aarch64. All processors have NEON.

use std::arch::aarch64::*;
use std::mem::transmute;

use super::Processor;
use crate::hash::Hash;
use crate::line::Line;

/// The operations of every processor of this architecture.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

impl Processor for Baseline {
    const TESTS_BEFORE_SETTING: bool = true;

    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a prefetch is a hint; it does not fault whatever the address. `prfm` reads no register but its
        // address and writes none.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
        }
    }

    #[inline(always)]
    fn are_set(line: &Line, hash: Hash, probes: u8) -> bool {
        // SAFETY: every processor of this architecture has NEON.
        unsafe { are_set(line, hash.second, probes) }
    }
}

/// Implements [`Processor::are_set`], given the word of hash with the positions.
///
/// The line is in four registers, which one instruction takes for a table: it looks up the bytes of eight positions.
/// This takes a third of the instructions of a loop over the positions.
#[inline]
#[target_feature(enable = "neon")]
fn are_set(line: &Line, word: u64, probes: u8) -> bool {
    /// The positions are 9 bits each. A negative number of bits shifts to the right. The last lane is not used.
    const SHIFTS: [[i64; 2]; 4] = [[0, -9], [-18, -27], [-36, -45], [-54, -63]];
    let word = vdupq_n_u64(word);
    let [first, second, third, fourth] = SHIFTS.map(|shifts| {
        // SAFETY: both types have 16 bytes, and all values are valid for them.
        vreinterpretq_u32_u64(vshlq_u64(word, unsafe { transmute::<[i64; 2], int64x2_t>(shifts) }))
    });
    // Every second lane has a position in its lowest bits: first of 32 bits, then of 16.
    let low = vreinterpretq_u16_u32(vuzp1q_u32(first, second));
    let high = vreinterpretq_u16_u32(vuzp1q_u32(third, fourth));
    let positions = vuzp1q_u16(low, high);
    // Bits 3 to 8 of a position choose a byte of the line, and bits 0 to 2 choose its bit.
    let places = vand_u8(vshrn_n_u16::<3>(positions), vdup_n_u8(63));
    // SAFETY: a line has 64 bytes.
    let bytes = vqtbl4_u8(unsafe { vld1q_u8_x4(line.as_ptr()) }, places);
    let bits = vshl_u8(vdup_n_u8(1), vreinterpret_s8_u8(vand_u8(vmovn_u16(positions), vdup_n_u8(7))));
    let set = vget_lane_u64::<0>(vreinterpret_u64_u8(vtst_u8(bytes, bits)));
    let lanes = (1 << (8 * u32::from(probes & 7))) - 1;
    set & lanes == lanes
}
