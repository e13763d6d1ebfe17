//! The server's own operations on filters: copying, serializing, measuring, moving and freeing them.

use oxbloom_filter::internals::codec::{self, Header, Origin, chunk};
use redis::{Connection, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::expected::OTHER_DEFAULTS;
use testkit::command::{ABSENT, try_many};
use testkit::filter_model::{Family, FilterModel, native_in_four_chunks, various};
use testkit::info::{CUCKOO_LAYOUTS, LAYOUTS, Sums, add_gauges, digest_of, info, info_number, reserving, used_memory};
use testkit::payload::{Part, Payload};
use testkit::server::{wait_until, with_debug};
use testkit::{Setup, ask, error_text, payload, run, run_words};

fn dump(client: &mut Connection, key: &str) -> Vec<u8> {
    ask(client, &format!("DUMP {key}"))
}

fn restore(client: &mut Connection, key: &str, ttl: &str, payload: &[u8], options: &[&str]) -> Result<(), String> {
    let mut words = vec![b"RESTORE".as_slice(), key.as_bytes(), ttl.as_bytes(), payload];
    words.extend(options.iter().map(|option| option.as_bytes()));
    run_words(client, &words).map(drop).map_err(|error| error_text(&error))
}

#[test]
fn a_dump_restores_to_the_same_filter_on_any_server_which_grows_like_the_original() {
    for compression in ["yes", "no"] {
        let server = with_debug(Setup::oxbloom().set(format!("rdbcompression {compression}"))).start();
        let other = with_debug(Setup::oxbloom().module_arguments(OTHER_DEFAULTS)).start();
        let (mut here, mut there) = (server.connect(), other.connect());
        for model in various(&mut here) {
            let expected = model.observe(&mut here);
            let payload = dump(&mut here, &model.key);
            assert_eq!(
                restore(&mut here, &model.key, "0", &payload, &[]),
                Err("BUSYKEY Target key name already exists.".to_owned())
            );
            restore(&mut here, "again", "0", &payload, &["REPLACE"]).unwrap();
            restore(&mut there, "elsewhere", "0", &payload, &["REPLACE"]).unwrap();
            let (mut again, mut elsewhere) = (model.at("again"), model.at("elsewhere"));
            assert_eq!(again.observe(&mut here), expected);
            assert_eq!(elsewhere.observe(&mut there), expected);
            assert_eq!(digest_of(&mut here, &model.key), digest_of(&mut there, "elsewhere"));
            assert_eq!(dump(&mut here, "again"), payload);
            if model.is_fixed() {
                continue;
            }
            assert_eq!(again.add(&mut here, 50_000..53_000), elsewhere.add(&mut there, 50_000..53_000));
            assert_eq!(again.observe(&mut here), elsewhere.observe(&mut there));
            if !model.needs_time() {
                assert_eq!(digest_of(&mut here, "again"), digest_of(&mut there, "elsewhere"), "{}", model.key);
            }
        }
    }
}

#[test]
fn a_copy_shares_nothing_with_the_original() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    for model in various(&mut client) {
        let key = &model.key;
        let expected = model.observe(&mut client);
        let before = digest_of(&mut client, key);
        assert_eq!(ask::<i64>(&mut client, &format!("COPY {key} copy")), 1);
        assert_eq!(ask::<i64>(&mut client, &format!("COPY {key} copy")), 0);
        assert_eq!(ask::<i64>(&mut client, &format!("COPY {key} {key} DB 3")), 1);
        let mut copy = model.at("copy");
        assert_eq!(copy.observe(&mut client), expected);
        assert_eq!(digest_of(&mut client, "copy"), before);
        if model.is_fixed() {
            assert_full(&mut client, &copy);
        } else {
            copy.add(&mut client, 70_000..71_000);
            assert_ne!(digest_of(&mut client, "copy"), before);
        }
        assert_eq!(digest_of(&mut client, key), before);
        assert_eq!(model.observe(&mut client), expected);

        let changed = copy.observe(&mut client);
        assert_eq!(ask::<i64>(&mut client, &format!("DEL {key}")), 1);
        assert_eq!(copy.observe(&mut client), changed);
        assert_eq!(ask::<i64>(&mut client, &format!("COPY copy {key} REPLACE")), 1);
        assert_eq!(ask::<i64>(&mut client, "DEL copy"), 1);
        assert_eq!(copy.at(key).observe(&mut client), changed);
        run(&mut client, "SELECT 3").unwrap();
        assert_eq!(model.observe(&mut client), expected);
        run(&mut client, "SELECT 0").unwrap();
    }
}

