//! Eviction deletes whole filters.

use std::ops::Range;

use redis::Connection;

use crate::memory::filling::split;
use testkit::command::item;
use testkit::filter_model::FilterModel;
use testkit::info::{LAYOUTS, info_number};
use testkit::memory::{MIB, limit};
use testkit::replication::{Pair, assert_synchronized};
use testkit::server::with_debug;
use testkit::{Setup, ask, error_text, run, run_words};

#[test]
fn eviction_deletes_whole_filters_and_the_others_keep_all_items() {
    const FILTERS: usize = 45;
    for (policy, lazy) in
        [("allkeys-lru", "yes"), ("allkeys-random", "no"), ("volatile-lru", "yes"), ("volatile-ttl", "no")]
    {
        let setup = || with_debug(Setup::oxbloom());
        let master = setup().set(format!("maxmemory-policy {policy}")).set(format!("lazyfree-lazy-eviction {lazy}"));
        let pair = Pair::start(master, setup());
        let (mut client, mut reader) = pair.clients();
        limit(&mut client, 12 * MIB);
        let is_volatile = |number: usize| policy.starts_with("volatile") && !number.is_multiple_of(8);
        let key = |number: usize| format!("{}{number}", LAYOUTS[number % LAYOUTS.len()].0);
        let mut models = Vec::new();
        for number in 0..FILTERS {
            let flags = LAYOUTS[number % LAYOUTS.len()].1;
            let capacity = if number % 5 == 0 { 2_000 } else { 400_000 };
            run(&mut client, &format!("BF.RESERVE {} 0.0001 {capacity} EXPANSION 2 {flags}", key(number))).unwrap();
            if is_volatile(number) {
                run(&mut client, &format!("EXPIRE {} {}", key(number), 10_000 + number)).unwrap();
            }
            models.push(FilterModel::new(&key(number)));
            // Adds items to each filter. Some filters grow, and any of them may have been evicted.
            let first = number as u64 * 700;
            models.retain_mut(|model| insert_if_there(&mut client, model, first..first + 700));
        }
        assert!(info_number(&mut client, "stats", "evicted_keys") > 5, "{policy}");
        run(&mut client, "CONFIG SET maxmemory 0").unwrap();
        let mut is_there = |key: &str| ask::<i64>(&mut client, &format!("EXISTS {key}")) == 1;
        models.retain(|model| is_there(&model.key));
        let stay = (0..FILTERS).filter(|&number| is_there(&key(number))).count();
        let unfair = (0..FILTERS)
            .find(|&number| policy.starts_with("volatile") && !is_volatile(number) && !is_there(&key(number)));
        assert_eq!((models.len(), unfair), (stay, None), "{policy}");
        models.iter().for_each(|model| {
            model.observe(&mut client);
        });
        assert_synchronized(&mut client, &mut reader, policy);
    }
}

/// Adds items to a filter if it still exists. Returns true if it does.
fn insert_if_there(client: &mut Connection, model: &mut FilterModel, numbers: Range<u64>) -> bool {
    let mut command = split(&format!("BF.INSERT {} NOCREATE ITEMS", model.key));
    command.extend(numbers.clone().map(item));
    match run_words(client, &command) {
        Ok(_) => model.items.extend(numbers),
        Err(rejection) => assert_eq!(error_text(&rejection), "ERR not found", "{}", model.key),
    }
    ask::<i64>(client, &format!("EXISTS {}", model.key)) == 1
}
