//! The figures of INFO, and the log lines about rejected commands and data.

use std::time::Instant;

use redis::Connection;
use tempfile::TempDir;

use testkit::command::{item, many, try_many};
use testkit::filter_model::various;
use testkit::info::{LAYOUTS, all_layouts, assert_figures_add_up, info, info_number, layout_figure};
use testkit::payload::Payload;
use testkit::persistence::{append_line_to_aof, append_to_aof, rewrite_aof};
use testkit::server::{server_name_and_version, wait_until, with_debug};
use testkit::{Server, Setup, ask, error_text, run, run_words};

/// The reasons for rejections, as INFO names them.
const REASONS: [&str; 6] =
    ["rejected_full", "rejected_memory", "rejected_data", "rejected_mismatch", "rejected_key", "rejected_syntax"];

/// Returns the figures of a layout that count events since the start of the server.
fn counted(client: &mut Connection, layout: &str) -> [u64; 5] {
    ["items_added", "duplicates", "items_removed", "layers_grown", "additions_rejected"]
        .map(|figure| layout_figure(client, layout, figure))
}

#[test]
fn additions_removals_and_rejections_are_counted_by_layout() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (layout, options) in LAYOUTS {
        let counts = layout == "counting";
        run(&mut client, &format!("BF.RESERVE {layout} 0.000001 10 {options}")).unwrap();
        assert_eq!(counted(&mut client, layout), [0; 5], "{layout}");
        // Adds three new items and two of them again in one command; then one item alone, three times.
        many::<Vec<bool>>(&mut client, "BF.MADD", layout, &[0, 1, 2, 1, 2]);
        for _ in 0..3 {
            many::<bool>(&mut client, "BF.ADD", layout, &[3]);
        }
        assert_eq!(counted(&mut client, layout), [4, 4, 0, 0, 0], "{layout}");
        // Look-ups change no figure.
        many::<Vec<bool>>(&mut client, "BF.MEXISTS", layout, &[0, 100]);
        many::<bool>(&mut client, "BF.EXISTS", layout, &[0]);
        assert_eq!(counted(&mut client, layout), [4, 4, 0, 0, 0], "{layout}");
        // The filter for ten items grows: a windowed one gets a larger table, and a classic one layers for twenty and
        // forty items. A counting filter is always a single table, and a native one for so few items is one from now on.
        let grown = match layout {
            "counting" | "native" => 0,
            "windowed" => 1,
            _ => 2,
        };
        let words = [b"BF.INSERT".to_vec(), layout.into(), b"ITEMS".to_vec()].into_iter().chain((0..40).map(item));
        run_words(&mut client, &words.collect::<Vec<_>>()).unwrap();
        assert_eq!(counted(&mut client, layout), [40, 8, 0, grown, 0], "{layout}");
        if counts {
            many::<bool>(&mut client, "BF.DEL", layout, &[0]);
            many::<bool>(&mut client, "BF.DEL", layout, &[1000]);
            many::<Vec<bool>>(&mut client, "BF.MDEL", layout, &[1, 1, 2, 1001]);
            assert_eq!(counted(&mut client, layout), [40, 8, 4, grown, 0]);
        }
        // Five items fit. One of them is given twice. The sixth ends the command. A windowed filter has room for one
        // more slice, which is one item here.
        let fit = if layout == "windowed" { 6 } else { 5 };
        run(&mut client, &format!("BF.RESERVE full{layout} 0.000001 5 NONSCALING {options}")).unwrap();
        let before = counted(&mut client, layout);
        try_many(&mut client, "BF.MADD", &format!("full{layout}"), &[0, 0, 1, 2, 3, 4, 5, 6, 7]).unwrap_err();
        let [added, duplicates, _, _, rejected] = counted(&mut client, layout);
        assert_eq!([added, duplicates, rejected], [before[0] + fit, before[1] + 1, 1], "{layout}");
        assert_figures_add_up(&mut client);
    }
}

