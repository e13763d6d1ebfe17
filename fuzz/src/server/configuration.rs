//! The module's settings: CONFIG GET and CONFIG SET.

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_void};
use std::ptr;

use redis_module::raw;

use super::strings::{Strings, bytes, free_string, number, text, whole_number};
use super::{OK, check_leaks, with};

pub(super) type Getter<T> = Option<unsafe extern "C" fn(*const c_char, *mut c_void) -> T>;
pub(super) type Setter<T> =
    Option<unsafe extern "C" fn(*const c_char, T, *mut c_void, *mut *mut raw::RedisModuleString) -> c_int>;

/// A setting, with its callbacks.
#[derive(Clone)]
pub(super) enum Setting {
    Text(Getter<*mut raw::RedisModuleString>, Setter<*mut raw::RedisModuleString>, *mut c_void),
    Number(Getter<c_longlong>, Setter<c_longlong>, *mut c_void, std::ops::RangeInclusive<c_longlong>),
    Choice(Getter<c_int>, Setter<c_int>, *mut c_void, Vec<(Vec<u8>, c_int)>),
}

/// Returns the value that CONFIG GET shows, if there is a setting of this name.
pub(crate) fn configured(name: &[u8]) -> Option<Vec<u8>> {
    let setting = with(|state| state.settings.get(name).cloned())?;
    let name = c"".as_ptr();
    // SAFETY: the module registered this callback, and expects these arguments.
    let shown = unsafe {
        match setting {
            Setting::Text(get, _, private) => {
                let shown = text(get.expect("a callback")(name, private)).to_vec();
                // The module owns the string until the next call.
                with(|state| state.call.strings = 0);
                shown
            }
            Setting::Number(get, _, private, _) => get.expect("a callback")(name, private).to_string().into_bytes(),
            Setting::Choice(get, _, private, choices) => {
                let number = get.expect("a callback")(name, private);
                choices.into_iter().find(|choice| choice.1 == number).expect("a choice").0
            }
        }
    };
    check_leaks();
    Some(shown)
}

/// Changes a setting as CONFIG SET does. Returns true if the module accepted the value.
pub(crate) fn configure(name: &[u8], value: &[u8]) -> bool {
    let Some(setting) = with(|state| state.settings.get(name).cloned()) else { return false };
    let (any_name, mut message) = (c"".as_ptr(), ptr::null_mut());
    // SAFETY: the module registered this callback, and expects these arguments. The strings outlive the call.
    let status = unsafe {
        match setting {
            Setting::Text(_, set, private) => {
                let strings = Strings::new(&[value.to_vec()]);
                set.expect("a callback")(any_name, strings.0[0], private, &raw mut message)
            }
            Setting::Number(_, set, private, range) => {
                let Some(number) = whole_number(value).filter(|value| range.contains(value)) else { return false };
                set.expect("a callback")(any_name, number, private, &raw mut message)
            }
            Setting::Choice(_, set, private, choices) => {
                let choice = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
                let Some(&(_, choice)) = choice else { return false };
                set.expect("a callback")(any_name, choice, private, &raw mut message)
            }
        }
    };
    assert_eq!(status == OK, message.is_null());
    if !message.is_null() {
        free_string(ptr::null_mut(), message);
    }
    check_leaks();
    if status == OK {
        let shown = configured(name).expect("the new value");
        assert!(shown.eq_ignore_ascii_case(value) || number(&shown).is_some_and(|shown| Some(shown) == number(value)));
    }
    status == OK
}

pub(super) unsafe extern "C" fn register_string_config(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    _default: *const c_char,
    _flags: c_uint,
    get: raw::RedisModuleConfigGetStringFunc,
    set: raw::RedisModuleConfigSetStringFunc,
    _apply: raw::RedisModuleConfigApplyFunc,
    private: *mut c_void,
) -> c_int {
    register(name, Setting::Text(get, set, private))
}

pub(super) unsafe extern "C" fn register_numeric_config(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    default: c_longlong,
    _flags: c_uint,
    min: c_longlong,
    max: c_longlong,
    get: raw::RedisModuleConfigGetNumericFunc,
    set: raw::RedisModuleConfigSetNumericFunc,
    _apply: raw::RedisModuleConfigApplyFunc,
    private: *mut c_void,
) -> c_int {
    assert!((min..=max).contains(&default));
    register(name, Setting::Number(get, set, private, min..=max))
}

pub(super) unsafe extern "C" fn register_enum_config(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    _default: c_int,
    _flags: c_uint,
    names: *mut *const c_char,
    values: *const c_int,
    count: c_int,
    get: raw::RedisModuleConfigGetEnumFunc,
    set: raw::RedisModuleConfigSetEnumFunc,
    _apply: raw::RedisModuleConfigApplyFunc,
    private: *mut c_void,
) -> c_int {
    // SAFETY: the module passes `count` names and values.
    let choices = (0..count as usize).map(|index| unsafe { (bytes(*names.add(index)), *values.add(index)) });
    register(name, Setting::Choice(get, set, private, choices.collect()))
}

pub(super) fn register(name: *const c_char, setting: Setting) -> c_int {
    // SAFETY: the module passes a text that ends with a NUL.
    let name = unsafe { bytes(name) };
    assert!(with(|state| state.settings.insert(name, setting)).is_none());
    OK
}

pub(super) unsafe extern "C" fn load_configs(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    OK
}
