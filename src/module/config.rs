//! Settings: defaults for filters that a command creates without saying how, and a limit.
//!
//! They are read from the arguments of `loadmodule` on every server, in RedisBloom's spelling or ours, and from Redis 7 and
//! Valkey 8 on are parameters of CONFIG as well, under the names `bf.…`.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::num::{NonZeroU32, NonZeroU64};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use redis_module::raw;

use super::args::{Arg, Args};
use super::context::Context;
use super::edge::{FAILED, OK, call, guard};
use crate::filter::{ErrorRate, Growth};

/// A setting that is a whole number.
struct Number {
    name: &'static CStr,
    least: i64,
    most: i64,
    /// Whether sizes such as `1gb` are understood.
    is_size: bool,
    value: AtomicI64,
}

impl Number {
    const fn new(name: &'static CStr, default: i64, least: i64, most: i64) -> Number {
        Number { name, least, most, is_size: false, value: AtomicI64::new(default) }
    }

    fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

static INITIAL_SIZE: Number = Number::new(c"initial-size", 100, 1, i64::MAX);
static EXPANSION_FACTOR: Number = Number::new(c"expansion-factor", 2, 0, u32::MAX as i64);
static FILTER_MEMORY_LIMIT: Number = Number { is_size: true, ..Number::new(c"filter-memory-limit", 0, 0, i64::MAX) };

static LOOKAHEAD_SIZE: Number = Number { is_size: true, ..Number::new(c"lookahead-size", 1 << 20, 0, i64::MAX) };

static NUMBERS: [&Number; 4] = [&INITIAL_SIZE, &EXPANSION_FACTOR, &FILTER_MEMORY_LIMIT, &LOOKAHEAD_SIZE];

/// The one setting that is not a whole number. The server knows such settings as strings only.
const ERROR_RATE_NAME: &CStr = c"error-rate";
const ERROR_RATE_RANGE: &str = "must be a number above 0 and below 1";
const DEFAULT_ERROR_RATE: f64 = 0.01;
static ERROR_RATE: AtomicU64 = AtomicU64::new(DEFAULT_ERROR_RATE.to_bits());

/// How the bits of a filter lie in memory, as clients call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutName {
    Native,
    Classic,
}

impl LayoutName {
    const ALL: [LayoutName; 2] = [LayoutName::Native, LayoutName::Classic];

    pub const fn name(self) -> &'static CStr {
        match self {
            LayoutName::Native => c"native",
            LayoutName::Classic => c"classic",
        }
    }

    /// The layout that is called so, in whatever case.
    pub fn of(name: Arg) -> Option<LayoutName> {
        LayoutName::ALL.into_iter().find(|layout| name.bytes().eq_ignore_ascii_case(layout.name().to_bytes()))
    }
}

impl std::fmt::Display for LayoutName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

/// The one setting that is a choice.
const LAYOUT_NAME: &CStr = c"layout";
static LAYOUT: AtomicI32 = AtomicI32::new(LayoutName::Native as c_int);

/// The layout of filters that are created without one.
pub fn layout() -> LayoutName {
    if LAYOUT.load(Ordering::Relaxed) == LayoutName::Classic as c_int {
        LayoutName::Classic
    } else {
        LayoutName::Native
    }
}

/// The error rate of filters that are created without one.
pub fn error_rate() -> ErrorRate {
    ErrorRate::new(f64::from_bits(ERROR_RATE.load(Ordering::Relaxed)))
        .unwrap_or(const { ErrorRate::new(DEFAULT_ERROR_RATE).unwrap() })
}

/// The capacity of filters that are created without one.
pub fn initial_size() -> NonZeroU64 {
    NonZeroU64::new(INITIAL_SIZE.get() as u64).unwrap_or(NonZeroU64::MIN)
}

/// How filters grow that are created without saying.
pub fn growth() -> Growth {
    let factor = u32::try_from(EXPANSION_FACTOR.get()).unwrap_or(0);
    NonZeroU32::new(factor).map_or(Growth::Fixed, Growth::By)
}

/// The most bytes that a single filter may take; 0 for no limit.
pub fn filter_memory_limit() -> u64 {
    FILTER_MEMORY_LIMIT.get() as u64
}

/// From how many bytes on a filter is worth looking ahead for: `u64::MAX` for none.
pub fn lookahead_size() -> u64 {
    match LOOKAHEAD_SIZE.get() as u64 {
        0 => u64::MAX,
        size => size,
    }
}

/// The settings, for the log.
pub fn describe() -> String {
    let numbers = NUMBERS.map(|number| format!("{} {}", number.name.to_string_lossy(), number.get()));
    let (rate_name, layout_name) = (ERROR_RATE_NAME.to_string_lossy(), LAYOUT_NAME.to_string_lossy());
    format!("{rate_name} {}, {}, {layout_name} {}", error_rate().get(), numbers.join(", "), layout())
}

/// Reads the arguments of `loadmodule`: pairs of a name and a value. What is wrong with them, if anything.
pub fn read_arguments(ctx: &Context, args: Args) -> Result<(), String> {
    for pair in args.chunks(2) {
        let name = pair.at(0).lossy();
        if pair.len() < 2 {
            return Err(format!("argument '{name}' has no value"));
        }
        read_argument(ctx, &name, pair.at(1))?;
    }
    Ok(())
}

