//! Writes and reads snapshots and append-only files.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use redis::Connection;

use crate::command::run;
use crate::info::{info, info_number};
use crate::server::wait_until;

/// Waits until a background save ends, which must succeed.
pub fn wait_for_bgsave(client: &mut Connection) {
    assert!(bgsave_succeeds(client));
}

/// Waits until a background save ends. Returns true if it succeeded.
pub fn bgsave_succeeds(client: &mut Connection) -> bool {
    wait_until("the save has ended", || info_number(client, "persistence", "rdb_bgsave_in_progress") == 0);
    info(client, "persistence", "rdb_last_bgsave_status") == "ok"
}

/// Rewrites the append-only file, which must succeed.
pub fn rewrite_aof(client: &mut Connection) {
    assert!(aof_rewrite_succeeds(client));
}

/// Rewrites the append-only file. Returns true if that succeeded.
pub fn aof_rewrite_succeeds(client: &mut Connection) -> bool {
    let idle = |client: &mut Connection| {
        info_number(client, "persistence", "aof_rewrite_in_progress") == 0
            && info_number(client, "persistence", "aof_rewrite_scheduled") == 0
            && info_number(client, "persistence", "rdb_bgsave_in_progress") == 0
    };
    wait_until("no rewrite or save is running", || idle(client));
    let is_started = run(client, "BGREWRITEAOF").is_ok();
    wait_until("the rewrite ends", || idle(client));
    is_started && info(client, "persistence", "aof_last_bgrewrite_status") == "ok"
}

/// Returns the append-only files of a server: one, or a base and its increments.
pub fn aof_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = [folder.to_owned(), folder.join("appendonlydir")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a folder that can be read").path()))
        .filter(|path| {
            let name = path.file_name().expect("a file").to_string_lossy();
            name.starts_with("appendonly.aof") && (name.ends_with(".aof") || name.ends_with(".rdb"))
        })
        .collect();
    files.sort();
    files
}

/// Appends a command to a server's append-only file, given as words with a space between them.
pub fn append_line_to_aof(folder: &Path, line: &str) {
    append_to_aof(folder, &[&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()]);
}

/// Appends commands to a server's append-only file.
pub fn append_to_aof(folder: &Path, commands: &[&[&[u8]]]) {
    let files = aof_files(folder);
    // Before version 7 there is one file; later versions have a base and increments.
    let last = files.iter().find(|file| file.to_string_lossy().ends_with("incr.aof")).unwrap_or(&files[0]);
    let mut file = fs::OpenOptions::new().append(true).open(last).expect("a file that can be written");
    for words in commands {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in *words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        file.write_all(&bytes).expect("a file that can be written");
    }
}

/// Returns the commands in a server's append-only files, which must not have an RDB preamble.
pub fn aof_commands(folder: &Path) -> Vec<Vec<Vec<u8>>> {
    let files = aof_files(folder).into_iter().map(|file| fs::read(file).expect("a file that can be read"));
    files.flat_map(|bytes| commands_in(&bytes)).map(|(_, command)| command).collect()
}

/// Returns the module's commands in a server's append-only files, as [`shown`]. This leaves out MULTI and EXEC: servers
/// before 7.0 put each command into a transaction.
pub fn aof_commands_shown(folder: &Path) -> Vec<String> {
    let is_ours = |command: &String| ["BF.", "CF."].iter().any(|prefix| command.starts_with(prefix));
    aof_commands(folder).iter().map(|command| shown(command)).filter(is_ours).collect()
}

/// Returns the commands in an append-only file, each with its byte range.
pub fn commands_in(log: &[u8]) -> Vec<(Range<usize>, Vec<Vec<u8>>)> {
    let mut rest = log;
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let start = log.len() - rest.len();
        let line = take_line(&mut rest);
        // Skips annotations, such as timestamps.
        if line.starts_with(b"#") {
            continue;
        }
        let count = number(line, b'*');
        let words = (0..count).map(|_| {
            let length = number(take_line(&mut rest), b'$');
            let word = rest[..length].to_vec();
            rest = &rest[length + 2..];
            word
        });
        let words = words.collect();
        commands.push((start..log.len() - rest.len(), words));
    }
    commands
}

fn take_line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a line that ends");
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    line
}

fn number(line: &[u8], mark: u8) -> usize {
    let digits = line.strip_prefix(&[mark]).unwrap_or_else(|| panic!("{line:?} starts with another byte"));
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a number")
}

/// Returns a command as text, with its arguments separated by spaces.
pub fn shown(command: &[Vec<u8>]) -> String {
    let words = command.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    words.collect::<Vec<_>>().join(" ")
}
