//! The settings as parameters of CONFIG.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::{
    CHOICES, Choice, ERROR_RATE_NAME, ERROR_RATE_RANGE, NUMBERS, Number, REDIS_8_ERROR_RATE_NAME, error_rate,
    set_error_rate,
};
use crate::callback::catch_panic;
use crate::ffi::{FAILED, OK, call};
use crate::names::names;
use crate::server::{Arg, Context, OwnedString, Server, feature};

/// Registers the settings with CONFIG, with their current values as defaults. Then applies the server's configuration
/// file to them. A server that does not offer CONFIG to modules only has the arguments of `loadmodule`.
pub(crate) fn register(ctx: &Context) -> bool {
    if !feature::CONFIG.is_offered() {
        return true;
    }
    register_error_rate(ctx, &Registration::of(ERROR_RATE_NAME, Some(REDIS_8_ERROR_RATE_NAME)))
        && NUMBERS.into_iter().all(|number| number.register(ctx, &Registration::of(number.name, number.redis_8_name)))
        && CHOICES.into_iter().all(|choice| choice.register(ctx))
        // SAFETY: the context is alive.
        && unsafe { call!(RedisModule_LoadConfigs(ctx.as_raw())) } == OK
}

/// The name under which a setting is registered, and its flags.
struct Registration {
    name: CString,
    flags: u32,
}

impl Registration {
    /// Returns the name `bf.name`. On Redis 8, RedisBloom's name is an alias of it, unless it may be RedisBloom's own.
    /// CONFIG REWRITE only writes the first name; with two settings, it would write both, and changing one of the lines
    /// would have no effect.
    fn of(name: &CStr, redis_8_name: Option<&CStr>) -> Registration {
        match redis_8_name.filter(|_| names().are_usual() && feature::UNPREFIXED_CONFIG.is_offered()) {
            None => Registration { name: name.to_owned(), flags: raw::REDISMODULE_CONFIG_DEFAULT },
            Some(alias) => {
                let names = [b"bf.", name.to_bytes(), b"|", alias.to_bytes()].concat();
                Registration::without_prefix(&CString::new(names).unwrap_or_default())
            }
        }
    }

    /// Returns a name that the server does not precede with `bf.`.
    fn without_prefix(name: &CStr) -> Registration {
        Registration { name: name.to_owned(), flags: raw::REDISMODULE_CONFIG_UNPREFIXED }
    }
}

fn register_error_rate(ctx: &Context, registration: &Registration) -> bool {
    let rate = CString::new(error_rate().get().to_string()).unwrap_or_default();
    // SAFETY: the context is alive, the texts end with a NUL and are copied, and the callbacks need no private data.
    unsafe {
        call!(RedisModule_RegisterStringConfig(
            ctx.as_raw(),
            registration.name.as_ptr(),
            rate.as_ptr(),
            registration.flags,
            Some(get_error_rate),
            Some(set_error_rate_config),
            None,
            ptr::null_mut()
        )) == OK
    }
}

impl Number {
    fn register(&'static self, ctx: &Context, registration: &Registration) -> bool {
        let unit = if self.is_size { raw::REDISMODULE_CONFIG_MEMORY } else { 0 };
        // SAFETY: as for the error rate; the private data is this setting, as the callbacks expect, and static.
        unsafe {
            call!(RedisModule_RegisterNumericConfig(
                ctx.as_raw(),
                registration.name.as_ptr(),
                self.get(),
                registration.flags | unit,
                self.min,
                self.max,
                Some(get_number),
                Some(set_number),
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
        // SAFETY: as for numbers; there are as many words as values, and both are copied.
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
    unsafe { setting::<Choice>(private) }.value.store(value, Ordering::Relaxed);
    OK
}

/// The string that was last returned to CONFIG GET. The server borrows it, so it lives until the next call.
static SHOWN_ERROR_RATE: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn get_error_rate(_name: *const c_char, _private: *mut c_void) -> *mut raw::RedisModuleString {
    catch_panic(c"get_error_rate", ptr::null_mut(), || {
        let shown = Server::without_context().string(error_rate().get().to_string().as_bytes()).into_raw();
        let last = SHOWN_ERROR_RATE.swap(shown, Ordering::Relaxed);
        if !last.is_null() {
            // SAFETY: the string is ours, and the server no longer uses it.
            drop(unsafe { OwnedString::from_raw(last) });
        }
        shown
    })
}

unsafe extern "C" fn set_error_rate_config(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    _private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    catch_panic(c"set_error_rate", FAILED, || {
        // SAFETY: the server hands over a live string for the time of the call.
        let value = unsafe { Arg::new(value) };
        if set_error_rate(value).is_some() {
            return OK;
        }
        let message = Server::without_context().string(ERROR_RATE_RANGE.as_bytes()).into_raw();
        // SAFETY: the server hands over a place for the message, and frees the message.
        unsafe { *error = message };
        FAILED
    })
}
