//! Keeps a copy of a filter on a server, and looks items up in it: `cargo run --example live_copy seen`.
//!
//! Lines of standard input are looked up without a round trip. docs/live-copies.md explains the three commands.

use std::error::Error;
use std::io;

use oxbloom_filter::Filter;
use redis::{Commands, Connection, FromRedisValue, ToRedisArgs, cmd};

/// A copy of the filter of a key.
pub struct LiveCopy {
    /// The copy, with which to look items up.
    pub filter: Filter,
    cursor: Vec<u8>,
}

impl LiveCopy {
    /// Copies a filter. Fails if it changes too much meanwhile, so that you should try again.
    pub fn start(server: &mut Connection, key: &str) -> Result<LiveCopy, Box<dyn Error>> {
        let (mut cursor, header): (Vec<u8>, Vec<u8>) = ask(server, "BF.CHANGES", &[key])?;
        let mut filter = Filter::from_header(&header)?;
        let mut changes = Vec::new();
        let mut iterator = 1;
        while iterator != 0 {
            let chunk: Vec<u8>;
            (iterator, chunk) = ask(server, "BF.SCANDUMP", &[key, &iterator.to_string()])?;
            if iterator != 0 {
                filter.load_chunk(iterator, &chunk)?;
            }
            // For later: the next chunk may have some of them already.
            let new: Vec<u8>;
            (cursor, new) = ask(server, "BF.CHANGES", &[key.as_bytes(), b"SINCE", &cursor])?;
            changes.extend(new);
        }
        filter.insert_changes(&changes)?;
        let mut copy = LiveCopy { filter, cursor };
        copy.poll(server, key)?;
        Ok(copy)
    }

    /// Inserts what became new. After an error, copy the filter again, unless the connection is lost.
    pub fn poll(&mut self, server: &mut Connection, key: &str) -> Result<(), Box<dyn Error>> {
        loop {
            let changes: Vec<u8>;
            (self.cursor, changes) = ask(server, "BF.CHANGES", &[key.as_bytes(), b"SINCE", &self.cursor])?;
            self.filter.insert_changes(&changes)?;
            if changes.len() < 4096 * 16 {
                return Ok(());
            }
        }
    }
}

fn ask<T: FromRedisValue>(server: &mut Connection, command: &str, args: &[impl ToRedisArgs]) -> redis::RedisResult<T> {
    cmd(command).arg(args).query(server)
}

fn main() -> Result<(), Box<dyn Error>> {
    let key = std::env::args().nth(1).ok_or("usage: live_copy KEY")?;
    let mut server = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
    if !server.exists(&key)? {
        return Err("no such key".into());
    }
    let mut copy = LiveCopy::start(&mut server, &key)?;
    for line in io::stdin().lines() {
        // A service would do this in another thread, some times a second.
        if copy.poll(&mut server, &key).is_err() {
            copy = LiveCopy::start(&mut server, &key)?;
        }
        println!("{}", copy.filter.contains(line?));
    }
    Ok(())
}
