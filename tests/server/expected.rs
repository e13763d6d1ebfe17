//! Replies and errors that the tests of several families of commands expect.

use testkit::Server;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// Defaults that differ from the usual ones. A loaded or restored filter must not depend on them.
pub(crate) const OTHER_DEFAULTS: &str = "error-rate 0.2 initial-size 7 expansion-factor 5 cf-layout classic \
                                         cf-bucket-size 3 cf-initial-size 9 cf-max-iterations 3 cf-expansion-factor 4";

pub(crate) const FULL: &str = "ERR non scaling filter is full";

/// Returns a connection for each protocol, with its replies for true and false.
pub(crate) fn protocols(server: &Server) -> [(Wire, Reply, Reply); 2] {
    // Servers before 7.0 have no booleans for modules.
    let boolean = |yes: bool| if server_version() >= (7, 0) { Reply::Boolean(yes) } else { Reply::Integer(yes.into()) };
    [(Wire::resp2(server), Reply::Integer(1), Reply::Integer(0)), (Wire::resp3(server), boolean(true), boolean(false))]
}

pub(crate) fn ok() -> Reply {
    Reply::simple("OK")
}

pub(crate) fn array<const N: usize>(elements: [&Reply; N]) -> Reply {
    Reply::Array(elements.map(Clone::clone).into())
}
