//! Settings: the defaults of new filters, limits, prefetching, and compatibility with RedisBloom.
//!
//! Every server reads them from the arguments of `loadmodule`, in RedisBloom's spelling or ours. From Redis 7 and
//! Valkey 8 on, they are also CONFIG parameters named `bf.…`, or after the module's [name](crate::names). On Redis 8,
//! those that its built-in RedisBloom has are also available under its names, `bf-…`.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::num::{NonZeroU32, NonZeroU64};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

use redis_module::raw;

use crate::callback::catch_panic;
use crate::family::{CUCKOO, Family};
use crate::ffi::{FAILED, OK, call};
use crate::names::{Names, names};
use crate::reply_error::Dialect;
use crate::server::{Arg, Args, Context, OwnedString, Server, feature};
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};
use oxbloom_filter::internals::{ErrorRate, FilterKind, Growth};

/// A setting that is a whole number.
struct Number {
    name: &'static CStr,
    /// The name in Redis 8, if RedisBloom has this setting.
    redis_8_name: Option<&'static CStr>,
    min: i64,
    max: i64,
    /// True if the value may be a size such as `1gb`.
    is_size: bool,
    value: AtomicI64,
}

impl Number {
    const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number { name, redis_8_name: None, min, max, is_size: false, value: AtomicI64::new(default) }
    }

    /// Returns a setting that has the same name in Redis 8.
    const fn of_redis_8(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number { redis_8_name: Some(name), ..Number::new(name, default, min, max) }
    }

    fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

static INITIAL_SIZE: Number =
    Number { redis_8_name: Some(c"bf-initial-size"), ..Number::new(c"initial-size", 100, 1, i64::MAX) };
static EXPANSION_FACTOR: Number =
    Number { redis_8_name: Some(c"bf-expansion-factor"), ..Number::new(c"expansion-factor", 2, 0, u32::MAX as i64) };
static FILTER_MEMORY_LIMIT: Number = Number { is_size: true, ..Number::new(c"filter-memory-limit", 0, 0, i64::MAX) };
static MERGE_LIMIT: Number = Number { is_size: true, ..Number::new(c"merge-limit", DEFAULT_MERGE_LIMIT, 0, i64::MAX) };

/// Merging tables takes 12 to 15 ns for each byte of them, so this many take about a second.
const DEFAULT_MERGE_LIMIT: i64 = 64 << 20;

static LOOKAHEAD_SIZE: Number = Number { is_size: true, ..Number::new(c"lookahead-size", 2 << 20, 0, i64::MAX) };

static CF_BUCKET_SIZE: Number = Number::of_redis_8(c"cf-bucket-size", 2, 1, MAX_BUCKET_SIZE as i64);
static CF_INITIAL_SIZE: Number = Number::of_redis_8(c"cf-initial-size", 1024, 2, i64::MAX);
static CF_MAX_ITERATIONS: Number = Number::of_redis_8(c"cf-max-iterations", 20, 1, u16::MAX as i64);
static CF_EXPANSION_FACTOR: Number = Number::of_redis_8(c"cf-expansion-factor", 1, 0, MAX_EXPANSION as i64);
static CF_MAX_EXPANSIONS: Number = Number::of_redis_8(c"cf-max-expansions", 32, 1, i64::MAX);

static NUMBERS: [&Number; 10] = [
    &INITIAL_SIZE,
    &EXPANSION_FACTOR,
    &FILTER_MEMORY_LIMIT,
    &MERGE_LIMIT,
    &LOOKAHEAD_SIZE,
    &CF_BUCKET_SIZE,
    &CF_INITIAL_SIZE,
    &CF_MAX_ITERATIONS,
    &CF_EXPANSION_FACTOR,
    &CF_MAX_EXPANSIONS,
];

/// The only setting that is a fraction. The server offers only strings for such settings.
const ERROR_RATE_NAME: &CStr = c"error-rate";
const REDIS_8_ERROR_RATE_NAME: &CStr = c"bf-error-rate";
const ERROR_RATE_RANGE: &str = "must be a number above 0 and below 1";
const DEFAULT_ERROR_RATE: f64 = 0.01;
static ERROR_RATE: AtomicU64 = AtomicU64::new(DEFAULT_ERROR_RATE.to_bits());

/// A setting whose value is one of several words.
struct Choice {
    name: &'static CStr,
    words: &'static [&'static CStr],
    /// The index of the chosen word.
    value: AtomicI32,
}

