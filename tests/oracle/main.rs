//! RedisBloom 2.8.2 and this module side by side: both get the same lines, and their replies must be the same.
//!
//! [`lines`] generates command lines, valid and invalid, of one family of commands. [`compare`] compares the replies:
//! those about native filters as far as two filters with different bits can agree. [`differences`] lists the intended
//! differences between replies. Each has a test that shows both sides.
//!
//! RedisBloom's library exists for x86-64 only.
#![cfg(target_arch = "x86_64")]

mod compare;
mod differences;
mod exchange;
mod lines;

use std::ops::RangeInclusive;

use compare::Comparison;
use lines::{Line, bloom, cuckoo};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, oxbloom, redisbloom};

const SEEDS: RangeInclusive<u64> = 1..=8;

const LINES_PER_SEED: usize = 2000;

#[derive(Clone, Copy)]
enum Protocol {
    Resp2,
    Resp3,
}

/// The layout of our filters.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Native,
    /// RedisBloom's layout, in which only the intended differences are allowed.
    Classic,
}

/// Both modules, each in a server of its own.
struct Pair {
    servers: [Server; 2],
    theirs: Wire,
    ours: Wire,
    layout: Layout,
}

impl Pair {
    /// Starts both servers. By default, filters are small and have a very low error rate. So they grow often, and have
    /// hardly any false positives.
    fn start(protocol: Protocol) -> Pair {
        Pair::start_with(protocol, Layout::Native)
    }

    fn start_with(protocol: Protocol, layout: Layout) -> Pair {
        Pair::start_with_arguments(protocol, layout, "")
    }

    /// Starts both servers with more arguments of `loadmodule`, which both modules know.
    fn start_with_arguments(protocol: Protocol, layout: Layout, arguments: &str) -> Pair {
        let theirs = format!("ERROR_RATE 1e-18 INITIAL_SIZE 10 {arguments}");
        let ours = match layout {
            Layout::Native => theirs.clone(),
            Layout::Classic => format!("{theirs} bf-layout classic cf-layout classic"),
        };
        let servers = [(redisbloom(), &theirs), (oxbloom(), &ours)]
            .map(|(module, arguments)| Setup::with_module(module).module_arguments(arguments).start());
        let connect = match protocol {
            Protocol::Resp2 => Wire::resp2,
            Protocol::Resp3 => Wire::resp3,
        };
        let [theirs, ours] = [connect(&servers[0]), connect(&servers[1])];
        Pair { servers, theirs, ours, layout }
    }

    /// Returns both replies to a line: RedisBloom's, and ours.
    fn run_words<W: AsRef<[u8]>>(&mut self, words: &[W]) -> (Reply, Reply) {
        self.theirs.send(words);
        self.ours.send(words);
        (self.theirs.receive(), self.ours.receive())
    }

