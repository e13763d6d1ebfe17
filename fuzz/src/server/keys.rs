//! The keys of each instance: the server's operations on them, and the module's open keys.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{InsertOptions, OnDuplicate};
use redis_module::raw;

use super::events::{self, Event};
use super::strings::{Strings, buffer, text};
use super::{Call, Circumstances, ERR, INSTANCES, OK, call_module, check_leaks, with};
use crate::decoding::copies::MEMORY_LIMIT;

/// A server: its keys and its clock.
#[derive(Default)]
pub(super) struct Instance {
    keys: BTreeMap<Vec<u8>, Slot>,
    /// The time, in milliseconds since 1970.
    clock: i64,
}

struct Slot {
    value: Value,
    /// The time at which the key expires.
    expires_at: Option<i64>,
    /// True if the key is deleted as soon as the module opens it.
    is_over: bool,
}

/// The value of a key.
pub(super) enum Value {
    Text,
    /// A value of one of the module's types, by number.
    Module(usize, *mut c_void),
}

/// An open key.
pub(super) struct Key {
    name: Vec<u8>,
    is_writable: bool,
}

/// Returns the keys of an instance, in order.
pub(crate) fn keys(instance: usize) -> Vec<Vec<u8>> {
    with(|state| state.instances[instance].keys.keys().cloned().collect())
}

/// Returns the digest of a filter, which is equal for equal filters, or `None` if there is no filter.
pub(crate) fn digest(instance: usize, key: &[u8]) -> Option<Vec<u8>> {
    let (_, value, methods) = module_value(instance, key)?;
    let mut digest = Vec::new();
    let usage = methods.mem_usage.expect("a callback");
    let effort = methods.free_effort.expect("a callback");
    // SAFETY: the module created the value, and the digest outlives the call.
    unsafe {
        methods.digest.expect("a callback")(ptr::from_mut(&mut digest).cast(), value);
        assert!(usage(value) > 0 && effort(ptr::null_mut(), value) > 0);
    }
    check_leaks();
    Some(digest)
}

/// Returns a copy of a filter, or `None` if there is no filter.
pub(crate) fn copy_of(instance: usize, key: &[u8]) -> Option<Filter> {
    let (_, value, _) = module_value(instance, key)?;
    // SAFETY: all values of the module's types are filters, and nothing changes this one now.
    Some(unsafe { &*value.cast::<Filter>() }.try_clone().expect("little memory"))
}

/// Returns the bytes that a filter would allocate to add items; 0 if there is no filter.
pub(crate) fn growth(instance: usize, key: &[u8], items: &[Vec<u8>]) -> u64 {
    let Some(mut copy) = copy_of(instance, key) else { return 0 };
    let hashes: Vec<_> = items.iter().map(|item| copy.hash(item)).collect();
    let mut wanted = 0u64;
    // An error is ignored: the filter may also be full.
    let _ = copy.insert_hashes(
        &hashes,
        &mut vec![false; hashes.len()],
        &mut [],
        &InsertOptions { is_replay: true, ..OnDuplicate::Count.into() },
        &mut |bytes| {
            wanted = wanted.saturating_add(bytes);
            wanted <= MEMORY_LIMIT
        },
    );
    wanted
}

/// The module's data types, in the order in which it creates them.
pub(crate) const NATIVE: usize = 0;
pub(crate) const NATIVE_CUCKOO: usize = 1;
pub(crate) const CUCKOO: usize = 2;
pub(crate) const VALKEY: usize = 3;
pub(crate) const CLASSIC: usize = 4;

/// Returns the type of a key's value, if it is one of the module's types.
pub(crate) fn data_type(instance: usize, key: &[u8]) -> Option<usize> {
    module_value(instance, key).map(|(data_type, ..)| data_type)
}

/// Returns true if a key has a cuckoo filter.
pub(crate) fn is_cuckoo(instance: usize, key: &[u8]) -> bool {
    [NATIVE_CUCKOO, CUCKOO].map(Some).contains(&data_type(instance, key))
}

