//! A link between a replica and its master that can be slow, can be cut, in one direction too, and can damage bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::server::Server;

/// The number of bytes that a slow link passes at a time, and its pause after them.
const TRICKLE: usize = 512;
const PAUSE: Duration = Duration::from_millis(2);

/// The first bytes of a snapshot.
const MAGICS: [&[u8]; 2] = [b"REDIS0", b"VALKEY"];
const MAGIC_LENGTH: usize = MAGICS[0].len();

/// A kind of damage to a byte.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// Closes the connection before the byte.
    Cut,
    /// Flips these bits of the byte.
    Flip(u8),
}

/// The position of a byte on its way to the replica.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// An offset from the start of a connection.
    OfConnection(u64),
    /// An offset from the start of a snapshot.
    OfSnapshot(u64),
    /// An offset from the next byte that the master sends.
    FromNow(u64),
}

/// The direction of bytes in a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Direction {
    ToMaster,
    ToReplica,
}

/// A local port that forwards connections to a master.
pub struct Proxy {
    pub port: u16,
    link: Arc<Link>,
}

struct Link {
    state: Mutex<State>,
}

struct State {
    master: u16,
    mode: Mode,
    /// The number of bytes that the master sent, in all connections.
    passed: u64,
    open: Vec<Arc<Connection>>,
    is_over: bool,
}

#[derive(Clone, Copy)]
enum Mode {
    Whole,
    /// Each connection becomes slow after this number of bytes.
    Slow(u64),
    /// One byte will be damaged. Then new connections are rejected.
    Harmful(Place, Damage),
    /// Bytes in this direction wait, as those that a network loses and TCP repeats.
    Held(Direction),
    /// New connections are rejected.
    Broken,
}

struct Connection {
    replica: TcpStream,
    master: TcpStream,
}

impl Proxy {
    /// Returns a link that passes everything.
    pub fn to(master: &Server) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = State { master: master.port, mode: Mode::Whole, passed: 0, open: Vec::new(), is_over: false };
        let link = Arc::new(Link { state: Mutex::new(state) });
        let accepting = Arc::clone(&link);
        thread::spawn(move || accepting.accept(&listener));
        Proxy { port, link }
    }

    /// Passes everything from now on.
    pub fn mend(&self) {
        self.link.state().mode = Mode::Whole;
    }

    /// Passes everything, but makes each connection slow after a number of bytes.
    pub fn slow_after(&self, bytes: u64) {
        self.link.state().mode = Mode::Slow(bytes);
    }

    /// Passes everything until it has damaged a byte. From then on, rejects new connections.
    pub fn plan(&self, place: Place, damage: Damage) {
        self.link.state().mode = Mode::Harmful(place, damage);
    }

    /// Connects to a master that was restarted with another port, from now on.
    pub fn lead_to(&self, master: &Server) {
        self.link.state().master = master.port;
    }

    /// Passes bytes in the other direction only. Those that wait pass when the mode changes.
    pub fn hold(&self, direction: Direction) {
        self.link.state().mode = Mode::Held(direction);
    }

    /// Cuts all connections, and rejects new ones.
    pub fn cut(&self) {
        let mut state = self.link.state();
        state.mode = Mode::Broken;
        state.open.iter().for_each(|connection| connection.close());
    }

    /// Returns true if the link was cut or has damaged its byte.
    pub fn is_broken(&self) -> bool {
        matches!(self.link.state().mode, Mode::Broken)
    }

    /// Returns the number of bytes that the master sent, in all connections.
    pub fn passed(&self) -> u64 {
        self.link.state().passed
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.link.state().is_over = true;
        // Wakes the thread that accepts connections, so that it returns.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    fn accept(self: &Arc<Link>, listener: &TcpListener) {
        for replica in listener.incoming() {
            let mut state = self.state();
            if state.is_over {
                return;
            }
            let (Ok(replica), false) = (replica, matches!(state.mode, Mode::Broken)) else { continue };
            let Ok(master) = TcpStream::connect((Ipv4Addr::LOCALHOST, state.master)) else { continue };
            let connection = Arc::new(Connection { replica, master });
            state.open.push(Arc::clone(&connection));
            let (link, down) = (Arc::clone(self), Arc::clone(&connection));
            let link_up = Arc::clone(self);
            thread::spawn(move || {
                // An error only means that the connection was closed or cut.
                let _ = link.pass(&down);
                down.close();
                link.state().open.retain(|open| !Arc::ptr_eq(open, &down));
            });
            thread::spawn(move || {
                let _ = link_up.pass_replies(&connection);
                connection.close();
            });
        }
    }

    /// Passes the replica's bytes, until either side closes the connection or it is cut.
    fn pass_replies(&self, connection: &Connection) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = (&connection.replica).read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            self.wait_while_held(Direction::ToMaster);
            (&connection.master).write_all(&buffer[..length])?;
        }
    }

    fn wait_while_held(&self, direction: Direction) {
        while matches!(self.state().mode, Mode::Held(held) if held == direction) {
            thread::sleep(PAUSE);
        }
    }

    /// Passes the master's bytes, until either side closes the connection or it is cut.
    fn pass(&self, connection: &Connection) -> io::Result<()> {
        let (mut master, mut replica) = (&connection.master, &connection.replica);
        let mut buffer = vec![0; 16 << 10];
        let mut flow = Flow::default();
        loop {
            let is_slow = matches!(self.state().mode, Mode::Slow(swift) if flow.passed >= swift);
            let most = if is_slow { TRICKLE } else { buffer.len() };
            let length = master.read(&mut buffer[..most])?;
            if length == 0 {
                return Ok(());
            }
            self.wait_while_held(Direction::ToReplica);
            let bytes = &mut buffer[..length];
            flow.see(bytes);
            match self.state().strike(&flow, length) {
                Some((at, Damage::Flip(bits))) => bytes[at] ^= bits,
                Some((at, Damage::Cut)) => return replica.write_all(&bytes[..at]),
                None => {}
            }
            replica.write_all(bytes)?;
            flow.passed += length as u64;
            self.state().passed += length as u64;
            if is_slow {
                thread::sleep(PAUSE);
            }
        }
    }
}

