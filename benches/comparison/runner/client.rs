//! Sends requests: many at a time, or one at a time over many connections. Measures how long a client waits while
//! another one is served.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use crate::requests::Requests;
use testkit::PATIENCE;

/// The number of requests that are sent at a time on each of two connections, so that the server always has work.
const PIPELINED: usize = 100;

/// The number of items that are sent at a time on each of two connections, in commands with many items.
const ITEMS_PIPELINED: usize = 1000;

/// The number of connections. Each waits for its reply before it sends the next request.
const CONNECTIONS: usize = 50;

/// The outcome of some requests.
pub(crate) struct Outcome {
    /// The number of items whose reply was 1.
    pub ones: usize,
    /// The seconds from each request to its reply, sorted; only for [`one_by_one`].
    pub latencies: Vec<f64>,
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream
}

/// Sends requests in flights, on two connections in turn. While the server handles one flight, the client reads the
/// replies to the other.
pub(crate) fn pipelined(address: SocketAddr, requests: &Requests) -> Outcome {
    let mut streams = [connect(address), connect(address)];
    let flight = match requests.items_each {
        1 => PIPELINED,
        items => ITEMS_PIPELINED.div_ceil(items),
    };
    let flights: Vec<Range<usize>> =
        (0..requests.len()).step_by(flight).map(|start| start..requests.len().min(start + flight)).collect();
    let mut replies = vec![0; requests.len() * requests.reply_length()];
    for turn in 0..=flights.len() {
        if let Some(flight) = flights.get(turn) {
            streams[turn % 2].write_all(requests.encoded(flight.clone())).expect("the server reads");
        }
        if let Some(flight) = turn.checked_sub(1).map(|turn| &flights[turn]) {
            let reply = requests.reply_length();
            let replies = &mut replies[flight.start * reply..flight.end * reply];
            streams[(turn - 1) % 2].read_exact(replies).expect("replies of the expected length");
        }
    }
    Outcome { ones: requests.count_ones(&replies), latencies: Vec::new() }
}

/// Sends requests with one item each over [`CONNECTIONS`] connections, one at a time on each.
pub(crate) fn one_by_one(address: SocketAddr, requests: &Requests) -> io::Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(CONNECTIONS);
    let mut streams = Vec::with_capacity(CONNECTIONS);
    for token in 0..CONNECTIONS {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(token), Interest::READABLE)?;
        streams.push((stream, Instant::now()));
    }
    let mut latencies = Vec::with_capacity(requests.len());
    let (mut sent, mut received, mut ones) = (0, 0, 0);
    let mut reply = vec![0; requests.reply_length()];
    for (stream, sent_at) in streams.iter_mut().take(requests.len()) {
        *sent_at = Instant::now();
        stream.write_all(requests.encoded(sent..sent + 1))?;
        sent += 1;
    }
    while received < requests.len() {
        poll.poll(&mut events, Some(PATIENCE))?;
        assert!(!events.is_empty(), "the server does not reply");
        for event in &events {
            let (stream, sent_at) = &mut streams[event.token().0];
            match stream.read_exact(&mut reply) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            latencies.push(sent_at.elapsed().as_secs_f64());
            ones += requests.count_ones(&reply);
            received += 1;
            if sent < requests.len() {
                *sent_at = Instant::now();
                stream.write_all(requests.encoded(sent..sent + 1))?;
                sent += 1;
            }
        }
    }
    latencies.sort_by(f64::total_cmp);
    Ok(Outcome { ones, latencies })
}

/// Returns the time of `operation`, and the longest wait of another client. This client sends one PING after the other,
/// from shortly before the operation until shortly after it.
pub(crate) fn longest_pause(address: SocketAddr, operation: impl FnOnce()) -> (Duration, Duration) {
    const BEFORE: Duration = Duration::from_millis(20);
    const AFTER: Duration = Duration::from_millis(300);
    let mut stream = connect(address);
    let mut ping = move || {
        timed(|| {
            stream.write_all(b"PING\r\n").expect("the server reads");
            stream.read_exact(&mut [0; b"+PONG\r\n".len()]).expect("the server replies");
        })
    };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let longest = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !ended.load(Ordering::Relaxed) {
                longest = longest.max(ping());
            }
            longest
        });
        thread::sleep(BEFORE);
        let elapsed = timed(operation);
        thread::sleep(AFTER);
        ended.store(true, Ordering::Relaxed);
        (elapsed, longest.join().expect("a server that replies"))
    })
}

pub(crate) fn timed<T>(operation: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    operation();
    started.elapsed()
}