/// `ERROR_RATE`, `bf-error-rate`, `bf.error-rate` and `error-rate` are one.
fn read_argument(ctx: &Context, given: &str, value: Arg) -> Result<(), String> {
    let name = given.to_ascii_lowercase().replace('_', "-");
    let name = name.strip_prefix("bf-").or(name.strip_prefix("bf.")).unwrap_or(&name);
    let shown = value.lossy();
    if name.as_bytes() == ERROR_RATE_NAME.to_bytes() {
        return set_error_rate(value).ok_or(format!("{given} {ERROR_RATE_RANGE}, not '{shown}'"));
    }
    if name.as_bytes() == LAYOUT_NAME.to_bytes() {
        let layout = LayoutName::of(value).ok_or(format!("{given} must be native or classic, not '{shown}'"))?;
        LAYOUT.store(layout as c_int, Ordering::Relaxed);
        return Ok(());
    }
    if let Some(number) = NUMBERS.iter().find(|number| number.name.to_bytes() == name.as_bytes()) {
        let range = number.least..=number.most;
        let accepted = if number.is_size { size(&shown) } else { value.integer() };
        let accepted = accepted.filter(|value| range.contains(value));
        let unit = if number.is_size { ", or a size such as 512mb or 4gb" } else { "" };
        let accepted = accepted.ok_or(format!(
            "{given} must be a whole number from {} to {}{unit}, not '{shown}'",
            number.least, number.most
        ))?;
        number.value.store(accepted, Ordering::Relaxed);
        return Ok(());
    }
    if name.starts_with("cf-") {
        ctx.log_notice(&format!("{given} is ignored: it is for cuckoo filters, which this module does not have"));
        return Ok(());
    }
    Err(format!("'{given}' is not a setting of this module"))
}

/// A number of bytes as the server's own settings have it: `100`, `100mb`, `1gb`; `1m` is a million, `1mb` is 2^20.
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

fn set_error_rate(value: Arg) -> Option<()> {
    let rate = ErrorRate::new(value.float()?)?;
    ERROR_RATE.store(rate.get().to_bits(), Ordering::Relaxed);
    Some(())
}

/// Registers the settings with CONFIG, their present values as defaults, and takes what the server's file says of them.
pub fn register(ctx: &Context) -> bool {
    let rate = CString::new(error_rate().get().to_string()).unwrap_or_default();
    let flags = raw::REDISMODULE_CONFIG_DEFAULT;
    let registered = call!(RedisModule_RegisterStringConfig(
        ctx.as_raw(),
        ERROR_RATE_NAME.as_ptr(),
        rate.as_ptr(),
        flags,
        Some(get_error_rate),
        Some(set_error_rate_config),
        None,
        ptr::null_mut()
    )) == OK;
    let numbers = NUMBERS.iter().all(|&number| {
        let flags = if number.is_size { raw::REDISMODULE_CONFIG_MEMORY } else { flags };
        call!(RedisModule_RegisterNumericConfig(
            ctx.as_raw(),
            number.name.as_ptr(),
            number.get(),
            flags,
            number.least,
            number.most,
            Some(get_number),
            Some(set_number),
            None,
            ptr::from_ref(number).cast_mut().cast()
        )) == OK
    });
    let mut names = LayoutName::ALL.map(|layout| layout.name().as_ptr());
    let values = LayoutName::ALL.map(|layout| layout as c_int);
    let layouts = call!(RedisModule_RegisterEnumConfig(
        ctx.as_raw(),
        LAYOUT_NAME.as_ptr(),
        layout() as c_int,
        flags,
        names.as_mut_ptr(),
        values.as_ptr(),
        values.len() as c_int,
        Some(get_layout),
        Some(set_layout),
        None,
        ptr::null_mut()
    )) == OK;
    registered && numbers && layouts && call!(RedisModule_LoadConfigs(ctx.as_raw())) == OK
}

/// The setting that a callback was registered for.
///
/// # Safety
///
/// `private` must be what [`register`] handed over.
unsafe fn number(private: *mut c_void) -> &'static Number {
    // SAFETY: `register` hands over references to statics.
    unsafe { &*private.cast::<Number>() }
}

extern "C" fn get_number(_name: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: the server returns what `register` handed over.
    unsafe { number(private) }.get()
}

extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server checked the range.
    // SAFETY: the server returns what `register` handed over.
    unsafe { number(private) }.value.store(value, Ordering::Relaxed);
    OK
}

extern "C" fn get_layout(_name: *const c_char, _private: *mut c_void) -> c_int {
    layout() as c_int
}

extern "C" fn set_layout(
    _name: *const c_char,
    value: c_int,
    _private: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server checked that it is one of those it was told.
    LAYOUT.store(value, Ordering::Relaxed);
    OK
}

/// The string that CONFIG GET was last shown: the server borrows it, so it lives until the next one.
static SHOWN_ERROR_RATE: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(ptr::null_mut());

extern "C" fn get_error_rate(_name: *const c_char, _private: *mut c_void) -> *mut raw::RedisModuleString {
    guard(c"get_error_rate", ptr::null_mut(), || {
        let shown = Context::detached().string(error_rate().get().to_string().as_bytes()).into_raw();
        let last = SHOWN_ERROR_RATE.swap(shown, Ordering::Relaxed);
        if !last.is_null() {
            call!(RedisModule_FreeString(ptr::null_mut(), last));
        }
        shown
    })
}

extern "C" fn set_error_rate_config(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    _private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(c"set_error_rate", FAILED, || {
        let mut value = value;
        // SAFETY: the server hands over a live string for the time of the call.
        let value = unsafe { Args::new(&mut value, 1) }.at(0);
        if set_error_rate(value).is_some() {
            return OK;
        }
        let message = Context::detached().string(ERROR_RATE_RANGE.as_bytes()).into_raw();
        // SAFETY: the server hands over the place for a message, which it frees.
        unsafe { *error = message };
        FAILED
    })
}
