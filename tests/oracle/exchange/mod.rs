//! Filters that move from RedisBloom to this module and back. Both sides have the same bits, report the same figures,
//! and give the same replies, false positives included.
//!
//! - [`moves`]: snapshots, dumps, chunks, append-only files and replication; [`versions`]: older files of RedisBloom;
//! - [`rejections`]: what either side rejects; [`cuckoo`]: streams of random commands on cuckoo filters;
//! - [`sides`]: a server of each side; [`filled`]: the filters that move; [`answers`]: what a side says about them.

mod answers;
mod cuckoo;
mod filled;
mod moves;
mod rejections;
mod sides;
mod versions;