static LAYOUT: Choice = Choice::of_layouts(c"layout", LAYOUTS.len());
static CF_LAYOUT: Choice = Choice::of_layouts(c"cf-layout", CUCKOO_LAYOUTS);
static REDISBLOOM_VERSION: Choice =
    Choice { name: c"redisbloom-version", words: &[c"auto", c"2", c"8"], value: AtomicI32::new(0) };

static DIALECT: Choice =
    Choice { name: c"dialect", words: &[c"redisbloom", c"valkey-bloom"], value: AtomicI32::new(0) };

static CHOICES: [&Choice; 4] = [&LAYOUT, &CF_LAYOUT, &REDISBLOOM_VERSION, &DIALECT];

impl Choice {
    /// Returns a choice of the first layouts, this many.
    const fn of_layouts(name: &'static CStr, count: usize) -> Choice {
        const WORDS: &[&CStr] = &[LAYOUTS[0].name(), LAYOUTS[1].name(), LAYOUTS[2].name()];
        Choice { name, words: WORDS.split_at(count).0, value: AtomicI32::new(0) }
    }

    /// Returns the layout that is chosen.
    fn layout(&self) -> FilterKind {
        usize::try_from(self.get()).ok().and_then(|index| LAYOUTS.get(index)).copied().unwrap_or(FilterKind::Native)
    }

    fn get(&self) -> i32 {
        self.value.load(Ordering::Relaxed)
    }

    fn word(&self) -> &'static CStr {
        usize::try_from(self.get()).ok().and_then(|index| self.words.get(index)).copied().unwrap_or_default()
    }

    /// Chooses a word, ignoring case. Returns `None` if it is not one of the words.
    fn set_word(&self, word: &[u8]) -> Option<()> {
        let index = self.words.iter().position(|known| word.eq_ignore_ascii_case(known.to_bytes()))?;
        self.value.store(i32::try_from(index).ok()?, Ordering::Relaxed);
        Some(())
    }
}

/// The version of RedisBloom that wrote a replication stream or an append-only file. The versions create different
/// filters from the same commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisBloomVersion {
    /// RedisBloom up to 2.8.
    RedisBloom2,
    /// The RedisBloom that is built into Redis 8 and later.
    Redis8,
}

/// Returns the configured version of RedisBloom, or by default the one of the server's version.
pub(crate) fn redisbloom_version() -> RedisBloomVersion {
    const AUTO: i32 = 0;
    const VERSION_2: i32 = 1;
    match REDISBLOOM_VERSION.get() {
        AUTO if feature::is_redis_8() => RedisBloomVersion::Redis8,
        AUTO | VERSION_2 => RedisBloomVersion::RedisBloom2,
        _ => RedisBloomVersion::Redis8,
    }
}

/// Returns the dialect of the replies to the commands of a family. valkey-bloom has no cuckoo filters.
pub(crate) fn dialect(family: &Family) -> Dialect {
    if DIALECT.get() == 0 || *family == CUCKOO { Dialect::RedisBloom } else { Dialect::ValkeyBloom }
}

/// The kinds of filters that clients can choose with the option LAYOUT, and without another option.
pub(crate) const LAYOUTS: [FilterKind; 3] = [FilterKind::Native, FilterKind::Classic, FilterKind::Valkey];

/// The number of them that cuckoo filters have, too.
pub(crate) const CUCKOO_LAYOUTS: usize = 2;

/// Returns the default kind of new filters.
pub(crate) fn layout() -> FilterKind {
    LAYOUT.layout()
}

/// Returns the default layout of new cuckoo filters.
pub(crate) fn cuckoo_layout() -> FilterKind {
    CF_LAYOUT.layout()
}

/// Returns the default number of slots in a bucket of a cuckoo filter.
pub(crate) fn cuckoo_bucket_size() -> u16 {
    CF_BUCKET_SIZE.get() as u16
}

/// Returns the default capacity of new cuckoo filters.
pub(crate) fn cuckoo_initial_size() -> NonZeroU64 {
    NonZeroU64::new(CF_INITIAL_SIZE.get() as u64).unwrap_or(NonZeroU64::MIN)
}

/// Returns the default maximum number of fingerprints that move in a cuckoo filter to make room for another.
pub(crate) fn cuckoo_max_iterations() -> u16 {
    CF_MAX_ITERATIONS.get() as u16
}

/// Returns the default expansion of new cuckoo filters; 0 if they do not grow.
pub(crate) fn cuckoo_expansion() -> u32 {
    CF_EXPANSION_FACTOR.get() as u32
}

/// Returns the number of layers with which a cuckoo filter rejects additions.
pub(crate) fn cuckoo_max_expansions() -> usize {
    CF_MAX_EXPANSIONS.get() as usize
}

