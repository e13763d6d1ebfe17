//! Keyspace events. The listener reads the key through the module, which is in the middle of a command.

use std::mem;

use super::{Circumstances, OUT_OF_MEMORY, Reply, run, with};

/// A keyspace event.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Event {
    /// The key was created.
    New,
    /// The key was opened for reading, and does not exist.
    Keymiss,
    /// The key was opened, and deleted because it had expired.
    Expired,
}

/// Calls the listener, unless it caused the event itself.
pub(super) fn raise(event: Event, key: &[u8]) {
    if with(|state| mem::replace(&mut state.is_listening, true)) {
        return;
    }
    let is_poor = OUT_OF_MEMORY.replace(false);
    let call = with(|state| mem::take(&mut state.call));
    let exists = if super::is_cuckoo(call.instance, key) { b"CF.EXISTS" } else { b"BF.EXISTS" };
    let words = [exists, key, b"item"].map(<[u8]>::to_vec);
    let outcome = run(call.instance, &words, Circumstances::default()).expect("a command of the module");
    let is_sound = if event == Event::New { !outcome.reply.is_error() } else { outcome.reply == Reply::Integer(0) };
    assert!(is_sound, "{words:?}: {:?}", outcome.reply);
    OUT_OF_MEMORY.set(is_poor);
    with(|state| {
        state.call = call;
        state.is_listening = false;
    });
}
