//! A client whose requests for memory fail, one after the other.

use redis::Connection;

use crate::memory::filling::Words;
use testkit::command::with_items;
use testkit::filter_model::FilterModel;
use testkit::info::{digest, used_memory};
use testkit::memory::{grow, starving};
use testkit::run;
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
                let (reply, requests) = starving(&mut self.asks, request, least, |asks| asks.run_words(command));
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

    /// Fails each request of commands, given with the least number of their requests. Deletes the key `new` after each.
    pub(crate) fn fail_all(&mut self, case: &str, commands: &[(u64, Words)]) {
        for (least, command) in commands {
            let requests = self.fail_each_request(command);
            let shown = String::from_utf8_lossy(&command[0]);
            assert!(requests >= *least, "{case}: {shown} made {requests} requests");
            run(&mut self.looks, "DEL new").unwrap();
        }
    }

    /// Adds items to the filter `grown` one by one, until `rejected` additions have needed memory and failed, or the
    /// filter has `most` items.
    pub(crate) fn fail_additions(&mut self, grown: &mut FilterModel, rejected: u64, most: usize) -> u64 {
        let command = format!("{}.ADD grown", grown.family.prefix());
        let mut failures = 0;
        for number in 1_000_000.. {
            if failures == rejected || grown.items.len() == most {
                break;
            }
            let command = with_items(&command, &[number]);
            let (reply, _) = starving(&mut self.asks, 1, self.least, |asks| asks.run_words(&command));
            if reply.is_error() {
                assert_eq!(reply, Reply::error(grow::SYSTEM));
                assert!(self.fail_each_request(&command) > 0);
                failures += 1;
            }
            grown.items.insert(number);
        }
        failures
    }

    /// Removes an item by a command, given up to the item, while one of the first requests for memory fails. Removals
    /// succeed even if there is no memory for a smaller filter.
    pub(crate) fn remove_while_starving(&mut self, command: &str, number: u64) {
        let words = with_items(command, &[number]);
        let (reply, _) = starving(&mut self.asks, 1 + number % 4, LEAST_OF_TABLES, |asks| asks.run_words(&words));
        assert_eq!(reply, Reply::Integer(1), "{command} {number}");
    }
}
