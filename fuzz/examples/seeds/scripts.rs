//! Scripts for the target of the whole module: commands of clients, and filters of real servers.

use oxbloom_filter::internals::codec::{Sink, header};
use oxbloom_fuzz::commands::{CURSOR, DATA, FROM_MASTER, ITEM, ITEMS, LITERAL, LONG_LITERAL, WORDS};
use oxbloom_fuzz::input::Writer;
use redis::{Connection, RedisResult};
use testkit::payload::{Part, Payload};

use super::{FILTERS, write};

/// Commands on a filter `a`, whatever its layout. `items:0+60` are 60 items, `cursor` and `data` those of the last
/// reply that had them.
const COMMANDS: &[&str] = &[
    "BF.MADD a items:0+60",
    "BF.ADD a items:3+1",
    "BF.EXISTS a items:3+1",
    "BF.MEXISTS a items:0+63",
    "BF.MDEL a items:0+20",
    "BF.MCOUNT a items:0+63",
    "RELOAD",
    "REWRITE",
    "COPY a b",
    "DEFRAGMENT b",
    "RENAME b c",
    "BF.MERGE b 2 a c",
    "BF.RESERVE d LIKE a",
    "BF.INSERT d NX ITEMS items:40+60",
    "BF.MERGE d 1 a UNION",
    "BF.MERGE d 1 a INTERSECT",
    "BF.INFO d",
    "BF.INFO d FILL",
    "BF.DEBUG a",
    "BF.CARD a",
    "DEL c",
    "BF.SCANDUMP a 0",
    "BF.LOADCHUNK c cursor data",
    "BF.SCANDUMP a cursor",
    "BF.LOADCHUNK c cursor data",
    "BF.SCANDUMP a cursor",
    "BF.LOADCHUNK c cursor data",
    "SAVE a",
    "RESTORE b data",
    "BF.MADD b items:100+60",
    "SET a",
    "BF.ADD a x",
];

/// Commands with which clients create filters.
const CREATIONS: [(&str, &str); 7] = [
    ("native", "BF.RESERVE a 0.01 20"),
    ("counting", "BF.RESERVE a 0.01 20 EXPANSION 1 COUNTING"),
    ("classic", "BF.RESERVE a 0.01 20 LAYOUT classic"),
    ("fixed", "BF.RESERVE a 0.001 50 NONSCALING SEED 8"),
    ("fixed-counting", "BF.INSERT a CAPACITY 100 ERROR 0.1 COUNTING NONSCALING ITEMS items:9+9"),
    ("large-counting", "BF.RESERVE a 0.01 5000 NONSCALING COUNTING"),
    ("default", "BF.ADD a x"),
];

/// Commands with which RedisBloom's masters create filters.
const REDISBLOOM_CREATIONS: &[&str] = &[
    "BF.RESERVE a 0.1 100 EXPANSION 2 whatever",
    "BF.INSERT b cap 20 e 2 nonx i items:0+30",
    "BF.INSERT c ERROR 0.1 NOCREATE items items:0+30",
    "BF.MADD a items:0+60",
    "BF.ADD d items:0+1",
];

/// Scripts with keys that are created, are missing, or have expired when a command opens them.
const EXPIRIES: &[&str] = &[
    "BF.EXISTS a items:0+1",
    "BF.RESERVE a 0.01 20 COUNTING",
    "BF.MADD a items:0+60",
    "EXPIRE a",
    "BF.MEXISTS a items:0+60",
    "BF.MADD a items:0+60",
    "BF.ADD b items:3+1",
    "EXPIRE a",
    "BF.MERGE b 2 b a",
    "BF.MADD a items:0+60",
    "EXPIRE a",
    "BF.MADD a items:20+60",
    "EXPIRE b",
    "EXPIRE a",
    "BF.INFO b",
    "RELOAD",
    "BF.CARD a",
];

/// Arguments of `loadmodule`: none, valid ones, and invalid ones.
const ARGUMENTS: [(&str, &str); 3] =
    [("", ""), ("-settings", "ERROR_RATE 0.1 initial-size 50 layout classic"), ("-refused", "initial-size many")];

/// Writes the scripts that need no server.
pub(crate) fn write_commands() -> std::io::Result<()> {
    for (name, making) in CREATIONS {
        for (suffix, arguments) in ARGUMENTS {
            for (age, suffix) in [(0, suffix.to_owned()), (1, format!("{suffix}-old"))] {
                let mut script = [&[age], &*encoded(arguments)].concat();
                script.extend([making].iter().chain(COMMANDS).flat_map(|line| command(0, line)));
                write("commands", &format!("{name}{suffix}"), &script)?;
            }
        }
    }
    let expiries = EXPIRIES.iter().flat_map(|line| command(0, line));
    write("commands", "expiries", &[0, 0].into_iter().chain(expiries).collect::<Vec<_>>())?;
    let orders = REDISBLOOM_CREATIONS.iter().flat_map(|line| command(FROM_MASTER, line));
    write("commands", "orders", &[0, 0].into_iter().chain(orders).collect::<Vec<_>>())
}