/// Returns true if a key has a filter that forgets old items when new ones are added.
pub(crate) fn rolls(instance: usize, key: &[u8]) -> bool {
    let Some((_, value, _)) = module_value(instance, key) else { return false };
    // SAFETY: all values of the module's types are filters, and nothing changes this one now.
    unsafe { &*value.cast::<Filter>() }.windowed().is_some_and(|filter| filter.slices().window().rolling)
}

/// Returns the type, the value and the type's methods, if the value of a key is of one of the module's types.
pub(super) fn module_value(instance: usize, key: &[u8]) -> Option<(usize, *mut c_void, raw::RedisModuleTypeMethods)> {
    with(|state| match state.instances[instance].keys.get(key) {
        Some(&Slot { value: Value::Module(data_type, value), .. }) => {
            Some((data_type, value, state.types[data_type].methods))
        }
        _ => None,
    })
}

/// Sets the value of a key to a text.
pub(crate) fn set_text(instance: usize, key: &[u8]) {
    put(instance, key, Value::Text);
}

/// Sets the value of a key. The previous value and expiry are removed.
pub(super) fn put(instance: usize, key: &[u8], value: Value) {
    remove(instance, key);
    let slot = Slot { value, expires_at: None, is_over: false };
    with(|state| state.instances[instance].keys.insert(key.to_vec(), slot));
}

/// Calls `f` with the slot of a key, if it exists.
fn with_slot<T>(instance: usize, key: &[u8], f: impl FnOnce(&mut Slot) -> T) -> Option<T> {
    with(|state| state.instances[instance].keys.get_mut(key).map(f))
}

/// Sets the address of a filter that was moved.
pub(super) fn set_address(instance: usize, key: &[u8], address: *mut c_void) {
    with_slot(instance, key, |slot| {
        if let Value::Module(_, value) = &mut slot.value {
            *value = address;
        }
    });
}

/// Deletes a key, if it exists.
pub(crate) fn delete(instance: usize, key: &[u8]) {
    remove(instance, key);
    check_leaks();
}

/// Removes a key, and frees its value.
fn remove(instance: usize, key: &[u8]) {
    let removed = with(|state| state.instances[instance].keys.remove(key));
    if let Some(Slot { value: Value::Module(number, value), .. }) = removed {
        let free = with(|state| state.types[number].methods.free).expect("a callback");
        // SAFETY: the module created the value, which is not used after this call.
        unsafe { free(value) };
    }
}

/// Makes a key expire when the module opens it, or at [`delete_expired`].
pub(crate) fn expire(instance: usize, key: &[u8]) {
    with_slot(instance, key, |slot| slot.is_over = true);
}

/// Sets the time at which a key expires.
pub(crate) fn set_expire_time(instance: usize, key: &[u8], time: i64) {
    with_slot(instance, key, |slot| slot.expires_at = Some(time));
}

/// Returns the time at which a key expires, if it does.
pub(crate) fn expire_time(instance: usize, key: &[u8]) -> Option<i64> {
    with_slot(instance, key, |slot| slot.expires_at)?
}

/// Deletes the keys that have expired and were not opened. Keys do not expire by themselves when the clock advances.
pub(crate) fn delete_expired() {
    let is_over = |instance, key: &[u8]| with_slot(instance, key, |slot| slot.is_over) == Some(true);
    for instance in 0..INSTANCES {
        keys(instance).iter().filter(|key| is_over(instance, key)).for_each(|key| delete(instance, key));
    }
}

/// Sets the clock of an instance, in milliseconds since 1970.
pub(crate) fn set_clock(instance: usize, time: i64) {
    with(|state| state.instances[instance].clock = time);
}

/// Deletes all keys of an instance.
pub(crate) fn flush(instance: usize) {
    keys(instance).iter().for_each(|key| delete(instance, key));
}

