"""Interrupts the command `oxbloom`, and gives it input, files and servers that it cannot use."""

import gzip
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import MILLION, OXBLOOM_COMMAND, ends, fails, old_filter, run, start, write
from gates import Gate
from oxbloom import BloomFilter
from servers import HOST, REDISBLOOM, WITHIN, Server, running

# --- Interruptions --------------------------------------------------------------------------------

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_build_leaves_no_file(folder: Path, number: signal.Signals) -> None:
    path = folder / "filter"
    old = old_filter(path)
    process = start("build", path, "-c", MILLION, "--replace")
    assert process.stdin
    process.stdin.write(b"apple\n" * 1_000_000)
    process.stdin.flush()
    process.send_signal(number)
    errors = ends(process, SIGNALS[number])
    assert errors == ("oxbloom: interrupted\n" if number == signal.SIGINT else "")
    assert os.listdir(folder) == ["filter"]
    assert path.read_bytes() == old


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, None])
def test_an_interrupted_build_leaves_no_key(server: Server, number: signal.Signals | None) -> None:
    """Without a signal, only the connection is lost."""
    gate = Gate(server)
    process = start("build", "key", "-s", gate.url, "-c", 100 * MILLION)
    assert process.stdin
    process.stdin.write(b"apple\n")
    process.stdin.flush()
    process.stdin.close()
    process.stdin = None
    gate.open_and_wait(50 << 20)  # in the middle of 180 MB
    if number:
        process.send_signal(number)
    if number != signal.SIGKILL:
        # The command needs the server, to remove what it has loaded.
        gate.drop_connections()
    errors = ends(process, SIGNALS.get(number, -number) if number else 2)
    gate.close()
    if not number:
        assert errors.startswith("oxbloom: the server failed: ")
        assert errors.count("\n") == 1
    assert not server.client.exists("key")
    if number == signal.SIGKILL:
        # The keys that are left expire.
        assert all(0 < server.client.ttl(key) <= 3600 for key in server.client.scan_iter())
    else:
        assert server.client.dbsize() == 0


def test_a_broken_pipe_is_no_error(folder: Path) -> None:
    path = folder / "filter"
    lines = b"\n".join(b"line %d" % number for number in range(MILLION))
    run("build", path, "-c", MILLION, stdin=lines)
    (folder / "lines").write_bytes(lines)
    check = " ".join(
        shlex.quote(part) for part in (*OXBLOOM_COMMAND, "check", str(path), str(folder / "lines"))
    )
    script = f"{check} | head -n 1; echo ${{PIPESTATUS[@]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=WITHIN, check=True
    )
    assert done.stdout == "line 0\n141 0\n"
    assert done.stderr == ""


# --- Errors ---------------------------------------------------------------------------------------


def test_a_full_filter_is_an_error(folder: Path) -> None:
    error = fails("build", folder / "filter", "-c", 3, stdin=b"1\n2\n3\n4\n")
    assert error == "the filter is full after 3 items: use a larger --capacity, or --growing"
    assert os.listdir(folder) == []
    run("build", folder / "filter", "-c", 3, stdin=b"1\n2\n3\n1\n")
    run("build", folder / "filter", "-c", 3, "--growing", "--replace", stdin=b"1\n2\n3\n4\n")


def test_closed_standard_input_is_an_error(server: Server, folder: Path) -> None:
    closed = ["bash", "-c", 'exec "$@" <&-', "bash", *OXBLOOM_COMMAND, "build", "filter", "-c", "9"]
    for options in ([], ["-s", server.url]):
        done = subprocess.run(
            [*closed, *options], cwd=folder, capture_output=True, timeout=WITHIN, check=False
        )
        assert done.returncode == 2
        assert done.stderr == b"oxbloom: cannot read standard input: it is closed\n"


