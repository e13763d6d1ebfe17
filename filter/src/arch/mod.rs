//! Code that is written for one processor. All of it is here.
//!
//! ```text
//!  generic.rs   Processor: the operations, and how every processor can do them
//!  x86_64.rs    Baseline: SSE2. Avx2: AVX2 and BMI2, if the processor has them; on some, without BMI2's selection
//!  aarch64.rs   Baseline: NEON
//! ```
//!
//! The file of an architecture defines `Baseline`, the operations that all its processors do in a way of their own.
//! Whatever uses an operation is generic over the [`Processor`]. If only some processors can do better,
//! [`versioned!`](versioned) compiles another version for these, and chooses it at run time.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod aarch64;
mod generic;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use aarch64::Baseline;
#[cfg(not(any(all(target_arch = "aarch64", target_endian = "little"), target_arch = "x86_64")))]
pub(crate) use generic::Baseline;
pub(crate) use generic::{Processor, positions};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::Baseline;

/// Defines functions that are compiled for each version, and execute the version for the processor at hand. `$with` has
/// the code, and gets a [`Processor`] as its second argument. It is `inline(always)`, and so is all that it calls and
/// that uses the processor: what is not inlined is compiled for the baseline.
macro_rules! versioned {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)* $(,)?) $(-> $result:ty)?
            = $($with:ident)::+;
    )*) => {$(
        $(#[$attribute])*
        #[inline]
        $visibility fn $name($first: $first_type $(, $arg: $type)*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            $crate::arch::x86_64::avx2! {
                #[inline(never)]
                fn avx2<const PDEP: bool>(first: $first_type $(, $arg: $type)*) $(-> $result)? {
                    $($with)::+(first, $crate::arch::x86_64::with_avx2::<PDEP>() $(, $arg)*)
                }
            }
            #[cfg_attr(target_arch = "x86_64", inline(never))]
            fn baseline(first: $first_type $(, $arg: $type)*) $(-> $result)? {
                $($with)::+(first, $crate::arch::Baseline $(, $arg)*)
            }
            #[cfg(target_arch = "x86_64")]
            match $crate::arch::x86_64::version() {
                // SAFETY: this is a processor with AVX2 and BMI2.
                $crate::arch::x86_64::AVX2 => return unsafe { avx2::<true>($first $(, $arg)*) },
                // SAFETY: as above.
                $crate::arch::x86_64::AVX2_WITHOUT_PDEP => return unsafe { avx2::<false>($first $(, $arg)*) },
                _ => {}
            }
            baseline($first $(, $arg)*)
        }
    )*};
}
pub(crate) use versioned;

/// Calls `test` once for each version that this processor can execute. Meanwhile, all calls execute this version.
pub fn with_each_version(mut test: impl FnMut()) {
    #[cfg(target_arch = "x86_64")]
    x86_64::with_each_version(&mut test);
    #[cfg(not(target_arch = "x86_64"))]
    test();
}

/// Tells the processor to load the cache line of an address into its cache. An invalid address has no effect.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    Baseline::prefetch(address);
}

#[cfg(test)]
mod tests {
    use bitvec::prelude::*;
    use proptest::prelude::*;

    use super::*;
    use crate::hash::Hash;
    use crate::line::Line;
    use crate::probe::PROBES_PER_WORD;

    versioned! {
        fn check(word: u64, mask: u64, line: &Line, probes: u8) = check_with;
    }

    #[inline(always)]
    fn check_with<P: Processor>(word: u64, _: P, mask: u64, line: &Line, probes: u8) {
        let places: Vec<u32> = (0..64).filter(|place| mask >> place & 1 == 1).collect();
        let (deposited, extracted) = (P::deposit(word, mask), P::extract(word, mask));
        assert_eq!(deposited & !mask, 0);
        assert_eq!(extracted.checked_shr(places.len() as u32).unwrap_or(0), 0);
        for (rank, &place) in places.iter().enumerate() {
            assert_eq!(P::select(mask, rank as u32), place);
            assert_eq!(deposited >> place & 1, word >> rank & 1);
            assert_eq!(extracted >> rank & 1, word >> place & 1);
        }

        let hash = Hash { first: 0, second: word };
        let mut expected = true;
        hash.probes().next_positions(probes, |position| expected &= line.view_bits::<Lsb0>()[position]);
        assert_eq!(P::are_set(line, hash, probes), expected);
    }

    proptest! {
        #[test]
        fn every_version_does_the_same(
            word: u64,
            mask: u64,
            cleared in 0..=PROBES_PER_WORD,
            probes in 0..=PROBES_PER_WORD,
        ) {
            // Only an item whose positions were mostly set tells the lanes of a vector apart.
            let mut line = [0; 64];
            let mut positions = Hash { first: 0, second: word }.probes();
            positions.next_positions(PROBES_PER_WORD, |position| line.view_bits_mut::<Lsb0>().set(position, true));
            let mut positions = Hash { first: 0, second: word }.probes();
            positions.next_positions(cleared, |_| ());
            positions.next_positions(1, |position| line.view_bits_mut::<Lsb0>().set(position, false));
            with_each_version(|| check(word, mask, &line, probes));
            check_with(word, generic::Baseline, mask, &line, probes);
        }
    }
}
