//! Keyspace events, and what a listener may do when one is raised: read the key through the module, which is in the middle of a
//! command.

use std::mem;

use super::{Circumstances, POOR, Reply, run, with};

/// What happened to a key, by the name of the event.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Event {
    /// It was created.
    New,
    /// It was opened to be read, and is not there.
    Keymiss,
    /// It was opened, and deleted because it had expired.
    Expired,
}

/// Calls the listener, unless it caused the event itself.
pub(super) fn raise(event: Event, key: &[u8]) {
    if with(|state| mem::replace(&mut state.is_listening, true)) {
        return;
    }
    let is_poor = POOR.replace(false);
    let call = with(|state| mem::take(&mut state.call));
    let words = [b"BF.EXISTS", key, b"item"].map(<[u8]>::to_vec);
    let outcome = run(call.space, &words, Circumstances::default()).expect("a command that there is");
    let is_sound = if event == Event::New { !outcome.reply.is_error() } else { outcome.reply == Reply::Integer(0) };
    assert!(is_sound, "{words:?}: {:?}", outcome.reply);
    POOR.set(is_poor);
    with(|state| {
        state.call = call;
        state.is_listening = false;
    });
}