/// Panics unless the filter rejects one of a thousand items. A full filter accepts false positives, but these cannot
/// all be false positives.
fn assert_full(client: &mut Connection, model: &FilterModel) {
    let replies = (ABSENT..ABSENT + 1000).map(|number| try_many(client, model.adding(), &model.key, &[number]));
    let rejection = replies.map(|reply| reply.map_err(|error| error_text(&error))).find(|reply| match reply {
        Ok(reply) => *reply == Value::Array(vec![Value::Int(-1)]),
        Err(_) => true,
    });
    let expected = match model.family {
        Family::Bloom => Err("ERR non scaling filter is full".to_owned()),
        Family::Cuckoo => Ok(Value::Array(vec![Value::Int(-1)])),
    };
    assert_eq!(rejection, Some(expected), "{}", model.key);
}

#[test]
fn memory_usage_is_the_size_of_the_filter_and_a_constant() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let mut overheads = Vec::new();
    for (index, model) in various(&mut client).into_iter().enumerate() {
        // All names have the same length, since MEMORY USAGE includes them.
        let key = format!("name-{index:02}");
        run(&mut client, &format!("RENAME {} {key}", model.key)).unwrap();
        let usage: u64 = ask(&mut client, &format!("MEMORY USAGE {key}"));
        let mut sums = Sums::default();
        add_gauges(&mut client, &key, &mut sums);
        let size: u64 = sums.iter().map(|gauges| gauges[2]).sum();
        overheads.push(usage.checked_sub(size).unwrap_or_else(|| panic!("{}: {usage} under {size}", model.key)));
    }
    // glibc hands out a whole free block if its rest would be too small to use. So a key's name may take more memory.
    let rounding = if info(&mut client, "memory", "mem_allocator") == "libc" { 16 } else { 0 };
    let (min, max) = (overheads.iter().min().unwrap(), overheads.iter().max().unwrap());
    assert!(max - min <= rounding && *max < 300, "{overheads:?}");
}

/// RedisBloom has no digest of the contents.
#[test]
fn digests_depend_on_the_contents_but_not_on_the_order_of_additions() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let counts = |layout: &str| layout == "counting" || layout.ends_with("cuckoo");
    for layout in LAYOUTS.into_iter().chain(CUCKOO_LAYOUTS).filter(|(layout, _)| *layout != "windowed") {
        let prefix = FilterModel::of_layout(layout.0, "a").family.prefix();
        for key in ["a", "b"] {
            run(&mut client, &reserving(key, "0.001 100", layout)).unwrap();
        }
        let mut differ_after = |lines: &[String]| {
            lines.iter().for_each(|line| drop(run(&mut client, line).unwrap()));
            digest_of(&mut client, "a") != digest_of(&mut client, "b")
        };
        let add = |key: &str, item: &str| format!("{prefix}.ADD {key} {item}");
        assert!(!differ_after(&[]), "{layout:?}");
        assert!(differ_after(&[add("a", "one"), add("a", "two")]), "{layout:?}");
        assert!(!differ_after(&[add("b", "two"), add("b", "one")]), "{layout:?}");
        assert_eq!(differ_after(&[add("a", "one")]), counts(layout.0), "{layout:?}");
        run(&mut client, "DEL a b").unwrap();
    }
    for (key, options) in [("a", "SEED 7"), ("b", "SEED 8"), ("c", "SEED 7 COUNTING")] {
        run(&mut client, &format!("BF.RESERVE {key} 0.001 100 {options}")).unwrap();
    }
    let [a, b, c] = ["a", "b", "c"].map(|key| digest_of(&mut client, key));
    assert!(a != b && a != c && b != c);
}