/// Renames a key. Returns true if it existed.
pub(crate) fn rename(instance: usize, from: &[u8], to: &[u8]) -> bool {
    let Some(slot) = with(|state| state.instances[instance].keys.remove(from)) else { return false };
    delete(instance, to);
    with(|state| state.instances[instance].keys.insert(to.to_vec(), slot));
    true
}

/// Copies a filter, and the time at which it expires. Returns true if the module could copy it.
pub(crate) fn copy(instance: usize, from: &[u8], to: &[u8], circumstances: Circumstances) -> bool {
    let Some((data_type, value, methods)) = module_value(instance, from) else { return false };
    with(|state| state.call = Call { circumstances, instance, ..Call::default() });
    let names = Strings::new(&[from.to_vec(), to.to_vec()]);
    // SAFETY: the module created the value, and the names outlive the call.
    let copy = call_module(|| unsafe { methods.copy.expect("a callback")(names.0[0], names.0[1], value) });
    drop(names);
    check_leaks();
    if copy.is_null() {
        return false;
    }
    put(instance, to, Value::Module(data_type, copy));
    expire_time(instance, from).into_iter().for_each(|time| set_expire_time(instance, to, time));
    true
}

/// Returns the handle of a data type: an address without an object.
pub(super) fn handle(data_type: usize) -> *mut raw::RedisModuleType {
    ptr::without_provenance_mut(data_type + 1)
}

pub(super) unsafe extern "C" fn is_keys_position_request(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    with(|state| state.call.is_request).into()
}

pub(super) unsafe extern "C" fn key_at_pos(_ctx: *mut raw::RedisModuleCtx, position: c_int) {
    with(|state| {
        assert!(state.call.is_request);
        state.call.keys.insert(position as usize)
    });
}

pub(super) unsafe extern "C" fn key_at_pos_with_flags(ctx: *mut raw::RedisModuleCtx, position: c_int, _flags: c_int) {
    // SAFETY: `key_at_pos` has the same contract as this function.
    unsafe { key_at_pos(ctx, position) }
}

pub(super) unsafe extern "C" fn open_key(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    mode: c_int,
) -> *mut raw::RedisModuleKey {
    // SAFETY: the string comes from the mock.
    let name = unsafe { text(name) };
    let is_writable = mode as u32 & raw::REDISMODULE_WRITE != 0;
    let instance = with(|state| {
        let call = &state.call;
        let is_named = call.keys.iter().any(|&position| call.words.get(position).is_some_and(|word| word == name));
        assert!(is_named, "the command does not name this key: {name:?}");
        assert!(call.may_write || !is_writable);
        call.instance
    });
    if with_slot(instance, name, |slot| slot.is_over) == Some(true) {
        remove(instance, name);
        events::raise(Event::Expired, name);
    }
    if with_slot(instance, name, |_| ()).is_none() && !is_writable {
        events::raise(Event::Keymiss, name);
        return ptr::null_mut();
    }
    with(|state| state.call.open_keys += 1);
    Box::into_raw(Box::new(Key { name: name.to_vec(), is_writable })).cast()
}

pub(super) unsafe extern "C" fn close_key(key: *mut raw::RedisModuleKey) {
    with(|state| state.call.open_keys -= 1);
    // SAFETY: the key is open, and is not used after this call.
    drop(unsafe { Box::from_raw(key.cast::<Key>()) });
}

/// Calls `f` with the value of an open key.
pub(super) fn with_value<T>(key: *mut raw::RedisModuleKey, f: impl FnOnce(Option<&Value>) -> T) -> T {
    // SAFETY: the key is open.
    let key = unsafe { &*key.cast::<Key>() };
    with(|state| f(state.instances[state.call.instance].keys.get(&key.name).map(|slot| &slot.value)))
}

