//! The settings as parameters of CONFIG.
//!
//! valkey-bloom's names are parameters of their own, since Valkey has no second names for a parameter. CONFIG REWRITE
//! writes each parameter that does not have its default. So one that nobody used shows that it is not set: -1, or
//! nothing.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use super::all;
use super::setting::{Setting, Values};
use crate::callback::catch_panic;
use crate::ffi::{FAILED, OK, RawString, call};
use crate::names::names;
use crate::server::{Arg, Context, OwnedString, Server, feature};

/// True while the server applies its configuration file.
static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// Registers the settings with CONFIG, with their current values as defaults. Then applies the server's configuration
/// file to them. A server that does not offer CONFIG to modules only has the arguments of `loadmodule`.
pub(crate) fn register(ctx: &Context) -> bool {
    if !feature::CONFIG.is_offered() {
        return true;
    }
    IS_LOADING.store(true, Ordering::Relaxed);
    let is_applied = all().all(|setting| setting.register(ctx))
        // SAFETY: the context is alive.
        && unsafe { call!(RedisModule_LoadConfigs(ctx.as_raw())) } == OK;
    IS_LOADING.store(false, Ordering::Relaxed);
    is_applied
}

/// The number that valkey-bloom's name of a setting shows if nobody used it.
const UNUSED: i64 = -1;

/// For the functions below: the name of a parameter is our own, with which Redis 8 may have another, or valkey-bloom's.
const OWN: bool = false;
const VALKEY: bool = true;

impl Setting {
    fn register(&'static self, ctx: &Context) -> bool {
        self.before_file.store(self.get(), Ordering::Relaxed);
        let is_alone = names().are_usual();
        // Otherwise, the other name may belong to the other module.
        let redis_8 = self.redis_8.filter(|_| is_alone && feature::UNPREFIXED_CONFIG.is_offered());
        let valkey = self.valkey.filter(|_| is_alone && feature::is_valkey());
        let own = match redis_8 {
            None => self.register_as::<OWN>(ctx, self.name, raw::REDISMODULE_CONFIG_DEFAULT),
            Some(alias) => {
                let both = CString::new([b"bf.", self.name.to_bytes(), b"|", alias.to_bytes()].concat());
                // The server does not precede it with `bf.`.
                self.register_as::<OWN>(ctx, &both.unwrap_or_default(), raw::REDISMODULE_CONFIG_UNPREFIXED)
            }
        };
        own && valkey.is_none_or(|name| self.register_as::<VALKEY>(ctx, name, raw::REDISMODULE_CONFIG_DEFAULT))
    }

    fn register_as<const IS_VALKEY: bool>(&'static self, ctx: &Context, name: &CStr, flags: u32) -> bool {
        let (ctx, name, this) = (ctx.as_raw(), name.as_ptr(), ptr::from_ref(self).cast_mut().cast());
        let register_number = |min, max, unit| {
            let (default, min, unit) = if IS_VALKEY { (UNUSED, UNUSED, 0) } else { (self.get(), min, unit) };
            let get: raw::RedisModuleConfigGetNumericFunc = Some(get_number::<IS_VALKEY>);
            let set: raw::RedisModuleConfigSetNumericFunc = Some(set_number::<IS_VALKEY>);
            let flags = flags | unit;
            // SAFETY: the context is alive, and the name ends with a NUL and is copied. The private data is this
            // setting, as the callbacks expect, and static.
            unsafe {
                call!(RedisModule_RegisterNumericConfig(ctx, name, default, flags, min, max, get, set, None, this))
            }
        };
        let register_word = |words: &[&CStr]| {
            let (count, default) = (words.len() as c_int, self.get() as c_int);
            let mut words: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
            let values: Vec<_> = (0..count).collect();
            let get: raw::RedisModuleConfigGetEnumFunc = Some(get_word);
            let set: raw::RedisModuleConfigSetEnumFunc = Some(set_word);
            let (words, values) = (words.as_mut_ptr(), values.as_ptr());
            // SAFETY: as above; there are as many words as values, and both are copied.
            unsafe {
                call!(RedisModule_RegisterEnumConfig(
                    ctx, name, default, flags, words, values, count, get, set, None, this
                ))
            }
        };
        let status = match self.values {
            Values::Number(min, max) => register_number(min, max, 0),
            Values::Size => register_number(0, i64::MAX, raw::REDISMODULE_CONFIG_MEMORY),
            Values::Word(words) => register_word(words),
            Values::Fraction => {
                let default = CString::new(if IS_VALKEY { String::new() } else { self.shown() }).unwrap_or_default();
                let (default, get, set) = (default.as_ptr(), get_fraction::<IS_VALKEY>, set_fraction::<IS_VALKEY>);
                // SAFETY: as above; the default ends with a NUL and is copied.
                unsafe {
                    call!(RedisModule_RegisterStringConfig(ctx, name, default, flags, Some(get), Some(set), None, this))
                }
            }
        };
        status == OK
    }

