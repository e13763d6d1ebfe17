//! x86-64. All processors have SSE2. Those with AVX2 and BMI2 (Intel's since 2013, AMD's since 2015) execute another
//! version of each function, which is chosen at run time. BMI2 selects a bit in one instruction, `pdep`: look-ups in
//! tables take 35 to 45 ns instead of 55 to 100. AMD's processors before Zen 3 (2020) take up to 300 cycles for it
//! (Fog, "Instruction tables"), so there is a version without.

use std::arch::x86_64::*;
use std::sync::Mutex;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use super::Processor;
use crate::hash::Hash;
use crate::line::Line;

/// The operations of every processor of this architecture.
#[derive(Clone, Copy)]
pub(crate) struct Baseline;

impl Processor for Baseline {
    #[inline(always)]
    fn prefetch<T>(address: *const T) {
        // SAFETY: a prefetch is a hint; it does not fault whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
}

/// Compiles a function for processors with AVX2 and BMI2. Without a function, returns true if this is such a processor.
macro_rules! avx2 {
    ($($function:tt)*) => {
        $crate::arch::x86_64::with_features! { ["avx2", "bmi1", "bmi2", "lzcnt", "popcnt"] $($function)* }
    };
}
pub(crate) use avx2;

macro_rules! with_features {
    ([$($feature:tt),*]) => { $(is_x86_feature_detected!($feature))&&* };
    ([$($feature:tt),*] $($function:tt)*) => { #[target_feature($(enable = $feature),*)] $($function)* };
}
pub(crate) use with_features;

/// The operations of processors with AVX2 and BMI2, and fast `pdep` and `pext` if `PDEP`. Only functions that are
/// compiled for these processors can call [`with_avx2`], which is the only way to get it.
#[derive(Clone, Copy)]
struct Avx2<const PDEP: bool>;

avx2! {
    /// Returns the processor of a version with AVX2 and BMI2.
    #[inline]
    pub(crate) fn with_avx2<const PDEP: bool>() -> impl Processor {
        Avx2::<PDEP>
    }
}

impl<const PDEP: bool> Processor for Avx2<PDEP> {
    const TESTS_BEFORE_SETTING: bool = true;

    #[inline(always)]
    fn are_set(line: &Line, hash: Hash, probes: u8) -> bool {
        // SAFETY: an `Avx2` only comes from `with_avx2`, so this processor has AVX2 and BMI2.
        unsafe { are_set(line, hash.second, probes) }
    }

    #[inline(always)]
    fn select(word: u64, rank: u32) -> u32 {
        debug_assert!(rank < word.count_ones(), "bit {rank} of {word:x}");
        if !PDEP {
            return Baseline::select(word, rank);
        }
        // SAFETY: as above.
        unsafe { _pdep_u64(1 << rank, word) }.trailing_zeros()
    }

    #[inline(always)]
    fn deposit(bits: u64, mask: u64) -> u64 {
        if !PDEP {
            return Baseline::deposit(bits, mask);
        }
        // SAFETY: as above.
        unsafe { _pdep_u64(bits, mask) }
    }

    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        if !PDEP {
            return Baseline::extract(word, mask);
        }
        // SAFETY: as above.
        unsafe { _pext_u64(word, mask) }
    }
}

avx2! {
    /// Implements [`Processor::are_set`], given the word of hash with the positions.
    ///
    /// Both halves of the line are in registers, and each lane selects the word with its bit. This takes a third of the
    /// instructions of a loop over the positions, which the compiler does not vectorize. On a filter in the cache, a
    /// look-up takes 3 ns instead of 8, without the hash.
    #[inline]
    fn are_set(line: &Line, word: u64, probes: u8) -> bool {
        // Positions 0 to 3 are in the lowest bits of the lanes of `first`, and 4 to 6 in those of `second`.
        let word = _mm256_set1_epi64x(word as i64);
        let first = _mm256_srlv_epi64(word, _mm256_setr_epi64x(0, 9, 18, 27));
        let second = _mm256_srlv_epi64(word, _mm256_setr_epi64x(36, 45, 54, 63));
        // In lanes of 32 bits, the order is 0, 1, 4, 5, 2, 3, 6. The last lane is not used.
        let positions = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
        let positions = _mm256_castps_si256(positions);
        // Bits 5 to 7 of a position choose a word in each half of the line, and bit 8 chooses the half.
        let (words, _) = line.as_chunks();
        let [low, high] = [0, 4].map(|half| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|index| i64::from_le_bytes(words[half + index]));
            _mm256_setr_epi64x(a, b, c, d)
        });
        let words = _mm256_srli_epi32::<5>(positions);
        let of_low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, words));
        let of_high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, words));
        let choice = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(positions));
        let chosen = _mm256_castps_si256(_mm256_blendv_ps(of_low, of_high, choice));
        // The bit becomes the sign of its lane.
        let places = _mm256_andnot_si256(positions, _mm256_set1_epi32(31));
        let signs = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sllv_epi32(chosen, places)));
        /// The lanes of the first positions, given their number.
        const LANES: [i32; 8] = [0, 1, 0b11, 0b1_0011, 0b11_0011, 0b11_0111, 0b11_1111, 0b111_1111];
        let lanes = LANES[usize::from(probes & 7)];
        signs & lanes == lanes
    }
}

/// The version that calls execute. Later versions need more features.
static VERSION: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const BASELINE: u8 = 1;
pub(crate) const AVX2_WITHOUT_PDEP: u8 = 2;
pub(crate) const AVX2: u8 = 3;

/// Returns the version that calls execute, which this processor can execute.
#[inline(always)]
pub(crate) fn version() -> u8 {
    match VERSION.load(Relaxed) {
        // Most processors have this version, so it takes one comparison.
        AVX2 => AVX2,
        UNKNOWN => choose(),
        version => version,
    }
}

/// Chooses the best version that this processor can execute.
#[cold]
fn choose() -> u8 {
    let version = match avx2!() {
        true if has_slow_pdep() => AVX2_WITHOUT_PDEP,
        true => AVX2,
        false => BASELINE,
    };
    VERSION.store(version, Relaxed);
    version
}

/// Returns true for AMD's processors before Zen 3, and for those of Hygon, which are like them.
fn has_slow_pdep() -> bool {
    let vendor = __cpuid(0);
    let signature = __cpuid(1).eax;
    // The family is in bits 8 to 11. If these are full, bits 20 to 27 are added (AMD64 Architecture Programmer's Manual,
    // volume 3, appendix E).
    let family = (signature >> 8 & 0xF) + (signature >> 20 & 0xFF);
    [*b"Auth", *b"Hygo"].contains(&vendor.ebx.to_le_bytes()) && family < 0x19
}

/// Implements [`super::with_each_version`].
pub(super) fn with_each_version(mut test: impl FnMut()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    for version in BASELINE..=choose() {
        VERSION.store(version, Relaxed);
        test();
    }
}
