//! Stops and sets the clock of filters that forget, and that of a server.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use redis::{Connection, Value};

use crate::command::run;
use crate::modules::{false_clock, oxbloom_with_faults, preloading};
use crate::replication::Pair;
use crate::server::{Server, Setup, with_debug};

/// The start time of tests, in milliseconds since 1970.
const BEGIN: i64 = 1_800_000_000_000;

/// A second, in the unit of the clock.
pub const SECOND: i64 = 1000;

/// Returns the setup of a server whose clock can be stopped.
pub fn with_clock() -> Setup {
    with_debug(Setup::with_module(oxbloom_with_faults())).set("repl-diskless-sync-delay 0")
}

/// Starts a server with a stopped clock, so that results do not depend on the duration of a test.
pub fn stopped(setup: Setup) -> Server {
    let server = setup.start();
    turn(&mut server.connect(), 0);
    server
}

/// Starts a master and its replica with stopped clocks.
pub fn stopped_pair(master: Setup, replica: Setup) -> Pair {
    let pair = Pair::start(master, replica);
    for server in [&pair.master, &pair.replica] {
        turn(&mut server.connect(), 0);
    }
    pair
}

/// Stops the clock at a time, in milliseconds after the start time.
pub fn turn(client: &mut Connection, milliseconds: i64) {
    assert_eq!(run(client, &format!("BF.CLOCK any {}", time_at(milliseconds))), Ok(Value::Okay));
}

/// Lets a server's clock be off by the offset in a file.
pub fn with_false_clock(setup: Setup, file: &Path) -> Setup {
    setup.under(preloading(&false_clock(), &[("FALSE_CLOCK_FILE", file)]))
}

/// Sets the offset of a server's clock, in milliseconds. The server has the file in memory, so it must not be replaced.
pub fn set_offset(file: &Path, milliseconds: i64) {
    let file = File::options().create(true).truncate(false).write(true).open(file);
    file.and_then(|file| file.write_all_at(&milliseconds.to_ne_bytes(), 0)).expect("a file");
}

/// Converts a time after the start time to milliseconds since 1970.
pub fn time_at(milliseconds: i64) -> i64 {
    BEGIN.saturating_add(milliseconds)
}