#[test]
fn large_filters_are_freed_in_the_background() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let start = used_memory(&mut client);
    let freed = |client: &mut Connection| info_number(client, "memory", "lazyfreed_objects");
    let reserve = |client: &mut Connection| {
        assert_eq!(run(client, "BF.RESERVE large 0.01 40000000"), Ok(Value::Okay));
        assert!(used_memory(client) > start + (40 << 20));
    };
    let returned = |client: &mut Connection| used_memory(client) < start + (1 << 20);
    for free in ["UNLINK large", "FLUSHALL ASYNC"] {
        reserve(&mut client);
        let before = freed(&mut client);
        run(&mut client, free).unwrap();
        wait_until("the memory has returned", || returned(&mut client));
        // The background thread counts an object only after it has freed it.
        wait_until(&format!("{free} has freed in the background"), || freed(&mut client) > before);
    }
    // A small filter is freed at once.
    run(&mut client, "BF.RESERVE small 0.01 1000").unwrap();
    let before = freed(&mut client);
    run(&mut client, "UNLINK small").unwrap();
    assert_eq!(freed(&mut client), before);
}

#[test]
fn payloads_with_swapped_chunks_or_flipped_bits_are_rejected() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = server.connect();
    // Creates a filter with three chunks of bits: two of the same size, and a smaller one.
    run(&mut client, "BF.RESERVE wide 0.01 7000000").unwrap();
    FilterModel::new("wide").add(&mut client, 0..300);
    // Creates a filter with one chunk of bits, and three chunks of the table.
    native_in_four_chunks(&mut client, "deep");
    for (number, (key, one, other)) in
        [("wide", 0, 1), ("wide", 1, 2), ("deep", 0, 1), ("deep", 1, 2)].iter().enumerate()
    {
        let payload = Payload::parse(&dump(&mut client, key));
        let mut parts = payload.parts();
        // After the header, each chunk is followed by its checksum.
        assert_eq!(parts.len(), if *key == "wide" { 1 + 2 * 3 } else { 1 + 2 * 4 });
        for part in [1, 2] {
            parts.swap(2 * one + part, 2 * other + part);
        }
        let swapped = payload.with_parts(payload.encoding(), &parts);
        let rejected = restore(&mut client, "swapped", "0", &swapped, &[]);
        assert_eq!(rejected, Err("ERR Bad data format".to_owned()), "{key} {one} {other}");
        assert_eq!(server.log().matches("rejected a filter in a file or payload: damaged data").count(), number + 1);
        for part in [1, 2] {
            parts.swap(2 * one + part, 2 * other + part);
        }
        let whole = payload.with_parts(payload.encoding(), &parts);
        restore(&mut client, "swapped-back", "0", &whole, &["REPLACE"]).unwrap();
    }

    // Flips a bit, and renews the checksum. The header still has the old number of set bits.
    // With this seed, the checksum takes 8 bytes in the file. One in 2^32 starts with 32 zero bits, and takes fewer.
    run(&mut client, "BF.RESERVE key 0.01 20000 SEED 7").unwrap();
    FilterModel::new("key").add(&mut client, 0..300);
    let payload = Payload::parse(&dump(&mut client, "key"));
    let strings = payload::strings(&payload.body);
    let (_, header): (u64, Vec<u8>) = ask(&mut client, "BF.SCANDUMP key 0");
    let filter = Header::decode(&header, Origin::Client).and_then(|header| header.build()).expect("a filter");
    let [tag, _] = codec::tags(&filter).expect("tags");
    let checksum = |bits: &[u8]| chunk::checksum(bits, bits.len() as u64, tag);
    let mut flipped = payload.body.clone();
    let bits = strings[1].clone();
    let stored = bits.end + 2..bits.end + 10;
    let in_file = u64::from_be_bytes(flipped[stored.clone()].try_into().unwrap());
    assert_eq!(in_file, checksum(&flipped[bits.clone()]), "the checksum is not here");
    flipped[bits.start + 5] ^= 1;
    let fitting = checksum(&flipped[bits]).to_be_bytes();
    flipped[stored].copy_from_slice(&fitting);
    let rejected = restore(&mut client, "flipped", "0", &payload.seal(&flipped), &[]);
    assert_eq!(rejected, Err("ERR Bad data format".to_owned()));
    restore(&mut client, "whole", "0", &payload.seal(&payload.body), &[]).unwrap();
}