pub(super) unsafe extern "C" fn key_type(key: *mut raw::RedisModuleKey) -> c_int {
    with_value(key, |value| match value {
        None => raw::REDISMODULE_KEYTYPE_EMPTY,
        Some(Value::Text) => raw::REDISMODULE_KEYTYPE_STRING,
        Some(Value::Module(..)) => raw::REDISMODULE_KEYTYPE_MODULE,
    }) as c_int
}

pub(super) unsafe extern "C" fn module_type_get_type(key: *mut raw::RedisModuleKey) -> *mut raw::RedisModuleType {
    with_value(key, |value| if let Some(Value::Module(number, _)) = value { handle(*number) } else { ptr::null_mut() })
}

pub(super) unsafe extern "C" fn module_type_get_value(key: *mut raw::RedisModuleKey) -> *mut c_void {
    with_value(key, |value| if let Some(Value::Module(_, value)) = value { *value } else { ptr::null_mut() })
}

pub(super) unsafe extern "C" fn module_type_set_value(
    key: *mut raw::RedisModuleKey,
    data_type: *mut raw::RedisModuleType,
    value: *mut c_void,
) -> c_int {
    // SAFETY: the key is open.
    let key = unsafe { &*key.cast::<Key>() };
    assert!(key.is_writable && !value.is_null());
    let instance = with(|state| state.call.instance);
    put(instance, &key.name, Value::Module(data_type.addr() - 1, value));
    events::raise(Event::New, &key.name);
    OK
}

/// Returns the time of the running command's instance.
pub(super) unsafe extern "C" fn milliseconds() -> raw::mstime_t {
    with(|state| state.instances[state.call.instance].clock)
}

/// Returns the time to live of a key, or -1 if it has none.
pub(super) unsafe extern "C" fn get_expire(key: *mut raw::RedisModuleKey) -> raw::mstime_t {
    // SAFETY: the key is open.
    let name = unsafe { &(*key.cast::<Key>()).name };
    with(|state| {
        let instance = &state.instances[state.call.instance];
        let time = instance.keys.get(name).and_then(|slot| slot.expires_at);
        time.map_or(-1, |time| (time - instance.clock).max(0))
    })
}

/// Sets the time to live of a key.
pub(super) unsafe extern "C" fn set_expire(key: *mut raw::RedisModuleKey, left: raw::mstime_t) -> c_int {
    assert!(left >= 0);
    // SAFETY: `set_abs_expire` has the same contract as this function.
    unsafe { set_abs_expire(key, milliseconds().saturating_add(left)) }
}

/// Sets the time at which a key expires.
pub(super) unsafe extern "C" fn set_abs_expire(key: *mut raw::RedisModuleKey, time: raw::mstime_t) -> c_int {
    // SAFETY: the key is open.
    let Key { name, is_writable } = unsafe { &*key.cast::<Key>() };
    assert!(*is_writable && time >= 0);
    let instance = with(|state| state.call.instance);
    let set = with_slot(instance, name, |slot| slot.expires_at = Some(time));
    if set.is_some() { OK } else { ERR }
}

pub(super) unsafe extern "C" fn signal_modified_key(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the string comes from the mock.
    let name = unsafe { text(name) }.to_vec();
    with(|state| {
        assert_eq!(state.call.open_keys, 0, "an open key, which listeners may change");
        state.call.signalled.insert(name);
    });
    OK
}

pub(super) unsafe extern "C" fn notify_keyspace_event(
    _ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    _event: *const c_char,
    name: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the string comes from the mock.
    let name = unsafe { text(name) };
    assert!(with(|state| state.call.signalled.contains(name)));
    OK
}

pub(super) unsafe extern "C" fn digest_add_string_buffer(
    digest: *mut raw::RedisModuleDigest,
    start: *const c_char,
    length: usize,
) {
    // SAFETY: `digest` is what a callback was called with. The module passes a buffer of this length.
    unsafe { (*digest.cast::<Vec<u8>>()).extend_from_slice(buffer(start, length)) };
}

pub(super) unsafe extern "C" fn digest_end_sequence(_digest: *mut raw::RedisModuleDigest) {}