    /// Returns true if a parameter with valkey-bloom's name shows that it is not set.
    fn is_unused<const IS_VALKEY: bool>(&self) -> bool {
        IS_VALKEY && !self.is_set_by_valkey.load(Ordering::Relaxed)
    }

    /// Sets the setting by one of its names. `None` only resets a parameter with valkey-bloom's name. The error is
    /// for the client.
    fn set_by<const IS_VALKEY: bool>(&self, value: Option<i64>) -> Result<(), String> {
        let is_in_file =
            || IS_LOADING.load(Ordering::Relaxed) && self.get() != self.before_file.load(Ordering::Relaxed);
        // The server applies our own name first.
        if let Some(value) = value
            && IS_VALKEY
            && self.get() != value
            && is_in_file()
        {
            let name = self.name.to_string_lossy();
            return Err(format!("the same setting as bf.{name}, which has another value: leave out one of both"));
        }
        if IS_VALKEY {
            self.is_set_by_valkey.store(value.is_some(), Ordering::Relaxed);
        }
        value.into_iter().for_each(|value| self.set(value));
        Ok(())
    }
}

/// Returns the setting that a callback was registered for.
///
/// # Safety
///
/// `private` must be the pointer that [`Setting::register`] handed over.
unsafe fn setting(private: *mut c_void) -> &'static Setting {
    // SAFETY: `register` hands over references to statics.
    unsafe { &*private.cast() }
}

/// Returns the value of a number.
///
/// # Safety
///
/// Only the server may call this and the callbacks below.
unsafe extern "C" fn get_number<const IS_VALKEY: bool>(_name: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: the server returns what `register` handed over.
    let setting = unsafe { setting(private) };
    if setting.is_unused::<IS_VALKEY>() { UNUSED } else { setting.get() }
}

unsafe extern "C" fn set_number<const IS_VALKEY: bool>(
    _name: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    error: *mut RawString,
) -> c_int {
    catch_panic(c"set_number", FAILED, || {
        // SAFETY: the server returns what `register` handed over.
        let setting = unsafe { setting(private) };
        // The server checked the range, but with valkey-bloom's name for a minimum of -1.
        let value = match setting.values {
            _ if IS_VALKEY && value == UNUSED => Ok(None),
            Values::Number(min, _) if value < min => Err(format!("must be at least {min}")),
            _ => Ok(Some(value)),
        };
        // SAFETY: the server hands over a place for the message.
        unsafe { status(value.and_then(|value| setting.set_by::<IS_VALKEY>(value)), error) }
    })
}

unsafe extern "C" fn get_word(_name: *const c_char, private: *mut c_void) -> c_int {
    // SAFETY: the server returns what `register` handed over.
    unsafe { setting(private) }.get() as c_int
}

unsafe extern "C" fn set_word(_: *const c_char, index: c_int, private: *mut c_void, _: *mut RawString) -> c_int {
    // SAFETY: the server returns what `register` handed over. It has checked that the index is a registered one.
    unsafe { setting(private) }.set(index.into());
    OK
}

/// The string that was last returned to CONFIG GET. The server borrows it, so it lives until the next call.
static SHOWN: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn get_fraction<const IS_VALKEY: bool>(_name: *const c_char, private: *mut c_void) -> RawString {
    catch_panic(c"get_fraction", ptr::null_mut(), || {
        // SAFETY: the server returns what `register` handed over.
        let setting = unsafe { setting(private) };
        let text = if setting.is_unused::<IS_VALKEY>() { String::new() } else { setting.shown() };
        let shown = Server::without_context().string(text.as_bytes()).into_raw();
        let last = SHOWN.swap(shown, Ordering::Relaxed);
        if !last.is_null() {
            // SAFETY: the string is ours, and the server no longer uses it.
            drop(unsafe { OwnedString::from_raw(last) });
        }
        shown
    })
}

unsafe extern "C" fn set_fraction<const IS_VALKEY: bool>(
    _name: *const c_char,
    value: RawString,
    private: *mut c_void,
    error: *mut RawString,
) -> c_int {
    catch_panic(c"set_fraction", FAILED, || {
        // SAFETY: the server hands over a live string for the time of the call, and returns what `register` handed
        // over.
        let (value, setting) = unsafe { (Arg::new(value), setting(private)) };
        let is_reset = IS_VALKEY && value.bytes().is_empty();
        let value = if is_reset { Ok(None) } else { setting.parse(value).map(Some) };
        // SAFETY: the server hands over a place for the message.
        unsafe { status(value.and_then(|value| setting.set_by::<IS_VALKEY>(value)), error) }
    })
}

/// Converts the result of setting a parameter. The server frees the message.
///
/// # Safety
///
/// `error` must be a place for a message.
unsafe fn status(result: Result<(), String>, error: *mut RawString) -> c_int {
    let Err(message) = result else { return OK };
    let message = Server::without_context().string(message.as_bytes()).into_raw();
    // SAFETY: as promised by the caller.
    unsafe { *error = message };
    FAILED
}
