//! The settings as parameters of CONFIG.
//!
//! valkey-bloom's names are parameters of their own, since Valkey has no second names for a parameter. CONFIG REWRITE
//! writes each parameter that does not have its default. So one that nobody used shows that it is not set: -1, or
//! nothing.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use super::setting::{Choice, Fraction, Naming, Number, SecondName};
use super::{choices, fractions, numbers};
use crate::callback::catch_panic;
use crate::ffi::{FAILED, OK, call};
use crate::names::names;
use crate::server::{Arg, Context, OwnedString, Server, feature};
use oxbloom_filter::internals::ErrorRate;

/// True while the server applies its configuration file.
static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// Registers the settings with CONFIG, with their current values as defaults. Then applies the server's configuration
/// file to them. A server that does not offer CONFIG to modules only has the arguments of `loadmodule`.
pub(crate) fn register(ctx: &Context) -> bool {
    if !feature::CONFIG.is_offered() {
        return true;
    }
    IS_LOADING.store(true, Ordering::Relaxed);
    let is_applied = fractions().all(|fraction| fraction.register(ctx))
        && numbers().all(|number| number.register(ctx))
        && choices().all(|choice| choice.register(ctx))
        // SAFETY: the context is alive.
        && unsafe { call!(RedisModule_LoadConfigs(ctx.as_raw())) } == OK;
    IS_LOADING.store(false, Ordering::Relaxed);
    is_applied
}

/// The number that valkey-bloom's name of a setting shows if nobody used it.
const UNUSED: i64 = -1;

