//! BF.MERGE and BF.RESERVE LIKE.
//!
//! - [`results`]: unions and intersections, also of counting filters, which add counts up;
//! - [`rejections`]: filters that cannot be merged, and wrong arguments;
//! - [`limits`]: the limits of memory; [`sources`]: the filters that the tests merge.

mod limits;
mod rejections;
mod results;
mod sources;
