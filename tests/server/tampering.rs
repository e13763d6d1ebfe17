//! Forged payloads: the server survives any data in RESTORE, and rejected data changes nothing.

use oxbloom_filter::internals::codec::packing;
use redis::{Connection, Value};

use models::random::Random;
use testkit::filter_model::{FilterModel, use_in_every_way};
use testkit::forgery::sealed::first_string;
use testkit::info::{CUCKOO_LAYOUTS, LAYOUTS, digest, is_foreign, reserving};
use testkit::memory::limited;
use testkit::payload::{Part, Payload};
use testkit::server::with_debug;
use testkit::{Server, Setup, ask, error_text, payload, run, run_words};

/// Returns the number of payloads for each layout and each of two seeds, a fixed and a random one. The environment
/// variable `PAYLOADS` sets it.
fn rounds() -> usize {
    std::env::var("PAYLOADS").map_or(6000, |number| number.parse().expect("PAYLOADS is a number"))
}

/// Numbers that forged headers contain.
const NUMBERS: [u64; 14] =
    [0, 1, 2, 3, 63, 1 << 16, 1 << 24, 1 << 31, 1 << 32, 1 << 40, 1 << 57, 1 << 61, i64::MAX as u64, u64::MAX];
const FLOATS: [f64; 10] = [0.0, -0.0, -1.0, 1.0, 0.5, 1e-300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

const KINDS: [&str; 5] = ["0.01 100", "0.01 50 NONSCALING", "0.01 5 EXPANSION 1", "0.1 10 EXPANSION 3", "0.01 20000"];

fn start() -> Server {
    limited(with_debug(Setup::oxbloom()).set("rdbcompression no")).start()
}

/// Creates the filter `source` with these parameters and a number of items.
fn create_source(client: &mut Connection, kind: &str, layout: (&str, &str), items: u64) {
    run(client, "DEL source").unwrap();
    run(client, &reserving("source", kind, layout)).unwrap();
    FilterModel::of_layout(layout.0, "source").add(client, 0..items);
}

fn anywhere(random: &mut Random, length: usize) -> usize {
    random.below(length.max(1) as u64) as usize
}

/// Damages the bytes from `first` on: flips bits, truncates them, or repeats, removes or overwrites a part.
fn damage(random: &mut Random, bytes: &mut Vec<u8>, first: usize) {
    if bytes.len() <= first {
        return;
    }
    let at = first + anywhere(random, bytes.len() - first);
    match random.below(4) {
        0 => {
            for _ in 0..=random.below(3) {
                let at = first + anywhere(random, bytes.len() - first);
                bytes[at] ^= 1 << random.below(8);
            }
        }
        1 => bytes.truncate(at),
        2 => {
            let to = at + anywhere(random, bytes.len() - at + 1);
            let part = bytes[at..to].to_vec();
            let twice = random.chance(50);
            drop(bytes.splice(at..to, if twice { [&part[..], &part].concat() } else { Vec::new() }));
        }
        _ => {
            let length = anywhere(random, 16.min(bytes.len() - at + 1));
            bytes[at..at + length].iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        }
    }
}

fn forged_number(random: &mut Random) -> u64 {
    random.one_of(&NUMBERS).wrapping_add(random.below(3))
}

/// Overwrites one or two places of a header before `end` with forged numbers.
fn forge_header(random: &mut Random, header: &mut [u8], end: usize) {
    for _ in 0..=random.below(2) {
        let at = anywhere(random, end);
        let bytes =
            if random.chance(30) { random.one_of(&FLOATS).to_le_bytes() } else { forged_number(random).to_le_bytes() };
        let width = random.one_of(&[1, 4, 8]).min(end - at);
        header[at..at + width].copy_from_slice(&bytes[..width]);
    }
}

/// Does the same as [`forge_header`] for the first string of a payload of our own, and renews its checksum.
fn forge_first_string(random: &mut Random, first: &mut Vec<u8>) {
    let packed = &first[..first.len().saturating_sub(8)];
    if let Ok(mut unpacked) = packing::unpack(packed, 1 << 16) {
        let end = unpacked.len();
        forge_header(random, &mut unpacked, end);
        *first = first_string(&unpacked);
    }
}

/// Returns a payload with random changes.
fn tamper_with(random: &mut Random, original: &Payload, layout: &str) -> Vec<u8> {
    if random.chance(40) {
        let mut body = original.body.clone();
        // The earlier bytes belong to the server.
        damage(random, &mut body, payload::TYPE_BYTES);
        return original.seal(&body);
    }
    let mut parts = original.parts();
    for _ in 0..=random.below(2) {
        let index = anywhere(random, parts.len());
        if parts.is_empty() {
            break;
        }
        match (&mut parts[index], random.below(10)) {
            (_, 0) => drop(parts.remove(index)),
            (_, 1) => {
                let other = anywhere(random, parts.len());
                parts.swap(index, other);
            }
            (Part::Unsigned(number), _) => *number = forged_number(random),
            (Part::Double(number), _) => *number = random.one_of(&FLOATS),
            (Part::String(first), _) if !is_foreign(layout) && index == 0 => forge_first_string(random, first),
            (Part::String(bytes), _) => damage(random, bytes, 0),
        }
    }
    // Earlier versions of the encoding have fewer parts.
    let encoding = if random.chance(20) { random.below(8) } else { original.encoding() };
    original.with_parts(encoding, &parts)
}

#[test]
fn a_payload_that_was_tampered_with_is_rejected_or_works() {
    let server = start();
    let mut client = server.connect();
    for (layout, words) in LAYOUTS.into_iter().chain(CUCKOO_LAYOUTS) {
        let mut originals = Vec::new();
        for (kind, items) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 40)]) {
            create_source(&mut client, kind, (layout, words), items);
            originals.push(Payload::parse(&ask::<Vec<u8>>(&mut client, "DUMP source")));
        }
        run(&mut client, &format!("RENAME source {layout}")).unwrap();
        let before = digest(&mut client);
        for mut random in [Random(1), Random::unpredictable()] {
            let mut accepted = 0;
            for _ in 0..rounds() {
                let original = &originals[anywhere(&mut random, originals.len())];
                let payload = tamper_with(&mut random, original, layout);
                match run_words(&mut client, &[b"RESTORE".as_slice(), b"key", b"0", &payload]) {
                    Ok(_) => {
                        accepted += 1;
                        use_in_every_way(&mut client, "key");
                        assert_eq!(run(&mut client, "DEL key"), Ok(Value::Int(1)));
                    }
                    Err(error) => assert_eq!(error_text(&error), "ERR Bad data format"),
                }
            }
            // A classic filter has no checksums, so changed bits are accepted.
            let max = if is_foreign(layout) { rounds() / 2 } else { rounds() / 3 };
            assert!(accepted < max, "{layout}: {accepted} of {} were accepted", rounds());
            assert_eq!(digest(&mut client), before);
        }
    }
    assert!(server.is_alive());
}
