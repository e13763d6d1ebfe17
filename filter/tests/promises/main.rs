//! What the filter library promises, each promise a test that is named after it.
//!
//! - [`membership`]: which answers are certain, and how many items fit;
//! - [`counting`]: the same of filters from which items are removed, and all else that is theirs alone;
//! - [`forgetting`]: the same of filters that forget, and what is forgotten when;
//! - [`interface`]: what users of the crate rely on, whatever a filter is made of;
//! - [`rates`]: how often the uncertain answers are wrong, by measurement; [`forgetting_rates`]: those of filters that forget;
//! - [`adversary`]: how often they are if somebody wants them to be;
//! - [`merging`]: what several filters become together;
//! - [`decoding`]: what happens to bytes that are not what was written;
//! - [`memory`]: what a filter takes, and what RedisBloom takes for the same request.

mod adversary;
mod classic;
mod counting;
mod decoding;
mod forgetting;
mod forgetting_rates;
mod interface;
mod membership;
mod memory;
mod merging;
mod model;
mod rates;
mod table;
