//! A connection to one server, which is opened again when it broke or the server was restarted. It never waits long.

use std::time::Duration;

use redis::{Connection, RedisResult, Value};

use testkit::info::field_in;

use crate::group::Group;

/// The time after which a client gives up.
const TIMEOUT: Duration = Duration::from_millis(600);

pub(crate) struct Client<'a> {
    group: &'a Group,
    server: usize,
    /// With the port.
    connection: Option<(u16, Connection)>,
}

/// The state of replication, from INFO.
pub(crate) struct Replication {
    pub(crate) is_master: bool,
    pub(crate) id: String,
    pub(crate) offset: u64,
    /// True if the server has all data up to the offset, and not only a part.
    pub(crate) is_whole: bool,
    pub(crate) is_connected: bool,
}

impl<'a> Client<'a> {
    pub(crate) fn new(group: &'a Group, server: usize) -> Client<'a> {
        Client { group, server, connection: None }
    }

    /// Sends a command, and returns the reply; `None` if the command was not sent.
    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Option<RedisResult<Value>> {
        let port = self.group.port(self.server);
        if self.connection.as_ref().is_none_or(|(opened, _)| *opened != port) {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("a valid address");
            let connection = client.get_connection_with_timeout(TIMEOUT).ok()?;
            connection.set_read_timeout(Some(TIMEOUT)).ok()?;
            connection.set_write_timeout(Some(TIMEOUT)).ok()?;
            self.connection = Some((port, connection));
        }
        let (_, connection) = self.connection.as_mut()?;
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word.as_ref());
        });
        let sent = connection.send_packed_command(&command.get_packed_command());
        Some(sent.and_then(|()| connection.recv_response()))
    }

    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a command, given as arguments separated by spaces. Returns its reply if it came, and is no error.
    pub(crate) fn ask(&mut self, words: &str) -> Option<Value> {
        let reply = self.send(&words.split_ascii_whitespace().collect::<Vec<_>>())?.and_then(Value::extract_error);
        if reply.as_ref().is_err_and(|error| error.code().is_none()) {
            self.disconnect();
        }
        reply.ok()
    }

    /// Returns a section of INFO if the server replies.
    pub(crate) fn info(&mut self, section: &str) -> Option<String> {
        redis::from_redis_value(self.ask(&format!("INFO {section}"))?).ok()
    }

    pub(crate) fn replication(&mut self) -> Option<Replication> {
        let text = self.info("replication")?;
        let is_master = field_in(&text, "role") == "master";
        let offset = field_in(&text, if is_master { "master_repl_offset" } else { "slave_repl_offset" });
        let offset = offset.parse().expect("a number");
        // A replica without any data has offset 1.
        let is_whole = is_master || field_in(&text, "master_sync_in_progress") == "0" && offset > 1;
        let is_connected = field_in(&text, "master_link_status") == "up";
        Some(Replication { is_master, id: field_in(&text, "master_replid").to_owned(), offset, is_whole, is_connected })
    }
}
