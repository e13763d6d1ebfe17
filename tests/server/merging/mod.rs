//! BF.MERGE and BF.RESERVE LIKE.
//!
//! - [`results`]: unions and intersections; [`counting`]: those of counting filters, which add counts up;
//! - [`rejections`]: filters that cannot be merged, and wrong arguments;
//! - [`replicating`]: replicas, files, events and clusters;
//! - [`limits`]: the limits of memory; [`sources`]: the filters that the tests merge.

mod counting;
mod limits;
mod rejections;
mod replicating;
mod results;
mod sources;
