//! The last changes of the filters that clients follow: a ring of the hashes of new items for each.
//!
//! A client copies a filter once. Then it asks every now and then for the items that became new, and inserts their
//! hashes into its copy (BF.CHANGES). A ring belongs to a filter of this server: it is not saved, replicated or copied.
//!
//! Rings are kept here by the addresses of their filters, and not in the values, so that a filter that nobody follows
//! takes no more memory. An addition then takes one branch while no filter is followed, and else finds out by a bit of
//! [`MAY_BE_FOLLOWED`] that its own is not.
//!
//! A ring has an *epoch*, a random number, and a cursor names the epoch and a position in it. So a cursor is rejected if
//! its ring is gone, for whatever reason. A ring is dropped if something other than additions changes the filter, and
//! when nobody has asked for a minute.

use std::fmt;
use std::ptr;
use std::str;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::reply_error::{Error, Limit};
use crate::server::Context;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CHANGE_BYTES, Hash, try_vec};

/// The time after which a ring is dropped if nobody asks for its changes, in milliseconds.
const IDLE: u64 = 60_000;

/// The place after a change, and so before the next one.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Cursor {
    epoch: u64,
    position: u64,
}

impl Cursor {
    pub(crate) fn parse(text: &[u8]) -> Option<Cursor> {
        let (epoch, position) = str::from_utf8(text).ok()?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Cursor { epoch: number(epoch)?, position: number(position)? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}", self.epoch, self.position)
    }
}

/// The last changes of a filter.
struct Ring {
    /// The address of the filter.
    filter: usize,
    /// The cursor after the last change. Its position is the number of changes of the epoch.
    end: Cursor,
    /// The last changes. The one at position `p` has the index `p` modulo the capacity.
    hashes: Vec<Hash>,
    /// The time of the last question, in milliseconds since 1970.
    asked: u64,
}

/// All rings, in the order of the addresses of their filters.
static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

/// The bits of all filters with a ring. One in 64 other filters has the bit of a given one, too.
static MAY_BE_FOLLOWED: AtomicU64 = AtomicU64::new(0);

fn rings() -> MutexGuard<'static, Vec<Ring>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn bit(address: usize) -> u64 {
    1 << ((address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

#[inline]
fn may_be_followed(filter: *const Filter) -> bool {
    MAY_BE_FOLLOWED.load(Ordering::Relaxed) & bit(filter.addr()) != 0
}

/// Keeps `rings` in order after one was removed, or got another address.
fn arrange(rings: &mut [Ring]) {
    rings.sort_unstable_by_key(|ring| ring.filter);
    MAY_BE_FOLLOWED.store(rings.iter().fold(0, |bits, ring| bits | bit(ring.filter)), Ordering::Relaxed);
}

fn find(rings: &[Ring], filter: *const Filter) -> Result<usize, usize> {
    rings.binary_search_by_key(&filter.addr(), |ring| ring.filter)
}

impl Ring {
    fn push(&mut self, hash: Hash) {
        if self.hashes.len() < self.hashes.capacity() {
            self.hashes.push(hash);
        } else {
            let index = self.index(self.end.position);
            self.hashes[index] = hash;
        }
        self.end.position += 1;
    }

    fn index(&self, position: u64) -> usize {
        (position % self.hashes.capacity() as u64) as usize
    }
}

/// Returns the cursor after the last change of a filter. Gives it a ring of `bytes` if it has none. Returns `None` if
/// there is no memory for that, or `admit` rejects it.
pub(crate) fn follow(ctx: &Context, filter: &Filter, bytes: u64, admit: impl FnOnce(u64) -> bool) -> Option<Cursor> {
    let mut rings = rings();
    let index = match find(&rings, filter) {
        Ok(index) => index,
        Err(index) => {
            let bytes = bytes.max(CHANGE_BYTES as u64);
            if !admit(bytes) {
                return None;
            }
            let hashes = try_vec(usize::try_from(bytes).ok()? / CHANGE_BYTES).ok()?;
            rings.try_reserve(1).ok()?;
            let end = Cursor { epoch: ctx.random(), position: 0 };
            rings.insert(index, Ring { filter: ptr::from_ref(filter).addr(), end, hashes, asked: 0 });
            arrange(&mut rings);
            index
        }
    };
    rings[index].asked = ctx.now();
    Some(rings[index].end)
}

/// Returns up to `count` changes of a filter since a cursor, as bytes, and the cursor after them.
pub(crate) fn since(ctx: &Context, filter: &Filter, cursor: Cursor, count: u64) -> Result<(Cursor, Vec<u8>), Error> {
    let mut rings = rings();
    let ring = find(&rings, filter).map(|index| &mut rings[index]).map_err(|_| Error::ChangesGone)?;
    let oldest = ring.end.position - ring.hashes.len() as u64;
    if cursor.epoch != ring.end.epoch || !(oldest..=ring.end.position).contains(&cursor.position) {
        return Err(Error::ChangesGone);
    }
    ring.asked = ctx.now();
    let positions = cursor.position..ring.end.position.min(cursor.position.saturating_add(count));
    let end = Cursor { position: positions.end, ..cursor };
    let bytes = (positions.end - positions.start) as usize * CHANGE_BYTES;
    let mut changes = try_vec(bytes).map_err(|_| Error::NoMemory(Limit::System))?;
    positions.for_each(|position| changes.extend_from_slice(&ring.hashes[ring.index(position)].to_bytes()));
    Ok((end, changes))
}

/// Records the items that were new to a filter, if it is followed: those whose element of `new` is true.
#[inline]
pub(crate) fn record(filter: &Filter, hashes: &[Hash], new: &[bool]) {
    // The bit is looked at later: finding it takes 6 instructions, 1 % of BF.ADD.
    if MAY_BE_FOLLOWED.load(Ordering::Relaxed) != 0 {
        record_in_ring(filter, hashes, new);
    }
}

#[cold]
#[inline(never)]
fn record_in_ring(filter: &Filter, hashes: &[Hash], new: &[bool]) {
    if !may_be_followed(filter) {
        return;
    }
    let mut rings = rings();
    if let Ok(index) = find(&rings, filter) {
        let new = hashes.iter().zip(new).filter(|(_, is_new)| **is_new);
        new.for_each(|(&hash, _)| rings[index].push(hash));
    }
}

/// Drops the ring of a filter that is about to be freed, or that something other than additions has changed.
pub(crate) fn forget(filter: *const Filter) {
    if may_be_followed(filter) {
        drop_if(|ring| ring.filter == filter.addr());
    }
}

/// Drops the rings of filters that nobody has asked for.
pub(crate) fn drop_idle(ctx: &Context) {
    if MAY_BE_FOLLOWED.load(Ordering::Relaxed) != 0 {
        let now = ctx.now();
        // Also if the clock was set back.
        drop_if(|ring| now.abs_diff(ring.asked) >= IDLE);
    }
}

fn drop_if(is_over: impl Fn(&Ring) -> bool) {
    let mut rings = rings();
    rings.retain(|ring| !is_over(ring));
    arrange(&mut rings);
}

/// Records that a filter has another address now.
pub(crate) fn moved(from: *const Filter, to: *const Filter) {
    let mut rings = rings();
    if let Ok(index) = find(&rings, from) {
        rings[index].filter = to.addr();
        arrange(&mut rings);
    }
}

/// Returns the bytes of the ring of a filter.
pub(crate) fn memory_usage(filter: &Filter) -> usize {
    let rings = rings();
    let bytes = |index: usize| size_of::<Ring>() + rings[index].hashes.capacity() * CHANGE_BYTES;
    find(&rings, filter).map_or(0, bytes)
}
