//! A client whose requests for memory fail, one after the other.

use redis::Connection;

use crate::memory::filling::Words;
use testkit::info::{digest, used_memory};
use testkit::server::wait_until;
use testkit::wire::{Reply, Wire};

/// The minimum size of a request that BF.STARVE counts and fails, in bytes. Smaller requests include those of the
/// server itself, which must not fail.
pub(crate) const LEAST: u64 = 32 << 10;

/// The same for commands on small tables, which make small allocations.
pub(crate) const LEAST_OF_TABLES: u64 = 1 << 10;

/// A client that runs commands with failing allocations, and a client that checks the effects.
pub(crate) struct Clients {
    pub asks: Wire,
    pub looks: Connection,
    /// The minimum size of a request that may fail, in bytes.
    pub least: u64,
}

impl Clients {
    /// Fails each of a command's memory requests in turn, until the command succeeds. Returns the number of requests.
    /// Checks that each failure is an error, changes nothing and leaks nothing.
    pub(crate) fn fail_each_request(&mut self, command: &Words) -> u64 {
        const TIMES: u64 = 20;
        let least = self.least;
        const REJECTIONS: [&str; 3] =
            ["ERR Insufficient memory", "ERR Bad data format", "ERR module key failed to copy"];
        let shown = String::from_utf8_lossy(&command[0]).into_owned();
        let before = digest(&mut self.looks);
        for request in 1.. {
            let mut used = 0;
            for time in 0..TIMES {
                self.asks.run(&format!("BF.STARVE key {request} {least}"));
                let reply = self.asks.run_words(command);
                let requests = self.asks.run(&format!("BF.STARVE key 0 {least}")).integer() as u64;
                let end = if let Reply::Array(elements) = &reply { elements.last().unwrap_or(&reply) } else { &reply };
                // A request is repeated if the allocator returns unaligned memory, so the number of requests can vary.
                let Reply::Error(rejection) = end else { return requests };
                assert!(REJECTIONS.iter().any(|expected| rejection.starts_with(expected)), "{shown}: {rejection}");
                assert_eq!(requests, request, "{shown} made further requests after one had failed");
                if time == 0 {
                    used = used_memory(&mut self.looks);
                }
            }
            assert_eq!(digest(&mut self.looks), before, "request {request} failed, but {shown} changed something");
            let returned = format!("{shown} has freed its memory after request {request} failed");
            wait_until(&returned, || used_memory(&mut self.looks) < used + TIMES * least.max(LEAST / 8) / 2);
        }
        unreachable!("all commands succeed in the end")
    }
}