/// Writes scripts that start with filters of a server, from DUMP and BF.SCANDUMP.
pub(crate) fn write_exchanged(server: &mut Connection) -> Result<(), Box<dyn std::error::Error>> {
    const KEY: &str = "oxbloom-fuzz";
    let run = |server: &mut Connection, words: &str| {
        redis::Cmd::new().arg(words.split(' ').collect::<Vec<_>>()).query::<redis::Value>(server)
    };
    run(server, &format!("DEL {KEY}"))?;
    let is_ours = run(server, &format!("BF.DEL {KEY} item")).is_ok();
    run(server, "CONFIG SET rdbcompression no")?;
    let layouts: &[(&str, &str)] = if is_ours {
        &[("native", " LAYOUT native"), ("counting", " COUNTING"), ("classic", " LAYOUT classic")]
    } else {
        &[("redisbloom", "")]
    };
    for (index, &(error_rate, capacity, expansion, items)) in FILTERS.iter().enumerate().filter(|(_, f)| f.0 > 1e-20) {
        for (layout, option) in layouts {
            let growth = if expansion == 0 { "NONSCALING".to_owned() } else { format!("EXPANSION {expansion}") };
            run(server, &format!("BF.RESERVE {KEY} {error_rate} {capacity} {growth}{option}"))?;
            for number in 0..items {
                run(server, &format!("BF.ADD {KEY} item-{number}"))?;
            }
            let dump: Vec<u8> = redis::cmd("DUMP").arg(KEY).query(server)?;
            let restore = with_words("RESTORE a", &[&file(&dump)]);
            write_exchange(&format!("{layout}-{index}-dump"), &restore)?;
            write_exchange(&format!("{layout}-{index}-scan"), &scanned(server, KEY)?)?;
            run(server, &format!("DEL {KEY}"))?;
        }
    }
    Ok(())
}

fn write_exchange(name: &str, beginning: &[u8]) -> std::io::Result<()> {
    let deeds = COMMANDS.iter().flat_map(|line| command(0, line));
    write("commands", name, &[0, 0].into_iter().chain(beginning.iter().copied()).chain(deeds).collect::<Vec<_>>())
}

/// Returns the commands that copy a filter in chunks.
fn scanned(server: &mut Connection, key: &str) -> RedisResult<Vec<u8>> {
    let (mut script, mut cursor) = (Vec::new(), 0);
    loop {
        let chunk: (u64, Vec<u8>) = redis::cmd("BF.SCANDUMP").arg(key).arg(cursor).query(server)?;
        if chunk.0 == 0 {
            return Ok(script);
        }
        cursor = chunk.0;
        script.extend(with_words("BF.LOADCHUNK a", &[cursor.to_string().as_bytes(), &chunk.1]));
    }
}

/// Returns a DUMP payload in the target's format of files: the kind, and then the parts.
fn file(payload: &[u8]) -> Vec<u8> {
    let payload = Payload::parse(payload);
    let mut file = Writer::default();
    for part in payload.parts() {
        match part {
            Part::Unsigned(number) => file.unsigned(number),
            Part::Double(number) => file.double(number),
            Part::String(bytes) => file.string(&bytes),
        }
    }
    // Classic filters have version 4 of the encoding, ours have other versions.
    let kind = if payload.encoding() == u64::from(header::VERSION) { 7 } else { payload.encoding() as u8 };
    [&[kind], &*file.0].concat()
}

/// Returns a command with its circumstances.
fn command(circumstances: u8, line: &str) -> Vec<u8> {
    [&[circumstances], &*encoded(line)].concat()
}

/// Returns a command of a client, with further arguments of any bytes.
fn with_words(line: &str, further: &[&[u8]]) -> Vec<u8> {
    let mut command = command(0, line);
    command[1] += further.len() as u8;
    for word in further {
        command.push(LONG_LITERAL);
        command.extend((word.len() as u16).to_le_bytes());
        command.extend_from_slice(word);
    }
    command
}

/// Returns the number of arguments, and the arguments.
fn encoded(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let mut bytes = vec![words.len() as u8];
    for word in words {
        let items = word.strip_prefix("items:").and_then(|items| items.split_once('+'));
        let items = items.and_then(|(first, count)| Some((first.parse().ok()?, count.parse().ok()?)));
        match (WORDS.iter().position(|known| *known == word), items) {
            (Some(index), _) => bytes.push(index as u8),
            (_, Some((first, 1))) => bytes.push(ITEM + first),
            (_, Some((first, count))) => bytes.extend([ITEMS, first, count]),
            _ if word == "cursor" => bytes.push(CURSOR),
            _ if word == "data" => bytes.push(DATA),
            _ => {
                bytes.extend([LITERAL, word.len() as u8]);
                bytes.extend_from_slice(word.as_bytes());
            }
        }
    }
    bytes
}