#[test]
fn each_rejection_is_counted_by_its_reason() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for line in [
        "SET text value",
        "BF.RESERVE key 0.01 100",
        "BF.RESERVE other 0.01 200",
        "BF.RESERVE full 0.000001 1 NONSCALING",
        "BF.ADD full a",
    ] {
        run(&mut client, line).unwrap();
    }
    let mut payload = ask::<Vec<u8>>(&mut client, "DUMP key");
    let damaged = Payload::parse(&payload);
    payload[15] ^= 1;
    let damaged = damaged.seal(&payload[..payload.len() - 10]);
    let words = |line: &str| -> Vec<Vec<u8>> { line.split(' ').map(|word| word.as_bytes().to_vec()).collect() };
    let rejected = [
        (words("BF.ADD full b"), "rejected_full"),
        (words("BF.MADD full a b"), "rejected_full"),
        (words("BF.RESERVE vast 0.01 1000000000000000"), "rejected_memory"),
        (words("BF.LOADCHUNK new 1 rubbish"), "rejected_data"),
        ([b"RESTORE".to_vec(), b"new".to_vec(), b"0".to_vec(), damaged].to_vec(), "rejected_data"),
        (words("BF.MERGE key 1 other"), "rejected_mismatch"),
        (words("BF.DEL key item"), "rejected_mismatch"),
        (words("BF.ADD text item"), "rejected_key"),
        (words("BF.RESERVE key 0.01 100"), "rejected_key"),
        (words("BF.CARD absent"), ""),
        (words("BF.INFO absent"), "rejected_key"),
        (words("BF.RESERVE new 2 100"), "rejected_syntax"),
        (words("BF.INFO key NOTHING"), "rejected_syntax"),
    ];
    let mut expected = [0; REASONS.len()];
    for (words, reason) in rejected {
        let reply = run_words(&mut client, &words);
        assert_eq!(reply.is_err(), !reason.is_empty(), "{words:?}: {reply:?}");
        expected.iter_mut().zip(REASONS).filter(|(_, name)| *name == reason).for_each(|(count, _)| *count += 1);
        let counts = REASONS.map(|name| info_number(&mut client, "bf", &format!("bf_{name}")));
        assert_eq!(counts, expected, "{REASONS:?} after {words:?}");
    }
    assert_eq!(info_number(&mut client, "bf", "bf_internal_errors"), 0);
}

#[test]
fn figures_are_right_after_a_restart_a_reload_and_a_flush() {
    let filled = |setup: Setup| {
        let server = with_debug(setup).start();
        let mut client = server.connect();
        various(&mut client);
        for line in [
            "BF.MERGE merged 1 counting-fixed",
            "COPY linear copy",
            "COPY cuckoo-copies cuckoo-copy",
            "COPY cuckoo-classic-copies cuckoo-classic-copy",
            "CF.INSERT cuckoo-copy ITEMS a a b",
            "CF.INSERT cuckoo-classic-copy ITEMS a a b",
            "CF.DEL cuckoo-classic-copy a",
            "CF.DEL cuckoo-copy a",
            "CF.COMPACT cuckoo-classic-copies",
            // The last of these makes a filter grow by a merge.
            "BF.RESERVE united LIKE linear",
            "BF.ADD united item",
            "BF.MERGE united 1 linear",
        ] {
            run(&mut client, line).unwrap();
        }
        assert_figures_add_up(&mut client);
        server
    };
    let restarted = |setup: Setup, folder: TempDir| {
        let server = with_debug(setup).on(folder).start();
        let mut client = server.connect();
        assert_figures_add_up(&mut client);
        assert!(all_layouts().iter().all(|layout| layout_figure(&mut client, layout, "filters") > 0));
        server
    };
    let server = filled(Setup::oxbloom());
    run(&mut server.connect(), "SAVE").unwrap();
    let server = restarted(Setup::oxbloom(), server.kill());
    let mut client = server.connect();
    // Nothing was added since the restart.
    assert!(all_layouts().iter().all(|layout| counted(&mut client, layout) == [0; 5]));
    run(&mut client, "DEBUG RELOAD").unwrap();
    assert_figures_add_up(&mut client);
    run(&mut client, "FLUSHALL").unwrap();
    assert_figures_add_up(&mut client);
    assert_eq!(info_number(&mut client, "bf", "bf_bytes"), 0);

    for rewritten in [false, true] {
        let setup = || Setup::oxbloom().set("appendonly yes").set("aof-use-rdb-preamble no");
        let server = filled(setup());
        if rewritten {
            rewrite_aof(&mut server.connect());
        }
        restarted(setup(), server.kill());
    }
}