/// In place of a value of another type, the server hands over 0, and marks the file.
#[test]
fn a_value_of_another_type_is_damage_and_not_zero_or_a_lack_of_memory() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 100 LAYOUT classic").unwrap();
    let payload = Payload::parse(&dump(&mut client, "key"));
    let parts = payload.parts();
    let [.., Part::String(_), Part::Unsigned(0)] = parts[..] else { panic!("{parts:?}") };
    let mut without_bits = parts.clone();
    without_bits[parts.len() - 2] = Part::Unsigned(0);
    // A string in place of the last number, cut off after its code, so that the code of the end follows.
    let mut without_number = payload.body.clone();
    without_number.drain(payload.body.len() - 2..payload.body.len() - 1);
    without_number[payload.body.len() - 3] = 5;
    for forged in [payload.with_parts(payload.encoding(), &without_bits), payload.seal(&without_number)] {
        assert_eq!(restore(&mut client, "forged", "0", &forged, &[]), Err("ERR Bad data format".to_owned()));
    }
    assert_eq!(server.log().matches("rejected a filter in a file or payload: damaged data").count(), 2);
}

/// Raises the version of a header, which is at a place, and renews its checksum.
fn raise_version(header: &mut [u8], at: usize) {
    header[at] += 1;
    let (body, checksum) = header.split_last_chunk_mut().expect("a header");
    *checksum = xxh3_64(body).to_le_bytes();
}

#[test]
fn data_of_a_later_version_is_rejected_with_an_error_that_says_so() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = server.connect();
    run(&mut client, "BF.ADD key item").unwrap();
    let payload = Payload::parse(&dump(&mut client, "key"));
    let newer = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut body = payload.body.clone();
        change(&mut body);
        payload.seal(&body)
    };
    // The low ten bits of the data type's number are the version of its encoding. The header has a version of its own.
    let by_type = newer(&|body| body[9] += 1);
    let by_header = newer(&|body| {
        let place = payload::strings(body)[0].clone();
        // The header is packed: the version follows a tag.
        raise_version(&mut body[place], 4);
    });
    for (count, payload) in [by_type, by_header].into_iter().enumerate() {
        assert_eq!(restore(&mut client, "newer", "0", &payload, &[]), Err("ERR Bad data format".to_owned()));
        let lines = server.log().matches("rejected a filter in a file or payload: written by a later version").count();
        assert_eq!(lines, count + 1, "{}", server.log());
    }
    assert_eq!(ask::<i64>(&mut client, "EXISTS newer"), 0);
    let chunk: (u64, Vec<u8>) = ask(&mut client, "BF.SCANDUMP key 0");
    let mut header = chunk.1;
    raise_version(&mut header, 3);
    let rejected = run_words(&mut client, &[b"BF.LOADCHUNK".as_slice(), b"newer", b"1", &header]).unwrap_err();
    assert_eq!(error_text(&rejected), "ERR received data of a later version: upgrade the module on this server");
}