/// Returns the default error rate of new filters.
pub(crate) fn error_rate() -> ErrorRate {
    ErrorRate::new(f64::from_bits(ERROR_RATE.load(Ordering::Relaxed)))
        .unwrap_or(const { ErrorRate::new(DEFAULT_ERROR_RATE).unwrap() })
}

/// Returns the default capacity of new filters.
pub(crate) fn initial_size() -> NonZeroU64 {
    NonZeroU64::new(INITIAL_SIZE.get() as u64).unwrap_or(NonZeroU64::MIN)
}

/// Returns the default growth of new filters.
pub(crate) fn growth() -> Growth {
    let factor = u32::try_from(EXPANSION_FACTOR.get()).unwrap_or(0);
    NonZeroU32::new(factor).map_or(Growth::Fixed, Growth::By)
}

/// Returns the maximum number of bytes of a single filter; 0 for no limit.
pub(crate) fn filter_memory_limit() -> u64 {
    FILTER_MEMORY_LIMIT.get() as u64
}

/// Returns the maximum number of bytes of tables that a command merges; 0 for no limit.
pub(crate) fn merge_limit() -> u64 {
    MERGE_LIMIT.get() as u64
}

/// Returns the size in bytes from which filters are prefetched before a command runs; `u64::MAX` for never.
pub(crate) fn lookahead_size() -> u64 {
    match LOOKAHEAD_SIZE.get() as u64 {
        0 => u64::MAX,
        size => size,
    }
}

/// Lists the settings, for the log.
pub(crate) fn describe() -> String {
    let numbers = NUMBERS.map(|number| format!("{} {}", number.name.to_string_lossy(), number.get()));
    let choices =
        CHOICES.map(|choice| format!("{} {}", choice.name.to_string_lossy(), choice.word().to_string_lossy()));
    let rate_name = ERROR_RATE_NAME.to_string_lossy();
    format!("{rate_name} {}, {}, {}", error_rate().get(), numbers.join(", "), choices.join(", "))
}

/// Parses the `name value` pairs given to loadmodule, except for the module's [names](Names::read). Errors are messages
/// for the log.
pub(crate) fn read_arguments(args: Args) -> Result<(), String> {
    let pairs = args.chunks(2).map(|pair| (pair.at(0).lossy(), pair.at(1)));
    let mut settings = pairs.filter(|(name, _)| !Names::are_read_from(name));
    settings.try_for_each(|(name, value)| read_argument(&name, value))
}

/// Parses one pair. `ERROR_RATE`, `bf-error-rate`, `bf.error-rate` and `error-rate` are the same setting. `bf` may also
/// be the module's name on this server.
fn read_argument(given: &str, value: Arg) -> Result<(), String> {
    let name = given.to_ascii_lowercase().replace('_', "-");
    let module = names().module.to_string_lossy().replace('_', "-");
    let without = |start: &str| name.strip_prefix(start)?.strip_prefix(['-', '.']);
    let name = without(&module).or(without("bf")).unwrap_or(&name);
    let shown = value.lossy();
    if name.as_bytes() == ERROR_RATE_NAME.to_bytes() {
        return set_error_rate(value).ok_or(format!("{given} {ERROR_RATE_RANGE}, not '{shown}'"));
    }
    if let Some(choice) = CHOICES.into_iter().find(|choice| choice.name.to_bytes() == name.as_bytes()) {
        let words: Vec<_> = choice.words.iter().map(|word| word.to_string_lossy()).collect();
        let wrong = || format!("{given} must be {}, not '{shown}'", words.join(" or "));
        return choice.set_word(value.bytes()).ok_or_else(wrong);
    }
    if let Some(number) = NUMBERS.iter().find(|number| number.name.to_bytes() == name.as_bytes()) {
        let range = number.min..=number.max;
        let accepted = if number.is_size { size(&shown) } else { value.integer() };
        let accepted = accepted.filter(|value| range.contains(value));
        let unit = if number.is_size { ", or a size such as 512mb or 4gb" } else { "" };
        let accepted = accepted.ok_or(format!(
            "{given} must be a whole number from {} to {}{unit}, not '{shown}'",
            number.min, number.max
        ))?;
        number.set(accepted);
        return Ok(());
    }
    Err(format!("'{given}' is not a setting of this module: see docs/configuration.md"))
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

fn set_error_rate(value: Arg) -> Option<()> {
    let rate = ErrorRate::new(value.float()?)?;
    ERROR_RATE.store(rate.get().to_bits(), Ordering::Relaxed);
    Some(())
}

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
