//! Failed allocations, in running servers, starting servers and replicas.
//!
//! - [`shortage`]: servers with too little memory for a large filter; [`filling`]: large filters, and what copies them;
//! - [`requests`]: each request of a command fails in turn; [`starving`]: a client whose requests fail.

mod filling;
mod requests;
mod shortage;
mod small_requests;
mod starving;
