//! Rejected commands: writes them to the log, and shows the last one in `INFO bf`.
//!
//! A client can have any number of commands rejected. So the log gets at most one line a second for each [`Reason`].
//! The line also counts the rejections that were left out before it. This module allocates nothing: a command may be
//! rejected for lack of memory.

use std::fmt::{self, Write as _};
use std::sync::Mutex;

use crate::names::named;
use crate::reply_error::{Error, Reason};
use crate::server::{Args, Context, feature};
use crate::statistics;

/// The minimum time between two log lines for one reason, in milliseconds.
const INTERVAL: i64 = 1000;

/// The log lines for one reason.
#[derive(Clone, Copy)]
struct Logged {
    /// The time of the last line, in milliseconds since 1970.
    at: Option<i64>,
    /// The number of rejections since then that were not logged.
    left_out: u64,
}

struct Rejections {
    /// The log lines by reason. The last element is for internal errors, which have no reason.
    logged: [Logged; Reason::ALL.len() + 1],
    /// The last rejection, as INFO shows it.
    last: LogLine,
}

static REJECTIONS: Mutex<Rejections> =
    Mutex::new(Rejections { logged: [Logged { at: None, left_out: 0 }; Reason::ALL.len() + 1], last: LogLine::new() });

/// Counts a rejected command, stores it for INFO, and logs it unless a command was just logged for the same reason.
pub(crate) fn record(ctx: &Context, args: Args, error: Error) {
    let is_replicated = ctx.is_replicated_or_loading();
    statistics::count_rejection(error, is_replicated);
    let now = ctx.milliseconds();
    let mut rejection = LogLine::new();
    rejection.describe(ctx, args, error, is_replicated);
    // Only a crash report on another thread can hold the lock: skip the record then.
    let Ok(mut rejections) = REJECTIONS.try_lock() else { return };
    rejections.last = LogLine::new();
    let _ = write!(rejections.last, "{} {}", now / 1000, rejection.text());
    let index = error.reason().map_or(Reason::ALL.len(), |reason| reason as usize);
    let logged = &mut rejections.logged[index];
    // Commands from the master or a file are always logged, since no client sees the error. `contains` also allows for
    // a clock that was set back.
    if !is_replicated && logged.at.is_some_and(|at| (at..at + INTERVAL).contains(&now)) {
        logged.left_out += 1;
        return;
    }
    let left_out = std::mem::replace(logged, Logged { at: Some(now), left_out: 0 }).left_out;
    drop(rejections);
    let mut line = LogLine::new();
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

/// A line of text of bounded length, followed by a NUL. Longer text is cut off.
struct LogLine {
    bytes: [u8; LogLine::MAX + 1],
    length: usize,
}

impl LogLine {
    const MAX: usize = 1023;

    const fn new() -> LogLine {
        LogLine { bytes: [0; LogLine::MAX + 1], length: 0 }
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// Writes the rejected command, its key, its client, and the error.
    fn describe(&mut self, ctx: &Context, args: Args, error: Error, is_replicated: bool) {
        let mut first = args.iter();
        if let Some(name) = first.next() {
            let _ = write!(self, "{}", name.shown());
        }
        if let Some(key) = first.next() {
            let _ = write!(self, " '{}'", key.shown());
        }
        if is_replicated {
            let _ = self.write_str(" from the master or the append-only file");
        } else {
            self.describe_client(ctx);
        }
        let _ = write!(self, ": {}", named(error.text().to_str().unwrap_or_default()));
        if let Some(position) = error.unknown_argument() {
            let _ = write!(self, " '{}'", args.at(position).shown());
        }
    }

    /// Writes the client's address, or its ID on servers that cannot report the address, and its user.
    fn describe_client(&mut self, ctx: &Context) {
        let id = ctx.client_id();
        if id == 0 || !ctx.has_connection() {
            return;
        }
        // Another module may run a command for a client without a connection. Valkey 9.1 crashes if asked for the
        // address of such a client, and a module cannot tell such a client from others.
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

impl fmt::Write for LogLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Some clients parse a value of INFO with an equals sign as a list of pairs.
        for character in text.chars().map(|character| if character == '=' { '~' } else { character }) {
            let length = character.len_utf8();
            if self.length + length > LogLine::MAX {
                return Err(fmt::Error);
            }
            character.encode_utf8(&mut self.bytes[self.length..]);
            self.length += length;
        }
        Ok(())
    }
}