def test_unusable_files_are_errors(folder: Path) -> None:
    good = folder / "good"
    run("build", good, "-c", 1000, stdin=b"apple\n")
    damaged, cut, text, empty = (folder / name for name in ("damaged", "cut", "text", "empty"))
    content = good.read_bytes()
    damaged.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    cut.write_bytes(content[:-20])
    text.write_bytes(b"apple\npear\n")
    empty.write_bytes(b"")
    missing = folder / "missing"
    for bad in (damaged, cut, text, empty):
        for command in ("info", "check"):
            assert fails(command, bad).startswith(f"'{bad}': no filter of oxbloom or RedisBloom")
    none = "No such file or directory"
    for arguments, error in [
        (("info", folder), f"cannot read '{folder}': Is a directory"),
        (("info", missing), f"cannot read '{missing}': {none}"),
        (("check", good, missing), f"cannot read {missing}: {none}"),
        (("build", folder / "new", missing, "-c", 9), f"cannot read {missing}: {none}"),
        (("build", folder / "new", folder, "-c", 9), f"cannot read {folder}: Is a directory"),
        (("build", missing / "new", "-c", 9), f"cannot write '{missing}/new': no such folder"),
        (("build", text / "new", "-c", 9), f"cannot write '{text}/new': Not a directory"),
        (("build", folder, "-c", 9, "--replace"), f"'{folder}' is no regular file"),
        (("build", "/dev/null", "-c", 9, "--replace"), "'/dev/null' is no regular file"),
    ]:
        assert fails(*arguments) == error
    assert sorted(os.listdir(folder)) == ["cut", "damaged", "empty", "good", "text"]