#[test]
fn info_shows_the_figures_in_the_sections_for_modules() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (asked, shown) in [("bf", true), ("modules", true), ("everything", true), ("memory", false)] {
        let text: String = ask(&mut client, &format!("INFO {asked}"));
        assert_eq!(text.contains("bf_filters:0"), shown, "INFO {asked}: {text}");
    }
    // Metrics agents that know nothing about modules can read the figures through a script.
    let text: String = ask(&mut client, "EVAL return(redis.call('INFO','bf')) 0");
    assert!(text.starts_with("# bf\r\nbf_version:") && text.contains("\r\nbf_filters:0\r\n"), "{text}");
}

#[test]
fn the_log_says_which_key_was_rejected_and_why() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    run(&mut client, "BF.ADD key item").unwrap();
    let payload = ask::<Vec<u8>>(&mut client, "DUMP key");
    let parsed = Payload::parse(&payload);
    let mut body = payload[..payload.len() - 10].to_vec();
    body[15] ^= 1;
    let long = [b'k'; 3000];
    let keys = [(&b"%s\xff"[..], "%s\u{fffd}"), (b"a\nb')\x1b[2J", r"a\nb\')\u{1b}[2J"), (&long, "kkk")];
    for (key, shown) in keys {
        let words = [b"RESTORE".to_vec(), key.to_vec(), b"0".to_vec(), parsed.seal(&body)];
        let rejected = run_words(&mut client, &words).unwrap_err();
        assert_eq!(error_text(&rejected), "ERR Bad data format");
        let log = server.log();
        let line = log.lines().find(|line| {
            line.contains("rejected a filter in a file or payload: damaged data (key '") && line.contains(shown)
        });
        assert!(line.is_some_and(|line| line.ends_with("')") && line.len() < 300), "{shown}: {log}");
    }
}

#[test]
fn rejected_commands_of_an_append_only_file_are_logged_and_counted_separately() {
    let setup = || Setup::oxbloom().set("appendonly yes").set("aof-use-rdb-preamble no");
    let server = setup().start();
    let mut client = server.connect();
    run(&mut client, "SET text a").unwrap();
    run(&mut client, "BF.ADD text item").unwrap_err();
    run(&mut client, "BF.RESERVE k 0.01 100000000000000000").unwrap_err();
    assert_eq!(info_number(&mut client, "bf", "bf_rejected_replicated"), 0);
    let folder = server.kill();
    append_to_aof(folder.path(), &[&[b"BF.ADD", b"text", b"a"], &[b"BF.ADD", b"text", b"b"]]);
    // No server writes these.
    const ARITY: &str = "ERR wrong number of arguments";
    let malformed = [
        ("BF.INSERT k CAPACITY 10 CAPACITY", ARITY),
        ("BF.INSERT k CAPACITY 10 NOCREATE", ARITY),
        ("CF.INSERT k NOCREATE CAPACITY", "Unknown argument received 'CAPACITY'"),
        ("CF.INSERT k CAPACITY 10 NOCREATE", ARITY),
    ];
    malformed.iter().for_each(|(line, _)| append_line_to_aof(folder.path(), line));
    let server = setup().on(folder).start();
    let line = "rejected BF.ADD 'text' from the master or the append-only file: WRONGTYPE";
    // Each of them is logged, however little time is between them.
    assert_eq!(server.log().matches(line).count(), 2, "{}", server.log());
    for ((line, error), rejected) in malformed.iter().zip(&rejections(&server)[2..]) {
        let start = format!("{} 'k' from the master or the append-only file: {error}", &line[..9]);
        assert!(rejected.starts_with(&start), "{line}: {rejected}");
    }
    let mut client = server.connect();
    assert_eq!(info_number(&mut client, "bf", "bf_rejected_replicated"), 6);
    assert_eq!(info(&mut client, "bf", "bf_rejected_key"), "2");
    // Commands of clients are not logged like this, since clients read their replies.
    run(&mut client, "BF.ADD text b").unwrap_err();
    assert_eq!(server.log().matches("rejected BF.ADD 'text' from the master").count(), 2);
}

