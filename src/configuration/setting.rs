//! A setting: its names, the values that it can have, and the one that it has.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::server::Arg;
use oxbloom_filter::internals::ErrorRate;

pub(super) struct Setting {
    /// Our own name.
    pub name: &'static CStr,
    /// The name in Redis 8, if RedisBloom has this setting.
    pub redis_8: Option<&'static CStr>,
    /// The name in valkey-bloom, if it has this setting and the name is not our own.
    pub valkey: Option<&'static CStr>,
    pub values: Values,
    /// The number, the bits of the fraction, or the index of the word.
    value: AtomicI64,
    /// The value that the setting had before the server applied its configuration file.
    pub before_file: AtomicI64,
    /// True if the setting was last set by valkey-bloom's name.
    pub is_set_by_valkey: AtomicBool,
    /// The function that is called after each new value.
    on_set: fn(),
}

/// The values that a setting can have.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// The numbers above 0 and below 1.
    Fraction,
    /// The whole numbers from a minimum to a maximum.
    Number(i64, i64),
    /// The numbers of bytes, which may be given as `1gb`.
    Size,
    /// One of several words.
    Word(&'static [&'static CStr]),
}

/// Declares settings: for each a function that returns its value, by another that gets the setting, and the setting.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr, $setting:expr;)*) => {
        #[allow(non_camel_case_types)]
        enum Index {
            $($name,)*
        }

        pub(in crate::configuration) static SETTINGS: [Setting; [$(Index::$name),*].len()] = [$($setting),*];

        $($(#[$doc])*
        pub(crate) fn $name() -> $type {
            let value: fn(&Setting) -> $type = $value;
            value(&SETTINGS[Index::$name as usize])
        })*
    };
}
pub(super) use settings;

impl Setting {
    const fn new(name: &'static CStr, values: Values, default: i64) -> Setting {
        Setting {
            name,
            redis_8: None,
            valkey: None,
            values,
            value: AtomicI64::new(default),
            before_file: AtomicI64::new(default),
            is_set_by_valkey: AtomicBool::new(false),
            on_set: || (),
        }
    }

    pub(super) const fn fraction(name: &'static CStr, default: f64) -> Setting {
        Setting::new(name, Values::Fraction, default.to_bits() as i64)
    }

    pub(super) const fn number(name: &'static CStr, default: i64, min: i64, max: i64) -> Setting {
        Setting::new(name, Values::Number(min, max), default)
    }

    pub(super) const fn size(name: &'static CStr, default: i64) -> Setting {
        Setting::new(name, Values::Size, default)
    }

    /// Returns a choice between words. The first is the default.
    pub(super) const fn word(name: &'static CStr, words: &'static [&'static CStr]) -> Setting {
        Setting::new(name, Values::Word(words), 0)
    }

    /// Returns a choice between `yes`, the default, and `no`.
    pub(super) const fn yes_or_no(name: &'static CStr) -> Setting {
        Setting::word(name, &[c"yes", c"no"])
    }

    pub(super) const fn redis_8(self, name: &'static CStr) -> Setting {
        Setting { redis_8: Some(name), ..self }
    }

    pub(super) const fn valkey(self, name: &'static CStr) -> Setting {
        Setting { valkey: Some(name), ..self }
    }

    pub(super) const fn on_set(self, on_set: fn()) -> Setting {
        Setting { on_set, ..self }
    }

    /// Returns true if this is our own name or valkey-bloom's.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.name.to_bytes() == name.as_bytes() || self.valkey.is_some_and(|known| known.to_bytes() == name.as_bytes())
    }

    pub(super) fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Sets a value that [`parse`](Self::parse) returned, or that the server has checked.
    pub(super) fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
        (self.on_set)();
    }

    pub(super) fn rate(&self) -> ErrorRate {
        // Only such rates are ever set.
        ErrorRate::new(f64::from_bits(self.get() as u64)).unwrap_or(const { ErrorRate::new(0.01).unwrap() })
    }

    /// Returns the choice from values in the order of the words.
    pub(super) fn of<T: Copy, const N: usize>(&self, values: [T; N]) -> T {
        // Only the index of a word is ever set.
        values[usize::try_from(self.get()).unwrap_or(0).min(N - 1)]
    }

    pub(super) fn is_yes(&self) -> bool {
        self.of([true, false])
    }

    /// Parses a value. The error says which values there are.
    pub(super) fn parse(&self, value: Arg) -> Result<i64, String> {
        let (parsed, expected) = match self.values {
            Values::Fraction => {
                let bits = value.float().and_then(ErrorRate::new).map(|rate| rate.get().to_bits() as i64);
                (bits, "a number above 0 and below 1".to_owned())
            }
            Values::Number(min, max) => {
                let number = value.integer().filter(|number| (min..=max).contains(number));
                (number, format!("a whole number from {min} to {max}"))
            }
            Values::Size => {
                let expected = format!("a whole number from 0 to {}, or a size such as 512mb or 4gb", i64::MAX);
                (size(&value.lossy()), expected)
            }
            Values::Word(words) => {
                let expected: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                (value.index_in(words).map(|index| index as i64), expected.join(" or "))
            }
        };
        parsed.ok_or(format!("must be {expected}"))
    }

    /// Shows the value, as the server's configuration file has it.
    pub(super) fn shown(&self) -> String {
        match self.values {
            Values::Fraction => self.rate().get().to_string(),
            Values::Number(..) | Values::Size => self.get().to_string(),
            Values::Word(words) => {
                let word = usize::try_from(self.get()).ok().and_then(|index| words.get(index));
                word.map_or(String::new(), |word| word.to_string_lossy().into_owned())
            }
        }
    }
}

/// Parses a number of bytes as the server's own settings do: `100`, `100mb`, `1gb`; `1m` is a million, `1mb` is 2^20.
fn size(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 8] = [
        ("", 1),
        ("b", 1),
        ("k", 1000),
        ("kb", 1 << 10),
        ("m", 1_000_000),
        ("mb", 1 << 20),
        ("g", 1_000_000_000),
        ("gb", 1 << 30),
    ];
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    number.parse::<i64>().ok()?.checked_mul(*factor)
}
