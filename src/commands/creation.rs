//! What the families tell about the filters that their commands create.

use crate::reply_error::Error;
use crate::server::{Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::CreateParams;

/// The options of a command that creates filters of a family.
pub(super) trait Creation: Default {
    /// Returns the options of a command without any in a stream, whose filters are those of the module that wrote it.
    fn of_stream() -> Self;

    /// Rejects options that contradict an existing filter.
    fn check_existing(&self, ctx: &Context, filter: &Filter) -> Result<(), Error>;

    /// Returns false if the filter must exist.
    fn may_create(&self) -> bool;

    /// Returns the parameters of the filter to create, with defaults from the configuration.
    fn params(&self, server: &Server) -> Result<CreateParams, Error>;

    /// Returns the time at which the key of a new filter expires, in milliseconds since 1970.
    fn expires_at(&self) -> Option<i64>;

    /// Returns the arguments of the RESERVE that repeats the creation of a filter of our own on replicas, with `expiry`
    /// after those that it requires.
    fn replicated(filter: &Filter, expiry: Vec<String>) -> Vec<String>;

    /// Returns the arguments of the INSERT that repeats the creation of a filter of another project on replicas, or
    /// `None` if its header does.
    fn replicated_foreign(_filter: &Filter) -> Option<Vec<Vec<u8>>> {
        None
    }
}