def test_output_that_cannot_be_written_is_an_error(folder: Path) -> None:
    run("build", folder / "filter", "-c", 10, stdin=b"apple\n")
    filter, output = folder / "filter", "the output"
    for arguments, what in (
        (["check", filter], output),
        (["check", "-c", filter], output),
        (["info", filter], output),
        (["info", "--json", filter], output),
        (["build", "-", "-c", "9"], "standard output"),
    ):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*OXBLOOM_COMMAND, *arguments],
                input=b"apple\n", stdout=full, stderr=subprocess.PIPE, timeout=WITHIN, check=False,
            )  # fmt: skip
        error = f"oxbloom: cannot write {what}: No space left on device\n"
        assert (done.returncode, done.stderr) == (2, error.encode()), arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "arguments are required: COMMAND"),
        (["destroy"], "invalid choice: 'destroy'"),
        (["build", "f"], "required: -c/--capacity"),
        (["build", "f", "-c", "0"], "not a whole number from 1 to 2^63 - 1: '0'"),
        (["build", "f", "-c", "1.5"], "not a whole number from 1 to 2^63 - 1: '1.5'"),
        (["build", "f", "-c", "many"], "not a whole number from 1 to 2^63 - 1: 'many'"),
        (["build", "f", "-c", "nan"], "not a whole number from 1 to 2^63 - 1: 'nan'"),
        (["build", "f", "-c", "1e30"], "not a whole number from 1 to 2^63 - 1: '1e30'"),
        (["build", "f", "-c", "9", "-e", "1"], "not an error rate above 0 and below 1: '1'"),
        (["build", "f", "-c", "9", "-e", "200%"], "not an error rate above 0 and below 1: '200%'"),
        (["build", "f", "-c", "9", "-e", "%"], "not an error rate above 0 and below 1: '%'"),
        (["build", "f", "-c", "9", "--window", "soon"], "not a length of time such as"),
        (["build", "f", "-c", "9", "--window", "0s"], "not a length of time such as"),
        (["build", "f", "-c", "9", "--window", "1e300w"], "not a length of time such as"),
        (["build", "f", "-c", "9", "--seed", "-1"], "not a whole number below 2^64"),
        (["build", "f", "-c", "9", "--seed", "1e30"], "not a whole number below 2^64"),
        (["check", "f", "-a", "-c"], "not allowed with argument"),
        (["copy", "redis://a"], "required: DESTINATION_URL"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_rejected(folder: Path, arguments: list[str], expected: str) -> None:
    done = run(*arguments, status=2, cwd=folder)
    assert expected in done.errors
    assert "usage: oxbloom" in done.errors
    assert os.listdir(folder) == []


def test_only_filters_are_overwritten(server: Server, folder: Path) -> None:
    write(folder / "text", [b"precious"])
    error = fails("build", folder / "text", "-c", 9, "--replace", stdin=b"apple\n")
    assert error.endswith("--replace overwrites filters only, so delete the file first")
    assert (folder / "text").read_bytes() == b"precious\n"
    run("build", folder / "filter", "-c", 9, stdin=b"apple\n")
    error = fails("merge", folder / "text", folder / "filter", "--replace")
    assert error.endswith("--replace overwrites filters only, so delete the file first")
    server.client.rpush("list", "precious")
    for command in (["build", "list", "-c", 9], ["merge", "list", "list"]):
        error = fails(*command, "-s", server.url, "--replace", stdin=b"apple\n")
        assert error.startswith(
            ("the key 'list' holds a list: --replace", "the key 'list' holds a list, not")
        )
    assert server.client.llen("list") == 1


def test_lines_may_be_compressed_and_start_with_a_mark(folder: Path) -> None:
    (folder / "marked").write_bytes(b"\xef\xbb\xbfapple\n\xef\xbb\xbfpear\n")
    (folder / "packed.gz").write_bytes(gzip.compress(b"plum\n" * 10_000 + b"quince"))
    files = [folder / "marked", folder / "packed.gz"]
    run("build", folder / "filter", "-c", 9, "-e", 1e-6, *files)
    filter = BloomFilter.fromfile(folder / "filter")
    assert len(filter) == 4
    assert filter.contains_all(["apple", b"\xef\xbb\xbfpear", "plum", "quince"]) == [True] * 4
    (folder / "packed.gz").write_bytes(b"no archive")
    assert fails("check", folder / "filter", folder / "packed.gz").startswith("cannot read ")
    (folder / "packed.gz").write_bytes(gzip.compress(b"plum\n" * 10_000)[:-20])
    assert "cannot read " in run("check", folder / "filter", folder / "packed.gz", status=2).errors


def test_a_filter_can_be_written_to_standard_output_and_read_from_standard_input(
    folder: Path,
) -> None:
    lines = write(folder / "lines", [b"apple", b"pear"])
    built = run("build", "-", lines, "-c", 9)
    assert built.errors.startswith("added 2 lines to standard output: 2 new")
    assert len(BloomFilter.load(built.output)) == 2
    assert run("check", "-", lines, "--count", stdin=built.output).output == b"2\n"
    assert not (folder / "-").exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_are_printed_in_any_encoding(folder: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    path = folder / "фильтр"
    run("build", path, "-c", 9, stdin=b"apple\n", env=environment)
    assert len(BloomFilter.fromfile(path)) == 1


def test_lines_are_added_to_files_and_keys(server: Server, folder: Path) -> None:
    for target in ([folder / "filter"], ["key", "-s", server.url]):
        assert "no " in fails("add", *target, stdin=b"apple\n").lower()
        run("build", *target, "-c", 9, stdin=b"apple\npear\n")
        added = run("add", *target, stdin=b"pear\nplum\n").output
        assert b"added 2 lines to " in added
        assert b": 1 new, 1 already there" in added
        found = run("check", *target, "--count", stdin=b"apple\npear\nplum\n").output
        assert found == b"3\n"
        error = fails("add", *target, stdin=b"\n".join(b"%d" % n for n in range(20)))
        assert "full" in error
    # What did not fit into the file was not added at all.
    assert len(BloomFilter.fromfile(folder / "filter")) == 3


def test_filters_with_one_seed_are_merged(server: Server, folder: Path) -> None:
    for place in (["-s", server.url], []):
        names = ["one", "other", "both"] if place else [folder / name for name in ("1", "2", "3")]
        for name, items in zip(names, [b"apple\n", b"pear\n"], strict=False):
            run("build", name, *place, "-c", 9, "--seed", 7, stdin=items)
        merged = run("merge", names[2], names[0], names[1], *place).output
        assert merged.startswith(b"merged 2 filters into ")
        found = run("check", names[2], *place, "--count", stdin=b"apple\npear\n").output
        assert found == b"2\n"
        assert "exists: use --replace" in fails("merge", names[2], names[0], names[1], *place)
        run("merge", names[2], names[0], *place, "--replace")
        assert run("check", names[2], *place, status=1, stdin=b"pear\n").output == b""
        run("build", names[0], *place, "-c", 9, "--seed", 8, "--replace", stdin=b"apple\n")
        assert "seed" in fails("merge", names[2], names[0], names[1], *place, "--replace")


def test_options_that_contradict_are_rejected(folder: Path) -> None:
    for options, expected in [
        (
            ["--counting", "--classic"],
            "counting, classic, and window or rolling cannot be combined",
        ),
        (["--refresh"], "refresh and slices need a window or rolling"),
        (["--classic", "--seed", 1], "classic filters have no seed"),
        (["--window", "1h", "--slices", 65], ""),
        (["--window", "1h", "--slices", 300], ""),
        (["--window", "6000w"], ""),
        (["--expansion", "1e15"], ""),
        (["-c", "1e18"], "memory"),
    ]:
        assert expected in fails("build", folder / "filter", "-c", 10, *options)
    assert fails("check", folder / "filter", "--fetch") == "--fetch needs --server"
    assert os.listdir(folder) == []


def test_unusable_servers_are_errors(server: Server, folder: Path) -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        nobody = f"redis://{HOST}:{unused.getsockname()[1]}"
        assert fails("info", "key", "-s", nobody).startswith("cannot connect to the server: ")
        assert "the server: Redis URL must" in fails("info", "key", "-s", "localhost")
    with running() as bare:
        for arguments in (["info", "key"], ["check", "key"], ["build", "key", "-c", 9]):
            assert "the server has no BF.* commands: it runs without the oxbloom module" in fails(
                *arguments, "-s", bare.url
            )
    with running(REDISBLOOM) as other:
        error = fails("merge", "new", "a", "b", "-s", other.url)
        assert error.startswith(
            "the server has no BF.MERGE: its BF.* commands are those of another"
        )
    for arguments in (["info", "no key"], ["check", "no key"], ["check", "no key", "--fetch"]):
        assert fails(*arguments, "-s", server.url) == "the server has no key 'no key'"
    server.client.set("text", "value")
    for layout in ("native", "classic"):
        server.client.execute_command("CF.RESERVE", layout, 100, "LAYOUT", layout)
    run("build", "bloom", "-c", 9, "-s", server.url, stdin=b"apple\n")
    for key, error in [
        ("text", "the key 'text' holds a string, not a Bloom filter"),
        ("native", "the key 'native' holds a cuckoo filter, which only the commands CF.*"),
        ("classic", "the key 'classic' holds a cuckoo filter, which only the commands CF.*"),
    ]:
        for arguments in (
            ["info", key],
            ["add", key],
            ["check", key],
            ["check", key, "--fetch"],
            ["merge", "new", "bloom", key],
        ):
            told = fails(*arguments, "-s", server.url, stdin=b"apple\n")
            assert told.startswith(error), arguments
    server.client.acl_setuser("blind", enabled=True, nopass=True, keys="*", commands=["+bf.info"])
    blind = server.url.replace("//", "//blind:any@")
    error = "the key holds something else, not a Bloom filter"
    assert fails("info", "text", "-s", blind) == error
    server.client.acl_deluser("blind")


def test_only_servers_need_redis(folder: Path) -> None:
    program = "import sys\nsys.modules['redis'] = None\nfrom oxbloom._cli import main\nsys.exit(main(sys.argv[1:]))"
    at = ["-s", "redis://localhost"]
    for arguments, needs_it in (
        (["build", "filter", "-c", "9"], False),
        (["check", "filter"], False),
        (["info", "filter"], False),
        (["size", "-c", "9"], False),
        (["module-path"], False),
        (["build", "key", "-c", "9", *at], True),
        (["check", "key", *at], True),
        (["info", "key", *at], True),
        (["copy", "a", "b"], True),
    ):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(
            command, input=b"apple\n", cwd=folder, capture_output=True, timeout=WITHIN, check=False
        )
        assert done.returncode == (2 if needs_it else 0), arguments
        assert done.stderr.count(b"\n") == needs_it
        assert (b'pip install "oxbloom[redis]"' in done.stderr) == needs_it
