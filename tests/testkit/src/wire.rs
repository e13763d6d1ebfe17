//! A client that returns each reply as it came over the wire, errors within arrays included.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use crate::filter_model::Family;
use crate::server::{PATIENCE, Server};

/// A reply of RESP2 or RESP3.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Double(f64),
    Boolean(bool),
    Bulk(Vec<u8>),
    /// `$-1`, the null bulk string. RESP2 has no other null for a single value.
    NullBulk,
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Push(Vec<Reply>),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}|"),
            Reply::Integer(number) => write!(f, ":{number}"),
            Reply::Double(number) => write!(f, ",{number}"),
            Reply::Boolean(yes) => write!(f, "#{yes}"),
            Reply::Bulk(bytes) if bytes.len() > 200 => write!(f, "({} bytes)", bytes.len()),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::NullBulk => f.write_str("$-1"),
            Reply::NullArray => f.write_str("*-1"),
            Reply::Null => f.write_str("_"),
            Reply::Array(elements) => f.debug_list().entries(elements).finish(),
            Reply::Set(elements) => f.debug_set().entries(elements).finish(),
            Reply::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(key, value)| (key, value))).finish(),
            Reply::Push(elements) => f.debug_list().entries(elements).finish(),
        }
    }
}

impl Reply {
    pub fn error(text: &str) -> Reply {
        Reply::Error(text.to_owned())
    }

    pub fn simple(text: &str) -> Reply {
        Reply::Simple(text.to_owned())
    }

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    pub fn integers(numbers: &[i64]) -> Reply {
        Reply::Array(numbers.iter().copied().map(Reply::Integer).collect())
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// Returns the text of an error.
    pub fn error_text(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("not an error: {other:?}"),
        }
    }

    /// Returns the boolean, which is an integer in RESP2.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Reply::Boolean(yes) => Some(*yes),
            Reply::Integer(0) => Some(false),
            Reply::Integer(1) => Some(true),
            _ => None,
        }
    }

    pub fn elements(&self) -> &[Reply] {
        match self {
            Reply::Array(elements) | Reply::Set(elements) | Reply::Push(elements) => elements,
            other => panic!("not an array: {other:?}"),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Simple(text) => text.as_bytes(),
            other => panic!("not a string: {other:?}"),
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// Returns the value of `name` in a map, which is a flat array in RESP2.
    pub fn field(&self, name: &str) -> &Reply {
        let value = match self {
            Reply::Map(pairs) => pairs.iter().find(|(key, _)| key.bytes() == name.as_bytes()).map(|(_, value)| value),
            other => other.elements().chunks(2).find(|pair| pair[0].bytes() == name.as_bytes()).map(|pair| &pair[1]),
        };
        value.unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// Returns the value of a single field of BF.INFO: the only element of an array, or the only value in a map.
    pub fn single_field(&self, label: &str) -> Reply {
        match self {
            Reply::Map(pairs) => {
                assert_eq!((pairs.len(), &pairs[0].0), (1, &Reply::simple(label)));
                pairs[0].1.clone()
            }
            array => {
                assert_eq!(array.elements().len(), 1);
                array.elements()[0].clone()
            }
        }
    }

    /// Returns the floating-point number, which is text in RESP2.
    pub fn float(&self) -> f64 {
        match self {
            Reply::Double(number) => *number,
            text => text.text().parse().unwrap(),
        }
    }
}

/// A connection.
pub struct Wire(BufReader<TcpStream>);

/// A cursor, and the data that came with it.
pub type Chunk = (i64, Vec<u8>);

impl Wire {
    /// Connects with RESP2.
    pub fn resp2(server: &Server) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).expect("a running server");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Wire(BufReader::new(stream))
    }

    /// Connects with RESP3.
    pub fn resp3(server: &Server) -> Wire {
        let mut wire = Wire::resp2(server);
        assert!(matches!(wire.run("HELLO 3"), Reply::Map(_)));
        wire
    }

    /// Sends a command, given as arguments separated by spaces, and returns its reply.
    pub fn run(&mut self, words: &str) -> Reply {
        self.run_words(&words.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Sends a command, given as arguments of any bytes, and returns its reply.
    pub fn run_words<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        self.send(words);
        self.receive()
    }

    /// Returns all chunks of a Bloom filter, each with its cursor, starting with the header.
    pub fn scan_dump(&mut self, key: &str) -> Vec<Chunk> {
        self.scan_dump_of(Family::Bloom, key)
    }

    /// Returns all chunks of a filter, each with its cursor, starting with the header.
    pub fn scan_dump_of(&mut self, family: Family, key: &str) -> Vec<Chunk> {
        let end = match family {
            Family::Bloom => Reply::bulk(""),
            Family::Cuckoo => Reply::NullBulk,
        };
        let mut chunks: Vec<Chunk> = Vec::new();
        loop {
            let cursor = chunks.last().map_or(0, |(cursor, _)| *cursor);
            let reply = self.run(&format!("{}.SCANDUMP {key} {cursor}", family.prefix()));
            let [Reply::Integer(next), data] = reply.elements() else { panic!("{reply:?}") };
            if *next == 0 {
                assert_eq!(*data, end);
                return chunks;
            }
            assert!(*next > cursor, "{next} after {cursor}");
            chunks.push((*next, data.bytes().to_vec()));
        }
    }

    /// Loads a chunk of a Bloom filter.
    pub fn load_chunk(&mut self, key: &str, cursor: i64, data: &[u8]) -> Reply {
        self.load_chunk_of(Family::Bloom, key, cursor, data)
    }

    pub fn load_chunk_of(&mut self, family: Family, key: &str, cursor: i64, data: &[u8]) -> Reply {
        let command = format!("{}.LOADCHUNK", family.prefix());
        self.run_words(&[command.as_bytes(), key.as_bytes(), cursor.to_string().as_bytes(), data])
    }

    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        let mut message = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            message.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            message.extend_from_slice(word);
            message.extend_from_slice(b"\r\n");
        }
        self.send_raw(&message);
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("a server that reads");
    }

    pub fn receive(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap_or_else(|_| panic!("not a number: {line}"));
        match kind {
            "+" => Reply::simple(rest),
            "-" => Reply::error(rest),
            ":" => Reply::Integer(number()),
            "," => Reply::Double(rest.parse().unwrap_or_else(|_| panic!("not a number: {line}"))),
            "#" => Reply::Boolean(rest == "t"),
            "_" => Reply::Null,
            "$" | "=" if number() < 0 => Reply::NullBulk,
            "$" | "=" => Reply::Bulk(self.body(number() as usize)),
            "*" if number() < 0 => Reply::NullArray,
            "*" => Reply::Array(self.many(number())),
            "~" => Reply::Set(self.many(number())),
            ">" => Reply::Push(self.many(number())),
            "%" => Reply::Map((0..number()).map(|_| (self.receive(), self.receive())).collect()),
            _ => panic!("not a reply: {line}"),
        }
    }

    fn many(&mut self, count: i64) -> Vec<Reply> {
        (0..count).map(|_| self.receive()).collect()
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("a server that answers");
        assert!(line.len() > 2 && line.ends_with(b"\r\n"), "the server closed the connection");
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("a line of text")
    }

    fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length + 2];
        self.0.read_exact(&mut body).expect("a server that answers");
        body.truncate(length);
        body
    }
}