impl SecondName {
    /// Uses valkey-bloom's name to set a setting. The error means that the configuration file gives both names, with
    /// different values: the server applies our own name first.
    fn take(&self, value: u64, current: u64) -> Result<(), ()> {
        let is_set = IS_LOADING.load(Ordering::Relaxed) && current != self.before_file.load(Ordering::Relaxed);
        if is_set && current != value {
            return Err(());
        }
        self.is_used.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The name under which a setting is registered, and its flags.
struct Registration {
    name: CString,
    flags: u32,
}

impl Registration {
    /// Returns the name `bf.name`. On Redis 8, RedisBloom's name is an alias of it, unless it may be RedisBloom's own.
    fn of(naming: Naming) -> Registration {
        match naming.redis_8.filter(|_| names().are_usual() && feature::UNPREFIXED_CONFIG.is_offered()) {
            None => Registration { name: naming.own.to_owned(), flags: raw::REDISMODULE_CONFIG_DEFAULT },
            Some(alias) => {
                let names = [b"bf.", naming.own.to_bytes(), b"|", alias.to_bytes()].concat();
                let name = CString::new(names).unwrap_or_default();
                // The server does not precede it with `bf.`.
                Registration { name, flags: raw::REDISMODULE_CONFIG_UNPREFIXED }
            }
        }
    }

    /// Returns valkey-bloom's name on Valkey, unless it may be valkey-bloom's own.
    fn second_of(naming: Naming) -> Option<Registration> {
        let name = naming.valkey.filter(|_| names().are_usual() && feature::is_valkey())?;
        Some(Registration { name: name.to_owned(), flags: raw::REDISMODULE_CONFIG_DEFAULT })
    }
}

type GetString = unsafe extern "C" fn(*const c_char, *mut c_void) -> *mut raw::RedisModuleString;
type SetString = unsafe extern "C" fn(
    *const c_char,
    *mut raw::RedisModuleString,
    *mut c_void,
    *mut *mut raw::RedisModuleString,
) -> c_int;
type GetNumber = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_longlong;
type SetNumber =
    unsafe extern "C" fn(*const c_char, c_longlong, *mut c_void, *mut *mut raw::RedisModuleString) -> c_int;

impl Fraction {
    fn register(&'static self, ctx: &Context) -> bool {
        let default = self.get().get();
        self.second_name.before_file.store(default.to_bits(), Ordering::Relaxed);
        let text = CString::new(default.to_string()).unwrap_or_default();
        self.register_as(ctx, &Registration::of(self.naming), &text, get_fraction, set_fraction)
            && Registration::second_of(self.naming)
                .is_none_or(|name| self.register_as(ctx, &name, c"", get_second_fraction, set_second_fraction))
    }

    fn register_as(
        &'static self,
        ctx: &Context,
        registration: &Registration,
        default: &CStr,
        get: GetString,
        set: SetString,
    ) -> bool {
        // SAFETY: the context is alive, and the texts end with a NUL and are copied. The private data is this setting,
        // as the callbacks expect, and static.
        unsafe {
            call!(RedisModule_RegisterStringConfig(
                ctx.as_raw(),
                registration.name.as_ptr(),
                default.as_ptr(),
                registration.flags,
                Some(get),
                Some(set),
                None,
                ptr::from_ref(self).cast_mut().cast()
            )) == OK
        }
    }
}

impl Number {
    fn register(&'static self, ctx: &Context) -> bool {
        self.second_name.before_file.store(self.get() as u64, Ordering::Relaxed);
        let unit = if self.is_size { raw::REDISMODULE_CONFIG_MEMORY } else { 0 };
        let Registration { name, flags } = Registration::of(self.naming);
        let first = Registration { name, flags: flags | unit };
        self.register_as(ctx, &first, self.get(), self.min, get_number, set_number)
            && Registration::second_of(self.naming)
                .is_none_or(|name| self.register_as(ctx, &name, UNUSED, UNUSED, get_second_number, set_second_number))
    }

    fn register_as(
        &'static self,
        ctx: &Context,
        registration: &Registration,
        default: i64,
        min: i64,
        get: GetNumber,
        set: SetNumber,
    ) -> bool {
        // SAFETY: as for fractions.
        unsafe {
            call!(RedisModule_RegisterNumericConfig(
                ctx.as_raw(),
                registration.name.as_ptr(),
                default,
                registration.flags,
                min,
                self.max,
                Some(get),
                Some(set),
                None,
                ptr::from_ref(self).cast_mut().cast()
            )) == OK
        }
    }
}

impl Choice {
    fn register(&'static self, ctx: &Context) -> bool {
        let mut words: Vec<_> = self.words.iter().map(|word| word.as_ptr()).collect();
        let values: Vec<_> = (0..self.words.len() as c_int).collect();
        // SAFETY: as for fractions; there are as many words as values, and both are copied.
        unsafe {
            call!(RedisModule_RegisterEnumConfig(
                ctx.as_raw(),
                self.name.as_ptr(),
                self.get(),
                raw::REDISMODULE_CONFIG_DEFAULT,
                words.as_mut_ptr(),
                values.as_ptr(),
                values.len() as c_int,
                Some(get_choice),
                Some(set_choice),
                None,
                ptr::from_ref(self).cast_mut().cast()
            )) == OK
        }
    }
}

/// Returns the setting that a callback was registered for.
///
/// # Safety
///
/// `private` must be the pointer that [`register`] handed over, for a setting of type `T`.
unsafe fn setting<T>(private: *mut c_void) -> &'static T {
    // SAFETY: `register` hands over references to statics.
    unsafe { &*private.cast::<T>() }
}

/// Returns the value of a number.
///
/// # Safety
///
/// Only the server may call this and the callbacks below.
unsafe extern "C" fn get_number(_name: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: the server returns what `register` handed over.
    unsafe { setting::<Number>(private) }.get()
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server returns what `register` handed over.
    let number: &Number = unsafe { setting(private) };
    // The server checked the range.
    number.set(value);
    OK
}

unsafe extern "C" fn get_second_number(_name: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: the server returns what `register` handed over.
    let number: &Number = unsafe { setting(private) };
    if number.second_name.is_used.load(Ordering::Relaxed) { number.get() } else { UNUSED }
}

unsafe extern "C" fn set_second_number(
    _name: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    catch_panic(c"set_second_number", FAILED, || {
        // SAFETY: the server returns what `register` handed over.
        let number: &Number = unsafe { setting(private) };
        if value == UNUSED {
            number.second_name.is_used.store(false, Ordering::Relaxed);
            return OK;
        }
        let result = if value < number.min {
            Err(format!("must be at least {}", number.min))
        } else {
            let taken = number.second_name.take(value as u64, number.get() as u64);
            taken.map(|()| number.set(value)).map_err(|()| number.naming.conflict())
        };
        // SAFETY: the server hands over a place for the message.
        unsafe { status(result, error) }
    })
}

unsafe extern "C" fn get_choice(_name: *const c_char, private: *mut c_void) -> c_int {
    // SAFETY: the server returns what `register` handed over.
    unsafe { setting::<Choice>(private) }.get()
}

unsafe extern "C" fn set_choice(
    _name: *const c_char,
    value: c_int,
    private: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server returns what `register` handed over. It has checked that the value is one of the registered
    // ones.
    unsafe { setting::<Choice>(private) }.set(value);
    OK
}

/// The string that was last returned to CONFIG GET. The server borrows it, so it lives until the next call.
static SHOWN: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

/// Returns a string that CONFIG GET shows.
fn show(text: &str) -> *mut raw::RedisModuleString {
    let shown = Server::without_context().string(text.as_bytes()).into_raw();
    let last = SHOWN.swap(shown, Ordering::Relaxed);
    if !last.is_null() {
        // SAFETY: the string is ours, and the server no longer uses it.
        drop(unsafe { OwnedString::from_raw(last) });
    }
    shown
}

unsafe extern "C" fn get_fraction(_name: *const c_char, private: *mut c_void) -> *mut raw::RedisModuleString {
    catch_panic(c"get_fraction", ptr::null_mut(), || {
        // SAFETY: the server returns what `register` handed over.
        show(&unsafe { setting::<Fraction>(private) }.get().get().to_string())
    })
}

unsafe extern "C" fn set_fraction(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    catch_panic(c"set_fraction", FAILED, || {
        // SAFETY: the server hands over a live string for the time of the call, and returns what `register` handed
        // over.
        let (value, fraction): (_, &Fraction) = unsafe { (Arg::new(value), setting(private)) };
        let value = value.float().and_then(ErrorRate::new).ok_or(Fraction::RANGE.to_owned());
        // SAFETY: the server hands over a place for the message.
        unsafe { status(value.map(|value| fraction.set(value)), error) }
    })
}

unsafe extern "C" fn get_second_fraction(_name: *const c_char, private: *mut c_void) -> *mut raw::RedisModuleString {
    catch_panic(c"get_second_fraction", ptr::null_mut(), || {
        // SAFETY: the server returns what `register` handed over.
        let fraction: &Fraction = unsafe { setting(private) };
        let is_used = fraction.second_name.is_used.load(Ordering::Relaxed);
        show(&if is_used { fraction.get().get().to_string() } else { String::new() })
    })
}

unsafe extern "C" fn set_second_fraction(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    catch_panic(c"set_second_fraction", FAILED, || {
        // SAFETY: the server hands over a live string for the time of the call, and returns what `register` handed
        // over.
        let (value, fraction): (_, &Fraction) = unsafe { (Arg::new(value), setting(private)) };
        if value.bytes().is_empty() {
            fraction.second_name.is_used.store(false, Ordering::Relaxed);
            return OK;
        }
        let value = value.float().and_then(ErrorRate::new).ok_or(Fraction::RANGE.to_owned());
        let result = value.and_then(|value| {
            let [value_bits, current] = [value, fraction.get()].map(|rate| rate.get().to_bits());
            let taken = fraction.second_name.take(value_bits, current);
            taken.map(|()| fraction.set(value)).map_err(|()| fraction.naming.conflict())
        });
        // SAFETY: the server hands over a place for the message.
        unsafe { status(result, error) }
    })
}

impl Naming {
    /// Returns the reason why the second name of a setting is rejected.
    fn conflict(self) -> String {
        format!("the same setting as bf.{}, which has another value: leave out one of both", self.own.to_string_lossy())
    }
}

/// Converts the result of setting a parameter. The server frees the message.
///
/// # Safety
///
/// `error` must be a place for a message.
unsafe fn status(result: Result<(), String>, error: *mut *mut raw::RedisModuleString) -> c_int {
    let Err(message) = result else { return OK };
    let message = Server::without_context().string(message.as_bytes()).into_raw();
    // SAFETY: as promised by the caller.
    unsafe { *error = message };
    FAILED
}