/// Returns the log lines about rejected commands.
fn rejections(server: &Server) -> Vec<String> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| Some(line.split_once("<bf> rejected ")?.1.to_owned()));
    lines.collect()
}

#[test]
fn a_rejection_is_logged_with_its_command_key_client_and_reason() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let facts: String = ask(&mut client, "CLIENT INFO");
    let fact = |name: &str| facts.split(' ').find_map(|word| word.strip_prefix(name)).expect("a fact").to_owned();
    // Valkey reports the address of a client only in some commands.
    let address =
        if server_name_and_version().0 == "Valkey" { format!("client {}", fact("id=")) } else { fact("addr=") };
    assert_eq!(info(&mut client, "bf", "bf_last_rejection"), "");
    run(&mut client, "BF.INFO absent").unwrap_err();
    let expected = format!("BF.INFO 'absent' from {address} (user 'default'): ERR not found");
    assert_eq!(rejections(&server), std::slice::from_ref(&expected));
    let shown = info(&mut client, "bf", "bf_last_rejection");
    let (seconds, shown) = shown.split_once(' ').expect("a time and a rejection");
    assert!(seconds.parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000), "{seconds}");
    assert_eq!(shown, expected);
    // A rejection for another reason is logged at once, in a line of its own.
    run(&mut client, "BF.RESERVE k 2 100").unwrap_err();
    assert_eq!(rejections(&server).len(), 2);
    assert!(info(&mut client, "bf", "bf_last_rejection").ends_with(": ERR (0 < error rate range < 1)"));
    for (line, end) in [
        ("BF.INSERT k CAPACITY 100 TLL 60 ITEMS a", ": Unknown argument received 'TLL'"),
        ("BF.RESERVE k 0.01 100 COUNTING NX", ": ERR unknown option 'NX'"),
    ] {
        run(&mut client, line).unwrap_err();
        let shown = info(&mut client, "bf", "bf_last_rejection");
        assert!(shown.ends_with(end), "{shown}");
    }
    // In scripts and transactions, no client is named: a script has none, and another module may run the transaction.
    run(&mut client, "MULTI").unwrap();
    run(&mut client, "BF.INFO in-transaction").unwrap();
    run(&mut client, "EXEC").unwrap_err();
    assert!(info(&mut client, "bf", "bf_last_rejection").ends_with(" BF.INFO 'in-transaction': ERR not found"));
    run_words(&mut client, &["EVAL", "return redis.pcall('BF.INFO', KEYS[1]).err", "1", "s"]).unwrap();
    run(&mut client, "CONFIG RESETSTAT").unwrap();
    assert!(!info(&mut client, "bf", "bf_last_rejection").is_empty());
}

