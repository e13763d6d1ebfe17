//! Reproducible random numbers.

/// A generator of random numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// Creates a generator with a seed that differs from run to run. Prints the seed, so that a failure can be
    /// reproduced.
    pub fn unpredictable() -> Random {
        use std::hash::{BuildHasher as _, RandomState};
        let seed = RandomState::new().hash_one(0);
        println!("random seed {seed}");
        Random(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }

    /// Returns true with a probability of `percent` per cent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
