//! Requests of single additions to filters that forget, and requests that grow with the number of layers.

use redis::Connection;

use crate::memory::filling::{Words, split, words};
use testkit::clock::{SECOND, stopped_pair, turn, with_clock};
use testkit::command::{item, many};
use testkit::filter_model::FilterModel;
use testkit::info::{LAYOUTS, assert_figures_add_up, digest, digest_of, info_field, info_number};
use testkit::memory::{grow, starving};
use testkit::replication::wait_for_replica;
use testkit::server::{wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, oxbloom_with_faults, run};

/// The same for single additions to filters that forget.
const LEAST_OF_SEGMENTS: u64 = 256;

#[test]
fn a_failed_addition_to_a_filter_that_forgets_changes_nothing() {
    /// The number of items in the busiest window.
    const BUSY: usize = 3000;
    /// The total number of items.
    const ALL: u64 = 8000;
    const WINDOW: i64 = 3600 * SECOND;
    let pair = stopped_pair(with_clock(), with_clock());
    let ((mut client, mut reader), mut wire) = (pair.clients(), Wire::resp2(&pair.master));
    for (capacity, options) in [
        (10, "REFRESH"),
        (10, "SLICES 64"),
        (2 * BUSY, "NONSCALING"),
        (2 * BUSY, "ROLLING"),
        // Each slice has one item.
        (64, "ROLLING SLICES 64"),
    ] {
        run(&mut client, &format!("BF.RESERVE key 0.0000001 {capacity} WINDOW 3600 {options} SEED 7")).unwrap();
        let slice = WINDOW / info_field::<i64>(&mut client, "key", "SLICES");
        // `came` has the time of each item's addition.
        let check = |client: &mut Connection, came: &[i64], clock: i64| {
            let numbers: Vec<u64> = (0..=came.len() as u64).collect();
            let mut found: Vec<bool> = many(client, "BF.MEXISTS", "key", &numbers);
            assert_eq!(found.pop(), Some(false), "{options}: an item that was not added is found");
            for (number, (since, found)) in came.iter().zip(found).enumerate() {
                let is_last = !options.contains("ROLLING") || number + capacity >= came.len();
                assert!(found || since + WINDOW <= clock || !is_last, "{options}: item {number} was forgotten");
                assert!(!found || since + WINDOW + slice > clock, "{options}: item {number} was not forgotten");
            }
        };
        let (mut came, mut clock, mut rejected) = (Vec::new(), 0, 0);
        for number in 0..ALL {
            // A pause that is longer than the window, then a fast stream of items, then one at half the speed.
            clock += match number % 4000 {
                0 => 2 * WINDOW,
                1..1500 => WINDOW / BUSY as i64,
                _ => 2 * WINDOW / BUSY as i64,
            };
            turn(&mut client, clock);
            let present: u64 = ask(&mut client, "BF.CARD key");
            for request in 1.. {
                let before = digest_of(&mut client, "key");
                let add = words([b"BF.ADD", b"key", &item(number)]);
                let (reply, _) = starving(&mut wire, request, LEAST_OF_SEGMENTS, |wire| wire.run_words(&add));
                if !reply.is_error() {
                    assert_eq!(reply, Reply::Integer(1), "{options}: item {number}");
                    break;
                }
                assert_eq!(reply, Reply::error(grow::SYSTEM));
                assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), present, "{options}: item {number}");
                check(&mut client, &came, clock);
                rejected += 1;
                assert_eq!(digest_of(&mut client, "key"), before, "{options}: item {number}");
            }
            came.push(clock);
        }
        assert!(rejected > 2, "{options}: only {rejected} additions failed");
        assert_figures_add_up(&mut client);
        wait_for_replica(&mut client, &mut reader);
        turn(&mut reader, clock);
        check(&mut reader, &came, clock);
        // The replica may have split a growing table when the master had no memory for that.
        if capacity > 10 {
            assert_eq!(digest(&mut reader), digest(&mut client), "{options}");
        }
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// Some requests grow with the number of layers, such as those for a header.
#[test]
fn requests_that_grow_with_the_number_of_layers_may_fail_and_none_ends_the_server() {
    const MANY: u64 = 1000;
    // A header with `MANY` layers is larger than `LEAST` bytes. Few other requests are as large.
    const LEAST: u64 = 28 * MANY;
    let faulty = || with_debug(Setup::with_module(oxbloom_with_faults())).set("appendonly yes");
    let server = faulty().set("aof-use-rdb-preamble no").start();
    let mut client = server.connect();
    let mut wire = Wire::resp2(&server);
    for (layout, flags) in LAYOUTS {
        let mut model = FilterModel::new("deep");
        let is_table = !["classic", "valkey"].contains(&layout);
        if is_table {
            // The filter has one or two layers, and a chunk of more than `LEAST` bytes.
            run(&mut client, &format!("BF.RESERVE deep 0.0000001 1000 {flags}")).unwrap();
            model.add(&mut client, 0..20_000);
        } else {
            run(&mut client, &format!("BF.RESERVE deep 0.5 1 EXPANSION 1 {flags}")).unwrap();
            for first in (0..).step_by(50) {
                model.add(&mut client, first..first + 50);
                if ask::<Vec<u64>>(&mut client, "BF.INFO deep FILTERS")[0] > MANY {
                    break;
                }
            }
        }
        let (cursor, header): (u64, Vec<u8>) = ask(&mut client, "BF.SCANDUMP deep 0");
        let payload: Vec<u8> = ask(&mut client, "DUMP deep");
        // The last chunk is the table's.
        let chunks = Wire::resp2(&server).scan_dump("deep");
        let before_last = chunks[chunks.len() - 2].0;
        assert!(is_table || header.len() as u64 > LEAST, "{layout}: {}", header.len());
        let mut starve = |command: &Words| {
            for request in 1u64.. {
                let (reply, requests) = starving(&mut wire, request, LEAST, |wire| wire.run_words(command));
                if requests < request {
                    assert!(!reply.is_error(), "{layout}: {reply:?}");
                    return request - 1;
                }
                // A module cannot make DUMP fail, so it writes a payload that RESTORE rejects.
                if let Reply::Bulk(cut) = &reply {
                    let restored = wire.run_words(&[b"RESTORE".to_vec(), b"cut".to_vec(), b"0".to_vec(), cut.clone()]);
                    assert_eq!(restored, Reply::error("ERR Bad data format"), "{layout}");
                } else if !command[0].starts_with(b"DEBUG") {
                    let text = format!("{reply:?}");
                    assert!(
                        text.contains("Insufficient memory")
                            || text.contains("Bad data")
                            || text.contains("failed to copy"),
                        "{text}"
                    );
                }
                wire.run("DEL new");
            }
            unreachable!("all commands succeed in the end")
        };
        // The minimum number of requests that grow with the layers.
        let of_layers = u64::from(!is_table);
        for (least, command) in [
            (of_layers, split("BF.SCANDUMP deep 0")),
            (u64::from(is_table), split(&format!("BF.SCANDUMP deep {before_last}"))),
            (0, split("BF.DEBUG deep")),
            (of_layers, split("COPY deep new")),
            (u64::from(is_table), split("DUMP deep")),
            (of_layers, words([b"BF.LOADCHUNK", b"new", cursor.to_string().as_bytes(), &header])),
            (of_layers, words([b"RESTORE", b"new", b"0", &payload])),
            (1, split("DEBUG DIGEST-VALUE deep")),
        ] {
            run(&mut client, "DEL new").unwrap();
            let shown = String::from_utf8_lossy(&command[0]).into_owned();
            assert!(starve(&command) >= least, "{layout}: {shown}");
        }
        // The child that rewrites the log exits when the request fails, and the old log stays.
        starving(&mut wire, 1, LEAST, |_| {
            run(&mut client, "BGREWRITEAOF").unwrap();
            wait_until("the rewrite ends", || info_number(&mut client, "persistence", "aof_rewrite_in_progress") == 0);
        });
        model.observe(&mut client);
        run(&mut client, "FLUSHALL").unwrap();
    }
    assert!(server.is_alive() && !server.log().contains("crashed by signal"));
}