#[test]
fn however_many_commands_are_rejected_the_log_stays_short_and_says_how_many_there_were() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let started = Instant::now();
    let mut rejected = 0;
    // The second line is written at the first rejection after a second has passed.
    while rejections(&server).len() < 2 {
        for _ in 0..100 {
            run(&mut client, "BF.INFO absent").unwrap_err();
            rejected += 1;
        }
    }
    let seconds = started.elapsed().as_secs();
    let lines = rejections(&server);
    assert!(lines.len() as u64 <= seconds + 2, "{lines:?} in {seconds} seconds");
    let left_out = lines[1].split_once("(and ").and_then(|(_, rest)| rest.split(' ').next()).expect("a number");
    let left_out: u64 = left_out.parse().unwrap();
    assert!((99..rejected).contains(&left_out), "{left_out} of {rejected}");
    assert_eq!(info_number(&mut client, "bf", "bf_rejected_key"), rejected);
}

#[test]
fn a_key_cannot_forge_a_log_line_or_a_field_of_info() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let long = [b'k'; 3000];
    for key in [&b"a\nb'=,\x1b[2J\0\xff"[..], &long, b"%s%n", b"", b"k=v,k2=v2"] {
        run_words(&mut client, &[b"BF.INFO", key]).unwrap_err();
        let shown = info(&mut client, "bf", "bf_last_rejection");
        assert!(shown.contains("BF.INFO '") && shown.ends_with(": ERR not found"), "{shown}");
        assert!(!shown.contains('=') && shown.len() < 600, "{shown}");
        assert!(shown.chars().all(|character| !character.is_control()), "{shown:?}");
    }
    for (length, end) in [(128, "k'"), (129, "k...'"), (1000, "k...'")] {
        run_words(&mut client, &[b"BF.INFO", &long[..length]]).unwrap_err();
        assert!(info(&mut client, "bf", "bf_last_rejection").contains(end), "{length} bytes");
    }
    // All of this would take more than the longest line, which may not end within a character.
    let escaped = [0x1B; 128];
    for start in [&escaped[..20], b"a", b"ab", b""] {
        let option = [start, &escaped[..20 - start.len()], "é".repeat(54).as_bytes()].concat();
        let error = run_words(&mut client, &[b"BF.INSERT", &escaped[..], &option, b"ITEMS", b"a"]).unwrap_err();
        assert_eq!(error_text(&error), "Unknown argument received");
        assert!((1000..1100).contains(&info(&mut client, "bf", "bf_last_rejection").len()));
    }
}

#[test]
fn the_fields_for_redis_exporter_have_the_same_figures() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    various(&mut client);
    let number = |client: &mut Connection, field: &str| info_number(client, "bf", field);
    for (known, figure) in [
        ("bf_bloom_total_memory_bytes", "bf_bytes"),
        ("bf_bloom_num_objects", "bf_filters"),
        ("bf_bloom_num_filters_across_objects", "bf_layers"),
        ("bf_bloom_num_items_across_objects", "bf_items"),
    ] {
        let shown = number(&mut client, known);
        assert!(shown > 0 && shown == number(&mut client, figure), "{known}: {shown}");
    }
    // CF.INFO has no capacity.
    let keys: Vec<String> = ask(&mut client, "KEYS cuckoo*");
    keys.iter().for_each(|key| drop(run(&mut client, &format!("DEL {key}")).unwrap()));
    let keys: Vec<String> = ask(&mut client, "KEYS *");
    let capacities = keys.iter().map(|key| ask::<Vec<u64>>(&mut client, &format!("BF.INFO {key} CAPACITY"))[0]);
    let capacity: u64 = capacities.collect::<Vec<_>>().iter().sum();
    assert_eq!(number(&mut client, "bf_bloom_capacity_across_objects"), capacity);
    let text: String = ask(&mut client, "INFO bf");
    assert!(!text.contains(",capacity="), "{text}");
    assert!(text.contains("bf_bloom_defrag_hits:0\r\n") && text.contains("bf_bloom_defrag_misses:0\r\n"), "{text}");
    run(&mut client, "FLUSHALL").unwrap();
    for field in ["total_memory_bytes", "num_objects", "num_items_across_objects", "capacity_across_objects"] {
        // Some servers free flushed data in the background.
        wait_until("the figures are 0", || number(&mut client, &format!("bf_bloom_{field}")) == 0);
    }
}
