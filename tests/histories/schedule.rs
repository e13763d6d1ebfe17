//! The faults of a history, from its seed.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use models::random::Random;

use crate::authority::fail_over;
use crate::connection::Client;
use crate::group::{Group, Loss};

/// The number of faults.
const FAULTS: Range<u64> = 3..10;

/// The greatest offsets of a clock, in milliseconds.
const JUMPS: [u64; 3] = [10_000, 60_000, 600_000];

/// The size of a value that makes masters forget what replicas would need to synchronize partially.
const FILLER: usize = 300_000;

/// Lets one fault after the other happen.
pub(crate) fn trouble(group: &Group, random: &mut Random) {
    for _ in 0..FAULTS.start + random.below(FAULTS.end - FAULTS.start) {
        let any = random.below(group.size() as u64) as usize;
        let server = if random.chance(50) { group.master() } else { any };
        pause(random, 100, 400);
        group.remember_id();
        match random.below(9) {
            0 | 1 => {
                let loss = random.one_of(&[Loss::All, Loss::FromServer, Loss::ToServer, Loss::Slow]);
                group.record.say(&format!("{loss:?} lost at {server}"));
                group.lose(server, loss);
                last(group, random, server);
            }
            2 | 3 => {
                group.record.say(&format!("{server} pauses"));
                group.signal(server, "-STOP");
                last(group, random, server);
                group.signal(server, "-CONT");
            }
            4 => {
                group.record.say(&format!("{server} is killed"));
                let killed = group.kill(server);
                last(group, random, server);
                group.restart(server, killed);
            }
            5 => {
                let most = random.one_of(&JUMPS);
                let offset = random.below(2 * most) as i64 - most as i64;
                group.record.say(&format!("the clock of {server} is {offset} ms off"));
                group.turn_clock(server, offset);
            }
            6 => {
                let delay = random.below(20_000);
                group.record.say(&format!("the disk of {server} takes {delay} microseconds a key"));
                for setting in ["rdb-key-save-delay", "key-load-delay"] {
                    Client::new(group, server).ask(&format!("CONFIG SET {setting} {delay}"));
                }
                Client::new(group, server).ask(random.one_of(&["BGSAVE", "BGREWRITEAOF"]));
            }
            7 => {
                group.record.say(&format!("{server} must synchronize fully"));
                group.lose(server, Loss::All);
                let filler = "x".repeat(FILLER);
                Client::new(group, group.master()).ask(&format!("SET filler {filler}"));
                pause(random, 100, 400);
            }
            _ if group.sentinels.is_none() => fail_over(group),
            _ => {}
        }
        heal(group);
    }
}

/// Waits for the end of a fault. Another server may become the master before.
fn last(group: &Group, random: &mut Random, server: usize) {
    if group.sentinels.is_some() {
        return pause(random, 200, 3000);
    }
    // The same numbers are drawn whether it is the master or not.
    let may_fail_over = random.chance(70);
    pause(random, 100, 700);
    if may_fail_over && server == group.master() {
        fail_over(group);
    }
    pause(random, 10, 300);
}

fn heal(group: &Group) {
    group.mend_links();
    if group.sentinels.is_none() {
        group.follow_master();
    }
}

fn pause(random: &mut Random, least: u64, most: u64) {
    thread::sleep(Duration::from_millis(least + random.below(most - least)));
}
