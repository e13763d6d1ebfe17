//! Seeds of hash functions: a random one for each filter.

use testkit::Setup;
use testkit::wire::Wire;

#[test]
fn each_filter_gets_a_random_seed_of_its_own() {
    const FILTERS: u64 = 2000;
    let servers = [Setup::oxbloom().start(), Setup::oxbloom().start()];
    let mut seeds = std::collections::HashSet::new();
    let mut ones = [0u64; 64];
    for server in &servers {
        let mut client = Wire::resp2(server);
        let lines = ["BF.RESERVE key 0.01 100", "BF.ADD key a", "BF.MADD key a", "BF.INSERT key ITEMS a"];
        let kinds = ["COUNTING", "WINDOW 60", "ROLLING"].map(|kind| format!("BF.RESERVE key 0.01 100 {kind}"));
        let lines = lines.map(str::to_owned).into_iter().chain(kinds).cycle();
        for line in lines.take(FILTERS as usize / servers.len()) {
            client.run("DEL key");
            client.run(&line);
            let seed = client.run("BF.INFO key SEED").elements()[0].text();
            let seed: u64 = seed.parse().unwrap();
            assert!(seeds.insert(seed), "{seed} twice");
            ones.iter_mut().enumerate().for_each(|(bit, ones)| *ones += seed >> bit & 1);
        }
    }
    // Each bit is set in half of the seeds, within 9 standard deviations. By chance, one of the 64 bits exceeds this in
    // fewer than one run in 10^16.
    let expected = FILTERS as f64 / 2.0;
    let limit = 9.0 * expected.sqrt() / 2f64.sqrt();
    assert!(ones.iter().all(|&ones| (ones as f64 - expected).abs() < limit), "{ones:?}, limit {limit}");
}
