//! The promises of the filter library. Each promise is a test that is named after it.
//!
//! - [`membership`]: no false negatives, and the number of items that fit;
//! - [`counting`]: the same for filters with removal, and counts;
//! - [`cuckoo`]: the same for cuckoo filters;
//! - [`forgetting`]: the same for filters that forget, and the times when they forget;
//! - [`interface`]: the public interface, for all kinds of filters except those that forget;
//! - [`rates`]: measured false-positive rates; [`forgetting_rates`]: those of filters that forget;
//! - [`adversary`]: false-positive rates when an adversary chooses the items;
//! - [`merging`]: unions and intersections of filters;
//! - [`folding`]: filters that were created too large; [`following`]: copies that follow filters on servers;
//! - [`decoding`]: damaged and forged bytes; [`recorded`]: bytes of earlier versions;
//! - [`serialized`]: formats of serde;
//! - [`streams`]: dump streams and payloads of all kinds of filters;
//! - [`memory`]: the memory of a filter, compared with RedisBloom's, and asked for before it is taken;
//! - [`shapes`]: the sizes of native filters;
//! - [`planning`]: predictions of memory and rates;
//! - [`classic`]: the same bits as RedisBloom;
//! - [`valkey`]: the same bits as valkey-bloom;
//! - [`table`]: the quotient table by itself; [`parts`]: its parts; [`unions`]: its unions and intersections;
//! - [`map`]: the map of the source files.

mod adversary;
mod classic;
mod counting;
mod cuckoo;
mod decoding;
mod folding;
mod following;
mod forgetting;
mod forgetting_rates;
mod interface;
mod map;
mod membership;
mod memory;
mod merging;
mod model;
mod parts;
mod planning;
mod rates;
mod recorded;
#[cfg(feature = "serde")]
mod serialized;
mod shapes;
mod streams;
mod table;
mod unions;
mod valkey;
