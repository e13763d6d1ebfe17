//! A setting: its names, its range and its value.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};

use oxbloom_filter::internals::ErrorRate;

/// The settings of a part of the module.
pub(super) struct Settings {
    pub(super) fractions: &'static [&'static Fraction],
    pub(super) numbers: &'static [&'static Number],
    pub(super) choices: &'static [&'static Choice],
}

/// The names of a setting.
#[derive(Clone, Copy)]
pub(super) struct Naming {
    pub(super) own: &'static CStr,
    /// The name in Redis 8, if RedisBloom has this setting.
    pub(super) redis_8: Option<&'static CStr>,
    /// The name in valkey-bloom, if it has this setting and the name is not our own.
    pub(super) valkey: Option<&'static CStr>,
}

impl Naming {
    pub(super) const fn new(own: &'static CStr) -> Naming {
        Naming { own, redis_8: None, valkey: None }
    }

    pub(super) const fn redis_8(self, name: &'static CStr) -> Naming {
        Naming { redis_8: Some(name), ..self }
    }

    pub(super) const fn valkey(self, name: &'static CStr) -> Naming {
        Naming { valkey: Some(name), ..self }
    }

    /// Returns true if this is our own name or valkey-bloom's.
    pub(super) fn has(&self, name: &str) -> bool {
        [Some(self.own), self.valkey].into_iter().flatten().any(|known| known.to_bytes() == name.as_bytes())
    }
}

/// The state of valkey-bloom's name of a setting. Values are bits.
pub(super) struct SecondName {
    /// True if the setting was last set by this name.
    pub(super) is_used: AtomicBool,
    /// The value that the setting had before the server applied its configuration file.
    pub(super) before_file: AtomicU64,
}

impl SecondName {
    const fn new() -> SecondName {
        SecondName { is_used: AtomicBool::new(false), before_file: AtomicU64::new(0) }
    }
}

/// A setting that is a whole number.
pub(super) struct Number {
    pub(super) naming: Naming,
    pub(super) min: i64,
    pub(super) max: i64,
    /// True if the value may be a size such as `1gb`.
    pub(super) is_size: bool,
    pub(super) value: AtomicI64,
    pub(super) second_name: SecondName,
}

impl Number {
    pub(super) const fn new(naming: Naming, default: i64, min: i64, max: i64) -> Number {
        let value = AtomicI64::new(default);
        Number { naming, min, max, is_size: false, value, second_name: SecondName::new() }
    }

    /// Returns a setting whose value may be a size such as `1gb`.
    pub(super) const fn size(naming: Naming, default: i64) -> Number {
        Number { is_size: true, ..Number::new(naming, default, 0, i64::MAX) }
    }

    /// Returns a setting that has the same name in Redis 8.
    pub(super) const fn of_redis_8(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number::new(Naming::new(name).redis_8(name), default, min, max)
    }

    pub(super) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// A setting that is a number above 0 and below 1.
pub(super) struct Fraction {
    pub(super) naming: Naming,
    /// The bits of the value.
    pub(super) value: AtomicU64,
    pub(super) second_name: SecondName,
}

impl Fraction {
    pub(super) const RANGE: &str = "must be a number above 0 and below 1";

    pub(super) const fn new(naming: Naming, default: ErrorRate) -> Fraction {
        Fraction { naming, value: AtomicU64::new(default.get().to_bits()), second_name: SecondName::new() }
    }

    pub(super) fn get(&self) -> ErrorRate {
        // Only such rates are ever set.
        ErrorRate::new(f64::from_bits(self.value.load(Ordering::Relaxed)))
            .unwrap_or(const { ErrorRate::new(0.01).unwrap() })
    }

    pub(super) fn set(&self, value: ErrorRate) {
        self.value.store(value.get().to_bits(), Ordering::Relaxed);
    }
}

/// A setting whose value is one of several words.
pub(super) struct Choice {
    pub(super) name: &'static CStr,
    pub(super) words: &'static [&'static CStr],
    /// The index of the chosen word.
    pub(super) value: AtomicI32,
    /// Tells other parts of the module the index.
    pub(super) on_set: fn(i32),
}

impl Choice {
    /// Returns a choice of which the default is the first word.
    pub(super) const fn new(name: &'static CStr, words: &'static [&'static CStr]) -> Choice {
        Choice { name, words, value: AtomicI32::new(0), on_set: |_| () }
    }

    /// Returns a choice of which the default is `yes`.
    pub(super) const fn yes_or_no(name: &'static CStr) -> Choice {
        Choice::new(name, &[c"yes", c"no"])
    }

    pub(super) fn is_yes(&self) -> bool {
        self.of([true, false])
    }

    /// Returns the choice from values in the order of the words.
    pub(super) fn of<T: Copy, const N: usize>(&self, values: [T; N]) -> T {
        // Only the index of a word is ever set.
        values[usize::try_from(self.get()).unwrap_or(0).min(N - 1)]
    }

    pub(super) fn get(&self) -> i32 {
        self.value.load(Ordering::Relaxed)
    }

    pub(super) fn word(&self) -> &'static CStr {
        usize::try_from(self.get()).ok().and_then(|index| self.words.get(index)).copied().unwrap_or_default()
    }

    /// Chooses a word, ignoring case. Returns `None` if it is not one of the words.
    pub(super) fn set_word(&self, word: &[u8]) -> Option<()> {
        let index = self.words.iter().position(|known| word.eq_ignore_ascii_case(known.to_bytes()))?;
        self.set(i32::try_from(index).ok()?);
        Some(())
    }

    pub(super) fn set(&self, index: i32) {
        self.value.store(index, Ordering::Relaxed);
        (self.on_set)(index);
    }
}
