//! The names of the module and of its commands on this server, which arguments of `loadmodule` can change.
//!
//! By default, the names are RedisBloom's, which every client knows, and a server cannot load both modules. With the
//! argument `prefix OX`, everything named `bf`, `BF.…` or `CF.…` is named `oxbf`, `OXBF.…` or `OXCF.…`, and the module
//! can run beside RedisBloom or valkey-bloom. Only the names change. The code and its texts have the usual names:
//! [`family`](crate::family) spells those of commands, and [`named`] replaces those in texts.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::{fmt, ptr};

use crate::ffi::call;
use crate::server::Args;

/// The names on this server.
pub(crate) struct Names {
    /// The module's name, in lower case.
    pub module: Cow<'static, CStr>,
    /// The part before the usual names of commands, in upper case.
    pub prefix: String,
}

impl Names {
    const MAX_PREFIX: usize = 16;
    const MAX_MODULE: usize = 32;

    /// Reads the names from the arguments of `loadmodule`: pairs of which the others are settings. Errors are messages
    /// for the log.
    pub(crate) fn read(args: Args) -> Result<Names, String> {
        if let Some(single) = args.chunks(2).find(|pair| pair.len() < 2) {
            let name = single.at(0).lossy();
            return Err(format!("argument '{name}' has no value: write a value after each name"));
        }
        let value = |name: &str, max: usize| {
            let pair = args.chunks(2).filter(|pair| pair.at(0).is(name)).last();
            pair.map(|pair| checked(name, &pair.at(1).lossy(), max)).transpose()
        };
        let prefix = value("prefix", Names::MAX_PREFIX)?;
        let module = value("name", Names::MAX_MODULE)?;
        if module.is_some() && prefix.is_none() {
            return Err("argument 'name' needs 'prefix' too: clients expect BF.ADD in a module named 'bf'".to_owned());
        }
        let prefix = prefix.unwrap_or_default();
        let usual = USUAL.module.to_string_lossy();
        let module = module.unwrap_or_else(|| format!("{prefix}{usual}")).to_ascii_lowercase();
        let module = CString::new(module).map_err(|error| error.to_string())?;
        Ok(Names { module: module.into(), prefix: prefix.to_ascii_uppercase() })
    }

    /// Returns a prefix that was read from a file, if a module can have it.
    pub(crate) fn checked_prefix(prefix: &[u8]) -> Option<String> {
        checked("prefix", str::from_utf8(prefix).ok()?, Names::MAX_PREFIX).ok()
    }

    /// Returns true if the commands have the usual names.
    pub(crate) fn are_usual(&self) -> bool {
        self.prefix.is_empty()
    }

    /// Returns the message for the log if another module has the name.
    pub(crate) fn taken(&self) -> String {
        let module = self.module.to_string_lossy();
        if self.are_usual() {
            return format!(
                "another module named '{module}' is already loaded (oxbloom, RedisBloom or valkey-bloom); load only one, or load \
                 oxbloom with the argument 'prefix OX', see 'Servers that bring their own module' in docs/operating.md"
            );
        }
        format!(
            "another module named '{module}' is already loaded: choose another prefix, or a name with the argument 'name'"
        )
    }

    /// Returns the name, and what it means for other modules, for the log.
    pub(crate) fn meaning(&self) -> String {
        let Names { module, prefix } = self;
        let module = module.to_string_lossy();
        if self.are_usual() {
            return format!("'{module}', so RedisBloom and valkey-bloom, which have the same name, cannot be loaded");
        }
        format!(
            "'{module}' with the commands {prefix}BF.* and {prefix}CF.*, beside any module named 'bf': that module's filters are its \
             own, and classic filters created here have other data types (nothing to do)"
        )
    }

    /// Gives the module these names. The commands get theirs from [`family::spell`](crate::family::spell).
    pub(crate) fn set(self) {
        NAMES.set(self);
    }

    /// Returns true if an argument of `loadmodule` is one of those that [`read`](Self::read) reads.
    pub(crate) fn are_read_from(argument: &str) -> bool {
        ["prefix", "name"].iter().any(|name| argument.eq_ignore_ascii_case(name))
    }
}

/// Returns the value of an argument if it can be a part of all names.
fn checked(name: &str, value: &str, max: usize) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=max).contains(&value.len()) && value.bytes().all(is_allowed) {
        return Ok(value.to_owned());
    }
    let shown = value.escape_debug();
    Err(format!("argument '{name}' must be 1 to {max} letters, digits, '_' or '-', not '{shown}'"))
}

static USUAL: Names = Names { module: Cow::Borrowed(c"bf"), prefix: String::new() };

static NAMES: LoadTime<Names> = LoadTime::new(&USUAL);

/// True from a successful load on. A server that loads the same file twice gets the same code and statics.
static IN_USE: AtomicBool = AtomicBool::new(false);

pub(crate) fn names() -> &'static Names {
    NAMES.get()
}

/// Returns true if the server has the module already, under the names of [`names`].
pub(crate) fn are_in_use() -> bool {
    // SAFETY: the name ends with a NUL.
    let is_taken = || unsafe { call!(RedisModule_IsModuleNameBusy(names().module.as_ptr())) } != 0;
    IN_USE.load(Ordering::Relaxed) && is_taken()
}

/// Keeps the names for good, since the module is loaded.
pub(crate) fn keep() {
    IN_USE.store(true, Ordering::Relaxed);
}

/// Shows a text with the names on this server in place of the usual ones.
pub(crate) fn named(text: &str) -> Named<'_> {
    Named(text)
}

/// A text with the names on this server. See [`named`].
pub(crate) struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SETTING: &str = "bf.";
        const USUAL: [&str; 3] = ["BF.", "CF.", SETTING];
        let Names { module, prefix } = names();
        let mut rest = self.0;
        while let Some(start) = USUAL.iter().filter_map(|usual| rest.find(usual)).min() {
            f.write_str(&rest[..start])?;
            let (usual, after) = rest[start..].split_at(SETTING.len());
            if usual == SETTING {
                write!(f, "{}.", module.to_str().unwrap_or_default())?;
            } else {
                write!(f, "{prefix}{usual}")?;
            }
            rest = after;
        }
        f.write_str(rest)
    }
}

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
