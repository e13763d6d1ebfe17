//! Requests that grow with the number of layers.

use crate::memory::filling::{Words, split, words};
use testkit::filter_model::FilterModel;
use testkit::info::{LAYOUTS, info_number};
use testkit::memory::starving;
use testkit::server::{wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, oxbloom_with_faults, run};

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
                } else if reply == Reply::simple("OK") {
                    // A vector could not give back what it does not use.
                    assert_eq!(command[0], b"RESTORE", "{layout}");
                    assert_eq!(wire.run("DUMP new"), Reply::Bulk(payload.clone()), "{layout}");
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
