//! Compares one filter that forgets with three plain filters and a script, which replaces the oldest of them.

use std::fmt::Write as _;

use super::{CHART, FORGETTING, KINDS, LENGTH, SLICES, Scale, Stream};
use crate::client;
use crate::format::{bytes, spread};
use crate::peers::{Instance, Peer};
use crate::requests::{Requests, some_of};
use crate::workloads::{Delivery, Measured, fill, measure as measure_requests};
use models::random::Random;
use testkit::ask;

/// The results of one filter and of three filters, in this order.
pub(super) struct Instead {
    pub(super) size: &'static str,
    pub(super) items: Vec<(&'static str, [Measured; 2])>,
    pub(super) memory: [f64; 2],
}

/// The start of the scripts. If the newest slice has no filter, this creates it, and deletes the oldest one. KEYS has
/// the filters of four slices, the newest first; the fourth is too old.
const ROTATE: &str = "
    if redis.call('EXISTS', KEYS[1]) == 0 then
      redis.call('UNLINK', KEYS[4])
      redis.call('BF.RESERVE', KEYS[1], ERROR_RATE, CAPACITY)
    end";

/// Adds an item to the newest of three filters, unless it is in one of them.
const ONE_ITEM: &str = "
    for slice = 1, 3 do
      if redis.call('BF.EXISTS', KEYS[slice], ARGV[1]) == 1 then return 0 end
    end
    return redis.call('BF.ADD', KEYS[1], ARGV[1])";

/// Adds many items in the same way. The reply of BF.MADD shows which of them were new to the newest filter.
const MANY_ITEMS: &str = "
    local newer = redis.call('BF.MEXISTS', KEYS[2], unpack(ARGV))
    local oldest = redis.call('BF.MEXISTS', KEYS[3], unpack(ARGV))
    local replies, absent, places = {}, {}, {}
    for place, item in ipairs(ARGV) do
      replies[place] = 0
      if newer[place] == 0 and oldest[place] == 0 then
        absent[#absent + 1] = item
        places[#places + 1] = place
      end
    end
    if #absent > 0 then
      for index, added in ipairs(redis.call('BF.MADD', KEYS[1], unpack(absent))) do
        replies[places[index]] = added
      end
    end
    return replies";

/// The operations on one filter and on three: title, delivery, and true if the items are new.
const INSTEAD: [(&str, Delivery, bool); 4] = [
    ("one item a command, new", Delivery::Pipelined, true),
    ("one item a command, duplicate", Delivery::Pipelined, false),
    ("100 items a command, new", Delivery::Batch(100), true),
    ("100 items a command, duplicate", Delivery::Batch(100), false),
];

/// The index of the newest slice. The three filters are those of the slices 3 to 5.
const NEWEST: usize = 5;

/// Returns the arguments that run a script, up to its items, given the newest slice.
fn script<'a>(hash: &'a str, keys: &'a [String], newest: usize) -> Vec<&'a str> {
    let keys = keys[newest - 3..=newest].iter().rev().map(String::as_str);
    ["EVALSHA", hash, "4"].into_iter().chain(keys).collect()
}

/// Runs a script that creates the filters of three slices, and fills them, the newest by half. Returns the keys of all
/// slices, and the next item.
fn fill_three(instance: &Instance, per_slice: u64, hash: &str) -> (Vec<String>, u64) {
    let keys: Vec<String> = (0..=NEWEST).map(|slice| format!("slice:{slice}")).collect();
    let mut next = 0;
    for newest in 3..=NEWEST {
        let first = Requests::single(&script(hash, &keys, newest), LENGTH, next..next + 1);
        client::pipelined(instance.address(), &first);
        let end = next + if newest == NEWEST { per_slice / 2 } else { per_slice };
        fill(instance.address(), &keys[newest], LENGTH, next..end);
        next = end;
    }
    (keys, next)
}

pub(super) fn measure(scale: &Scale) -> Instead {
    let [mut one, mut three] = [Peer::Oxbloom, Peer::RedisBloom].map(|peer| Instance::start(peer, peer.setup()));
    let (capacity, size) = scale.instead;
    let mut filter = Stream::new(KINDS[FORGETTING[0]], capacity, 1);
    filter.fill(&mut one);
    // If each of the three filters has the items of half a window, items are remembered for at least a window.
    let half = capacity / 2;
    let rotate = ROTATE.replace("ERROR_RATE", &(0.01 / 3.0).to_string()).replace("CAPACITY", &half.to_string());
    let hashes = [ONE_ITEM, MANY_ITEMS].map(|script| {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(rotate.clone() + script).query::<String>(&mut three.connection);
        load.expect("a valid script")
    });
    let (keys, mut next) = fill_three(&three, half, &hashes[0]);
    let mut rows = INSTEAD.map(|(title, ..)| (title, <[Measured; 2]>::default()));
    let (items, mut random) = (scale.items / 5, Random(capacity));
    for _ in 0..scale.rounds {
        for ((_, measured), (title, delivery, new)) in rows.iter_mut().zip(INSTEAD) {
            let seed = random.below(u64::MAX);
            let numbers: Vec<u64> =
                if new { (next..next + items).collect() } else { some_of(filter.present(), items, seed).collect() };
            next += if new { items } else { 0 };
            let (command, hash) = match delivery {
                Delivery::Pipelined => ("BF.ADD", &hashes[0]),
                _ => ("BF.MADD", &hashes[1]),
            };
            let asked = [vec![command, filter.kind.key], script(hash, &keys, NEWEST)];
            for ((instance, words), measured) in [&mut one, &mut three].into_iter().zip(asked).zip(measured) {
                let requests = Requests::delivered(delivery, &words, LENGTH, numbers.iter().copied());
                let outcome = measure_requests(instance, words[0], delivery, &requests, measured);
                let share = outcome.ones as f64 / requests.items() as f64;
                let expected = if new { 0.97..=1.0 } else { 0.0..=0.01 };
                assert!(expected.contains(&share), "{words:?}, {title}: {share} are new");
            }
        }
    }
    let usage =
        |instance: &mut Instance, key: &str| -> f64 { ask(&mut instance.connection, &format!("MEMORY USAGE {key}")) };
    let memory = [usage(&mut one, filter.kind.key), keys[3..].iter().map(|key| usage(&mut three, key)).sum()];
    Instead { size, items: rows.into(), memory }
}

impl Instead {
    pub(super) fn write(&self, page: &mut String) {
        let _ = write!(
            page,
            "### Instead of three filters and a script\n\n\
             This compares two ways to remember {size} items at 1 %. The first is one filter with WINDOW, which forgets an \
             item 1 to {most:.3} windows after it was added. The second is three of RedisBloom's filters, each with a third of \
             the error rate and the items of half a window. They forget an item after 1 to 1.5 windows. A Lua script checks \
             all three, and adds an item that is in none of them to the newest. When it is time, the script deletes the \
             oldest filter and reserves a new one. Times are the processor time of the whole server, in nanoseconds an item \
             of {LENGTH} bytes.\n\n\
             ![Processor time an item]({CHART})\n\n\
             | | oxbloom, one filter | RedisBloom, three filters, a script | ratio |\n|---|--:|--:|--:|\n",
            size = self.size,
            most = 1.0 + 1.0 / SLICES as f64,
        );
        for (title, [one, three]) in &self.items {
            let ratio = one.cpu.ratio_to(&three.cpu);
            let _ = writeln!(page, "| {title} | {} | {} | {ratio:.2} |", spread(&one.cpu), spread(&three.cpu));
        }
        let [one, three] = self.memory;
        let ratio = one / three;
        let _ = writeln!(page, "| MEMORY USAGE | {} | {} | {ratio:.2} |\n", bytes(one), bytes(three));
    }
}
