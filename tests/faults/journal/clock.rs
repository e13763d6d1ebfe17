//! The time of filters that forget, on all servers.

use std::sync::RwLock;

use redis::{Connection, RedisResult};

use models::random::Random;
use testkit::clock::{SECOND, try_turn, turn};
use testkit::{Server, Setup};

/// The clock of all servers in a test, for their filters that forget.
#[derive(Default)]
pub(crate) struct Clock(pub(crate) RwLock<i64>);

impl Clock {
    /// Starts a server with this clock.
    pub(crate) fn start(&self, setup: Setup) -> Server {
        let server = setup.start();
        self.tell(&mut server.connect());
        server
    }

    /// Sets the time of a server. Returns the time.
    pub(crate) fn tell(&self, client: &mut Connection) -> i64 {
        let now = *self.0.read().expect("no writer panicked");
        turn(client, now);
        now
    }

    /// Advances the time by up to two slices while no server runs.
    pub(crate) fn pass(&self, random: &mut Random) {
        *self.0.write().expect("no writer panicked") += random.below(3) as i64 * SECOND;
    }

    /// Advances the time by up to three slices, between the commands of all writers.
    pub(crate) fn go_on(&self, random: &mut Random, client: &mut Connection) -> RedisResult<()> {
        let mut now = self.0.write().expect("no writer panicked");
        *now += (1 + random.below(3)) as i64 * SECOND;
        try_turn(client, *now)
    }
}
