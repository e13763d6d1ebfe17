//! Rejected commands: the log tells of some, `INFO bf` of the last.
//!
//! Any client can have commands rejected, as often as it likes. So the log gets at most one line a second for each
//! [`Reason`], which also says how many it stands for. The module allocates nothing for it: a command may be rejected
//! for lack of memory.

use std::fmt::{self, Write as _};
use std::sync::Mutex;

use crate::rejection_reason::Reason;
use crate::reply_error::Error;
use crate::server::{Args, Context, feature};
use crate::statistics;

/// The least time between two lines about one reason, in milliseconds.
const INTERVAL: i64 = 1000;

/// Rejections for one reason.
#[derive(Clone, Copy)]
struct Logged {
    /// When the last line was logged, in milliseconds since 1970.
    at: Option<i64>,
    /// Rejections since then.
    left_out: u64,
}

struct Rejections {
    /// By reason; the last is for internal errors, which have none.
    logged: [Logged; Reason::ALL.len() + 1],
    /// The last rejection, as INFO shows it.
    last: Line,
}

static REJECTIONS: Mutex<Rejections> =
    Mutex::new(Rejections { logged: [Logged { at: None, left_out: 0 }; Reason::ALL.len() + 1], last: Line::new() });

/// Counts a rejected command, keeps it for INFO, and logs it unless there was a line like it a moment ago.
pub(crate) fn record(ctx: &Context, args: Args, error: Error) {
    statistics::count_rejection(error);
    let is_replicated = ctx.is_replicated_or_loading();
    if is_replicated {
        statistics::count_replicated_rejection();
    }
    let now = ctx.milliseconds();
    let mut rejection = Line::new();
    rejection.describe(ctx, args, error, is_replicated);
    // Only a crash report on another thread can hold the lock.
    let Ok(mut rejections) = REJECTIONS.try_lock() else { return };
    rejections.last = Line::new();
    let _ = write!(rejections.last, "{} {}", now / 1000, rejection.text());
    let index = error.reason().map_or(Reason::ALL.len(), |reason| reason as usize);
    let logged = &mut rejections.logged[index];
    // What came from the master or a file is never left out: no client was told. A clock may be set back.
    if !is_replicated && logged.at.is_some_and(|at| (at..at + INTERVAL).contains(&now)) {
        logged.left_out += 1;
        return;
    }
    let left_out = std::mem::replace(logged, Logged { at: Some(now), left_out: 0 }).left_out;
    drop(rejections);
    let mut line = Line::new();
    let _ = write!(line, "rejected {}", rejection.text());
    if left_out > 0 {
        let _ = write!(line, " (and {left_out} like it since the last such line)");
    }
    ctx.log_line(if is_replicated { c"warning" } else { c"notice" }, line.as_c_str());
}

/// Hands the last rejection to `show`, if there was one.
pub(crate) fn show_last(show: impl FnOnce(&std::ffi::CStr)) {
    // INFO is also written into crash reports, while the lock may be held.
    if let Ok(rejections) = REJECTIONS.try_lock()
        && !rejections.last.text().is_empty()
    {
        show(rejections.last.as_c_str());
    }
}

/// A line of text of bounded length, with room for a final NUL. Longer text is cut off.
struct Line {
    bytes: [u8; Line::MAX + 1],
    length: usize,
}

impl Line {
    const MAX: usize = 1023;

    const fn new() -> Line {
        Line { bytes: [0; Line::MAX + 1], length: 0 }
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// Writes which command was rejected, for which key, from whom, and why.
    fn describe(&mut self, ctx: &Context, args: Args, error: Error, is_replicated: bool) {
        let mut words = args.iter();
        if let Some(name) = words.next() {
            let _ = write!(self, "{}", name.shown());
        }
        if let Some(key) = words.next() {
            let _ = write!(self, " '{}'", key.shown());
        }
        if is_replicated {
            let _ = self.write_str(" of the master or the append-only file");
        } else {
            self.describe_client(ctx);
        }
        let _ = write!(self, ": {}", error.text().to_str().unwrap_or_default());
    }

    /// Writes the client's address, or its number where the server cannot be asked for that, and its user.
    fn describe_client(&mut self, ctx: &Context) {
        let id = ctx.client_id();
        if id == 0 || !ctx.has_connection() {
            return;
        }
        // Other modules may run a command for a client without a connection. Valkey 9.1 crashes when it is asked for
        // the address of one, and nothing tells it from others.
        if feature::is_valkey() {
            let _ = write!(self, " from client {id}");
        } else if !ctx.show_address(id, |address, port| {
            let _ = write!(self, " from {address}:{port}");
        }) {
            return;
        }
        if let Some(user) = ctx.user_name(id) {
            let _ = write!(self, " (user '{}')", user.as_arg().shown());
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Some clients take a value of INFO that has an equals sign for a list of pairs.
        for character in text.chars().map(|character| if character == '=' { '~' } else { character }) {
            let length = character.len_utf8();
            if self.length + length > Line::MAX {
                return Err(fmt::Error);
            }
            character.encode_utf8(&mut self.bytes[self.length..]);
            self.length += length;
        }
        Ok(())
    }
}