/// The state of a connection.
#[derive(Default)]
struct Flow {
    passed: u64,
    /// The last bytes, in case the first bytes of a snapshot come in two reads.
    tail: Vec<u8>,
    /// The offset of the snapshot, once it has started.
    snapshot: Option<u64>,
}

impl Flow {
    /// Looks for the start of a snapshot in the next bytes.
    fn see(&mut self, bytes: &[u8]) {
        if self.snapshot.is_none() {
            let start = self.passed - self.tail.len() as u64;
            self.tail.extend_from_slice(bytes);
            let found = self.tail.windows(MAGIC_LENGTH).position(|window| MAGICS.contains(&window));
            self.snapshot = found.map(|at| start + at as u64);
            self.tail.drain(..self.tail.len().saturating_sub(MAGIC_LENGTH - 1));
        }
    }
}

impl State {
    /// Returns the planned damage if it hits the next `length` bytes of a connection, and its position among them.
    fn strike(&mut self, flow: &Flow, length: usize) -> Option<(usize, Damage)> {
        let Mode::Harmful(place, damage) = self.mode else { return None };
        let at = match place {
            Place::OfConnection(at) => at.checked_sub(flow.passed)?,
            Place::OfSnapshot(at) => (flow.snapshot? + at).checked_sub(flow.passed)?,
            Place::FromNow(at) => at,
        };
        if at < length as u64 {
            self.mode = Mode::Broken;
            return Some((at as usize, damage));
        }
        if let Place::FromNow(_) = place {
            self.mode = Mode::Harmful(Place::FromNow(at - length as u64), damage);
        }
        None
    }
}

impl Connection {
    fn close(&self) {
        // Either may be closed already.
        let _ = self.replica.shutdown(Shutdown::Both);
        let _ = self.master.shutdown(Shutdown::Both);
    }
}