    fn run(&mut self, words: &str) -> (Reply, Reply) {
        self.run_words(&words.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Runs a line whose replies must be the same, and returns the reply.
    fn agree(&mut self, words: &str) -> Reply {
        let (theirs, ours) = self.run(words);
        assert_eq!(theirs, ours, "{words}: RedisBloom's reply is on the left");
        ours
    }

    /// Sends lines that were generated from a seed, and compares the replies.
    fn compare(&mut self, seed: u64, lines: impl Iterator<Item = Line>) {
        self.agree("FLUSHALL");
        let mut comparison = Comparison::new(self.layout == Layout::Classic);
        let mut sent: Vec<(Line, Reply, Reply)> = Vec::new();
        for (number, line) in lines.take(LINES_PER_SEED).enumerate() {
            let (theirs, ours) = self.run_words(&line.words);
            let verdict = comparison.compare(&line, &theirs, &ours);
            sent.push((line, theirs, ours));
            let (line, theirs, ours) = &sent[number];
            if let Err(reason) = verdict {
                let related = sent[..number].iter().filter(|(earlier, ..)| earlier.shares_a_key_with(line));
                let history: Vec<_> =
                    related.map(|(line, theirs, ours)| format!("  {line}\n    {theirs:?}\n    {ours:?}\n")).collect();
                let history = history[history.len().saturating_sub(30)..].concat();
                panic!(
                    "seed {seed}, line {number}: {reason}\n  {line}\n  RedisBloom: {theirs:?}\n  ours:       {ours:?}\n\
                     before:\n{history}"
                );
            }
            if self.layout == Layout::Classic {
                let (theirs, ours) = self.run_words(&[b"DUMP", line.key()]);
                assert!(
                    theirs == ours || comparison.must_start_over(line),
                    "seed {seed}, line {number}: {line}: dumps differ"
                );
            }
            // The line may have left different filters, or one that is too large to continue with.
            if comparison.must_start_over(line) {
                self.delete_key(line);
                comparison.forget(line);
            }
        }
        assert!(
            (1..LINES_PER_SEED / 8).contains(&comparison.explained),
            "seed {seed}: {} intended differences",
            comparison.explained
        );
        assert!(comparison.alike < LINES_PER_SEED / 4, "seed {seed}: {} replies are only alike", comparison.alike);
        assert!(self.servers.iter().all(Server::is_alive));
    }

    fn delete_key(&mut self, line: &Line) {
        self.run_words(&[b"DEL", line.key()]);
    }
}

fn compare_all<L: Iterator<Item = Line>>(protocol: Protocol, layout: Layout, lines: fn(u64) -> L) {
    let mut pair = Pair::start_with(protocol, layout);
    for seed in SEEDS {
        pair.compare(seed, lines(seed));
    }
}

#[test]
fn thousands_of_lines_get_the_same_replies_in_resp2() {
    compare_all(Protocol::Resp2, Layout::Native, bloom::lines);
}

#[test]
fn thousands_of_lines_get_the_same_replies_in_resp3() {
    compare_all(Protocol::Resp3, Layout::Native, bloom::lines);
}

#[test]
fn classic_filters_are_the_same_bit_for_bit_in_resp2() {
    compare_all(Protocol::Resp2, Layout::Classic, bloom::lines);
}

#[test]
fn classic_filters_are_the_same_bit_for_bit_in_resp3() {
    compare_all(Protocol::Resp3, Layout::Classic, bloom::lines);
}

#[test]
fn cuckoo_filters_are_the_same_bit_for_bit_in_resp2() {
    compare_all(Protocol::Resp2, Layout::Classic, cuckoo::lines);
}

#[test]
fn cuckoo_filters_are_the_same_bit_for_bit_in_resp3() {
    compare_all(Protocol::Resp3, Layout::Classic, cuckoo::lines);
}

#[test]
fn cuckoo_filters_have_the_same_maximum_of_layers() {
    let full = Reply::error("Maximum expansions reached");
    for most in [1, 2, 4] {
        let arguments = format!("CF_MAX_EXPANSIONS {most}");
        let mut pair = Pair::start_with_arguments(Protocol::Resp2, Layout::Classic, &arguments);
        // The filter is created in any case.
        assert_eq!(pair.agree("CF.ADD key item") == full, most == 1);
        assert_eq!(pair.agree("CF.INFO key").field("Number of filters"), &Reply::Integer(1));
        let reply = pair.run("CF.INSERT expiring EX 1000 ITEMS item").1;
        assert_eq!(reply == full, most == 1, "{reply:?}");
        assert!(pair.run("TTL expiring").1.integer() > 900);
        pair.compare(most, cuckoo::lines(most));
    }
}

/// The chunks of native filters are others, so only headers are loaded.
fn lines_without_chunks(seed: u64) -> impl Iterator<Item = Line> {
    let is_chunk =
        |line: &Line| line.command() == "CF.LOADCHUNK" && line.arguments().first().is_none_or(|cursor| cursor != b"1");
    cuckoo::lines(seed).filter(move |line| !is_chunk(line))
}

#[test]
fn native_cuckoo_filters_get_replies_of_the_same_shape_in_resp2() {
    compare_all(Protocol::Resp2, Layout::Native, lines_without_chunks);
}

#[test]
fn native_cuckoo_filters_get_replies_of_the_same_shape_in_resp3() {
    compare_all(Protocol::Resp3, Layout::Native, lines_without_chunks);
}

#[test]
fn scripts_get_the_same_replies_in_both_protocols() {
    const CALLS: [&str; 15] = [
        "'BF.ADD', KEYS[1], 'item'",
        "'BF.MADD', KEYS[1], 'item', 'other'",
        "'BF.EXISTS', KEYS[1], 'item'",
        "'BF.INFO', KEYS[1], 'ITEMS'",
        "'BF.INFO', KEYS[1], 'nofield'",
        "'BF.RESERVE', KEYS[1], '0.1', '5'",
        "'BF.CARD', KEYS[1]",
        "'CF.ADD', KEYS[2], 'item'",
        "'CF.ADDNX', KEYS[2], 'item'",
        "'CF.INSERT', KEYS[2], 'ITEMS', 'item', 'other'",
        "'CF.INSERTNX', KEYS[2], 'ITEMS', 'item', 'third'",
        "'CF.MEXISTS', KEYS[2], 'item', 'absent'",
        "'CF.COUNT', KEYS[2], 'item'",
        "'CF.DEL', KEYS[2], 'third'",
        "'CF.RESERVE', KEYS[2], '5'",
    ];
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut pair = Pair::start(protocol);
        for version in [2, 3] {
            for call in CALLS {
                let script = format!("redis.setresp({version}); return redis.pcall({call})");
                let (theirs, ours) = pair.run_words(&["EVAL", &script, "2", "key", "cuckoo"]);
                assert_eq!(theirs, ours, "RESP{version}: {call}: RedisBloom's reply is on the left");
            }
            // The size differs, and the fields have no order in a Lua map, so only their sorted names are compared.
            let names = format!(
                "redis.setresp({version}); local names = {{}}
                 local reply = redis.call('BF.INFO', KEYS[1])
                 for name in pairs(reply.map or {{}}) do table.insert(names, name.ok or name) end
                 for index = 1, #reply, 2 do table.insert(names, reply[index].ok or reply[index]) end
                 table.sort(names); return names"
            );
            let (theirs, ours) = pair.run_words(&["EVAL", &names, "1", "key"]);
            assert_eq!(theirs, ours);
            assert_eq!(ours.elements().len(), 5);
        }
    }
}
