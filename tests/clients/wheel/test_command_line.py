"""Runs the command ``oxbloom`` as its users do. ``test_copying.py`` tests ``oxbloom copy``."""

import gzip
import io
import json
import os
import pty
import random
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from gates import Gate
from kinds import KINDS, filled
from oxbloom import BloomFilter, __version__, module_path
from servers import (
    HOST,
    OXBLOOM,
    REDISBLOOM,
    ROOT,
    WITHIN,
    Server,
    hear_interrupts,
    running,
    wait_until,
)

OXBLOOM_COMMAND = [sys.executable, "-m", "oxbloom"]
MILLION = 1_000_000


class Done:
    """The exit status and the output of a command."""

    def __init__(self, status: int, output: bytes, errors: bytes) -> None:
        self.status, self.output, self.errors = status, output, errors.decode()

    @property
    def lines(self) -> list[bytes]:
        return self.output.splitlines()


def run(*arguments: object, stdin: bytes = b"", status: int = 0, **more: Any) -> Done:
    command = [
        *OXBLOOM_COMMAND,
        *(each if isinstance(each, bytes) else str(each) for each in arguments),
    ]
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=WITHIN, check=False, **more
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode == status, (done.stdout, done.stderr)
    return Done(done.returncode, done.stdout, done.stderr)


def fails(*arguments: object, stdin: bytes = b"", **more: Any) -> str:
    """Runs a command that fails. Returns its error, which is one line."""
    done = run(*arguments, stdin=stdin, status=2, **more)
    assert done.output == b""
    assert done.errors.count("\n") == 1, done.errors
    assert done.errors.startswith("oxbloom: ")
    return done.errors.removeprefix("oxbloom: ").strip()


def start(*arguments: object, **more: Any) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*OXBLOOM_COMMAND, *map(str, arguments)],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        preexec_fn=hear_interrupts,  # noqa: PLW1509
        **more,
    )


def ends(process: subprocess.Popen, status: int) -> str:
    output, errors = process.communicate(timeout=WITHIN)
    assert process.returncode == status, (output, errors)
    assert b"Traceback" not in errors
    return errors.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "filters"
    folder.mkdir()
    return folder


def write(path: Path, lines: list[bytes], *, last: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(lines) + last)
    return path


def odd_lines(seed: int, count: int) -> list[bytes]:
    """Returns lines of any bytes and lengths. Some occur several times."""
    rng = random.Random(seed)
    lines = [b"", b"\r", b" ", "фильтр".encode(), b"\xff\xfe\x00", b"a\rb", b"x" * 3_000_000]
    while len(lines) < count:
        lines.append(rng.randbytes(rng.randrange(1, 30)).replace(b"\n", b"\t"))
        if rng.random() < 0.2:
            lines.append(rng.choice(lines[:6]))
    rng.shuffle(lines)
    return lines


def lines_of(output: bytes) -> list[bytes]:
    """Returns the lines of an output. Only line feeds separate them."""
    *lines, nothing = output.split(b"\n")
    assert nothing == b""
    return lines


# --- Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [b"\n", b""])
@pytest.mark.parametrize("how", ["file", "files", "stdin", "dash"])
def test_lines_that_were_added_are_found_and_others_are_not(
    folder: Path, tmp_path: Path, how: str, last: bytes
) -> None:
    lines = odd_lines(1, 4000)
    lines[-1] = lines[-1] or b"not empty"  # an empty last line without a line feed does not count
    one = write(tmp_path / "one", lines[:1000])
    other = write(tmp_path / "other", lines[1000:], last=last)
    whole = write(tmp_path / "whole", lines, last=last)
    given: dict[str, tuple[list[object], bytes]] = {
        "file": ([whole], b""),
        "files": ([one, other], b""),
        "stdin": ([], whole.read_bytes()),
        "dash": ([one, "-"], other.read_bytes()),
    }
    files, stdin = given[how]
    built = run(
        "build", folder / "filter", *files, "--capacity", "1e4", "--error-rate", "1e-6", stdin=stdin
    )
    assert f"added {len(lines):,} lines".encode() in built.output
    assert (
        f": {len(set(lines)):,} new, {len(lines) - len(set(lines)):,} already there".encode()
        in built.output
    )
    assert os.listdir(folder) == ["filter"]

    with (folder / "filter").open("rb") as file:
        filter = BloomFilter.fromfile(file)
    assert all(filter.contains_all(lines))
    assert (filter.capacity, filter.error_rate, len(filter)) == (10_000, 1e-6, len(set(lines)))

    absent = [b"absent %d" % number for number in range(1000)]
    mixed = [*lines[:500], *absent, *lines[500:]]
    text = b"\n".join(mixed) + last
    assert lines_of(run("check", folder / "filter", stdin=text).output) == lines
    assert lines_of(run("check", "-v", folder / "filter", stdin=text).output) == absent
    every = lines_of(run("check", "--all", folder / "filter", stdin=text).output)
    assert every == [(b"no\t" if line in absent else b"yes\t") + line for line in mixed]
    assert run("check", "--count", folder / "filter", stdin=text).output == b"%d\n" % len(lines)
    assert run("check", "-vc", folder / "filter", stdin=text).output == b"1000\n"


def test_options_can_stand_anywhere(folder: Path, tmp_path: Path) -> None:
    lines, more = write(tmp_path / "lines", [b"apple"]), write(tmp_path / "more", [b"pear"])
    run("build", "-c", 10, folder / "filter", "-e", "1%", lines, "--counting", more)
    found = run("check", "-v", folder / "filter", lines, "-c", more, status=1)
    assert found.output == b"0\n"


def test_the_status_of_check_is_that_of_grep(folder: Path) -> None:
    path = folder / "filter"
    run("build", path, "-c", 10, stdin=b"apple\npear\n")
    for options, stdin, status, output in [
        ([], b"apple\nplum\n", 0, b"apple\n"),
        ([], b"plum\n", 1, b""),
        ([], b"", 1, b""),
        (["-v"], b"apple\n", 1, b""),
        (["-v"], b"plum", 0, b"plum\n"),
        (["-q"], b"plum\napple\n", 0, b""),
        (["-q"], b"plum\n", 1, b""),
        (["-a"], b"plum\n", 1, b"no\tplum\n"),
        (["-av"], b"plum\n", 0, b"yes\tplum\n"),
        (["-c"], b"plum\n", 1, b"0\n"),
    ]:
        assert run("check", path, *options, stdin=stdin, status=status).output == output


OPTIONS: dict[str, tuple[list[object], dict[str, Any]]] = {
    "native": ([], {"kind": "native", "growing": None, "seed": None}),
    "seed": (["--seed", 42], {"kind": "native", "seed": 42}),
    "growing": (["--growing"], {"kind": "native", "growing": 2}),
    "expansion": (["--expansion", 4], {"kind": "native", "growing": 4}),
    "counting": (["--counting"], {"kind": "counting", "growing": None}),
    "growing counting": (["--counting", "--growing"], {"kind": "counting", "growing": 2}),
    "window": (
        ["--window", "7d"],
        {"kind": "windowed", "window": 604_800.0, "slices": 15, "refresh": False},
    ),
    "short window": (["--window", "1500ms"], {"kind": "windowed", "window": 1.5}),
    "refreshed": (
        ["--window", "90", "--slices", 4, "--refresh"],
        {"kind": "windowed", "window": 90.0, "slices": 4, "refresh": True},
    ),
    "rolling": (["--rolling"], {"kind": "windowed", "window": None, "rolling": True}),
    "classic": (["--classic"], {"kind": "classic", "seed": None}),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_choose_the_kind(folder: Path, name: str) -> None:
    options, expected = OPTIONS[name]
    path = folder / "filter"
    run("build", path, "-c", "1_000", "-e", "1%", *options, stdin=b"apple\npear\n")
    facts = json.loads(run("info", path, "--json").output)
    assert (facts["capacity"], facts["error_rate"], facts["count"]) == (
        1000,
        0.01,
        2 if name != "short window" else facts["count"],
    )
    for fact, value in expected.items():
        if not (fact == "seed" and value is None and facts["kind"] != "classic"):
            assert facts[fact] == value, fact
    text = run("info", path).output.decode()
    assert facts["kind"] in text
    assert "seed" not in text
    assert str(facts["seed"]) not in text or facts["seed"] in (None, 42)


@pytest.mark.parametrize("name", KINDS)
def test_info_says_what_a_file_and_a_key_hold(server: Server, folder: Path, name: str) -> None:
    filter, _ = filled(name)
    with (folder / "filter").open("wb") as file:
        filter.tofile(file)
    filter.save_to(server.client, "key")
    estimates = ("fill", "false_positive_rate")  # a server replies with four digits
    of_file = json.loads(run("info", folder / "filter", "--json").output)
    of_key = json.loads(run("info", "key", "--server", server.url, "--json").output)
    info = filter.info()
    window = info["window"]
    assert of_file == {**info, "window": window and window.total_seconds()}
    for fact, value in of_file.items():
        assert of_key[fact] == (pytest.approx(value, rel=1e-3) if fact in estimates else value), (
            fact
        )
    assert run("info", folder / "filter").output == run("info", "key", "-s", server.url).output


def test_info_lists_the_filters_in_an_rdb_file(folder: Path) -> None:
    with running(OXBLOOM) as server:
        client = server.client
        layouts = ("native", "classic", "valkey")
        for layout in layouts:
            client.execute_command("BF.RESERVE", f"bf {layout}", 0.01, 100, "LAYOUT", layout)
            client.execute_command("BF.MADD", f"bf {layout}", *range(1000))
        client.execute_command("BF.RESERVE", "12345", 0.01, 100, "COUNTING")
        client.execute_command("BF.RESERVE", "x" * 100, 0.01, 100, "WINDOW", 3600)
        client.execute_command("BF.RESERVE", folder.name * 30, 0.01, 100)
        for layout in ("native", "classic"):
            client.execute_command("CF.RESERVE", f"cf {layout}", 100, "LAYOUT", layout)
        # Other types, and a value that looks like the start of a filter.
        client.rpush("list", *range(300))
        client.hset("hash", mapping={str(number): "value" for number in range(300)})
        client.set("text", client.dump("bf native")[:20])
        client.execute_command("SAVE")
        snapshot = server.log.parent / "dump.rdb"
        of_file = [json.loads(line) for line in run("info", snapshot, "--json").lines]
        of_file.sort(key=lambda facts: str(facts["key"]))
        expected = []
        for key in client.scan_iter(count=100):
            if client.type(key) not in (b"list", b"hash", b"string"):
                of_key = BloomFilter.load(client.dump(key)).info()
                window = of_key["window"]
                # Servers compress long keys that repeat themselves.
                name = None if len(key) >= 100 else key.decode()
                facts = {**of_key, "window": window and window.total_seconds()}
                expected.append({"key": name, **facts})
        assert of_file == sorted(expected, key=lambda facts: str(facts["key"]))
        lines = run("info", snapshot).lines
        assert len(lines) == 1 + len(expected)
        names = {repr(facts["key"]) if facts["key"] else "(compressed)" for facts in expected}
        assert {line.decode().split("  ")[0] for line in lines[1:]} == names
        # A damaged filter is named, and the others are still listed.
        damaged = snapshot.read_bytes().replace(client.dump("bf native")[60:80], bytes(20))
        (folder / "damaged.rdb").write_bytes(damaged)
        done = run("info", folder / "damaged.rdb", status=1)
        assert len(done.lines) == len(expected)
        assert done.errors.startswith("key 'bf native': ")


def test_info_describes_filters_of_redisbloom() -> None:
    with running(REDISBLOOM) as server:
        server.client.execute_command("BF.RESERVE", "key", 0.01, 100)
        server.client.execute_command("BF.MADD", "key", *range(500))
        facts = json.loads(run("info", "key", "-s", server.url, "--json").output)
        count = server.client.execute_command("BF.CARD", "key")
        assert (facts["count"], facts["growing"], facts["kind"]) == (count, 2, None)
        assert sum(part["count"] for part in facts["parts"]) == count
        assert f"{count:,}".encode() in run("info", "key", "-s", server.url).output


def test_a_million_lines(folder: Path) -> None:
    lines = [b"line %d" % number for number in range(MILLION)]
    text = b"\n".join(lines)
    built = run("build", folder / "filter", "-c", MILLION, "-e", 0.001, stdin=text)
    assert b"added 1,000,000 lines" in built.output
    # No line is missing.
    assert run("check", folder / "filter", "-v", stdin=text, status=1).output == b""
    others = b"\n".join(b"other %d" % number for number in range(MILLION))
    # At 0.1 %, a thousand false positives are expected, with a standard deviation of 32.
    assert 700 < int(run("check", folder / "filter", "-c", stdin=others).output) < 1300


def test_input_is_not_kept_in_memory(folder: Path) -> None:
    """A process reads a gigabyte, and takes less than 150 MB of memory."""
    program = (
        "import sys\n"
        "from oxbloom._cli import main\n"
        "status = main(sys.argv[1:])\n"
        "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0])\n"
        "sys.exit(status)\n"
    )
    block = b"\n".join(b"%0999d" % number for number in range(1000)) + b"\n"
    for arguments in (
        ["build", str(folder / "filter"), "-c", "10000"],
        ["check", "-c", str(folder / "filter")],
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin
        for _ in range(1000):
            process.stdin.write(block)
        output, _ = process.communicate(timeout=WITHIN)
        assert process.returncode == 0
        kilobytes = int(output.split()[-2])
        assert kilobytes < 150_000, kilobytes


def test_lines_are_answered_as_they_come(folder: Path) -> None:
    run("build", folder / "filter", "-c", 10, stdin=b"apple\n")
    process = start("check", "-a", folder / "filter")
    assert process.stdin
    assert process.stdout
    for line, answer in [
        (b"apple\n", b"yes\tapple\n"),
        (b"plum\n", b"no\tplum\n"),
        (b"apple\n", b"yes\tapple\n"),
    ]:
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == answer
    ends(process, 0)


# --- Keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"plain", b"}{", b"a b", "фильтр".encode(), b"\xff\xfe"])
def test_a_key_is_built_and_checked(server: Server, key: bytes) -> None:
    lines = odd_lines(2, 3000)
    text = b"\n".join(lines) + b"\n"
    at = ("--server", server.url)
    run("build", key, *at, "-c", 5000, "-e", "1e-6", stdin=text)
    assert list(server.client.scan_iter()) == [key]
    assert server.client.ttl(key) == -1
    assert all(server.client.execute_command("BF.MEXISTS", key, *lines))
    absent = b"absent 1\nabsent 2"
    for options in ((), ("--fetch",)):
        assert lines_of(run("check", key, *at, *options, stdin=text + absent).output) == lines
        assert run("check", key, *at, *options, "-v", stdin=text + absent).output == absent + b"\n"
    assert list(server.client.scan_iter()) == [key]


@pytest.mark.parametrize("packed", [True, False])
def test_lines_reach_the_server_as_they_are_in_the_files(
    server: Server, tmp_path: Path, packed: bool
) -> None:
    lines = odd_lines(3, 60_000)
    plain = tmp_path / "plain"
    plain.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines[:30_000]) + b"\n")
    zipped = tmp_path / "zipped.gz"
    zipped.write_bytes(gzip.compress(b"\n".join([*lines[30_000:], b"last"])))
    server.client.execute_command("BF.RESERVE", "key", "1e-9", 100_000)
    rules = ["reset", "on", ">secret", "~*", "+@all"]
    rules += [] if packed else ["-bf.addpacked", "-bf.existspacked"]
    server.client.execute_command("ACL", "SETUSER", "limited", *rules)
    server.client.config_resetstat()
    at = ("-s", server.url.replace("//", "//limited:secret@"))
    new = len({*lines, b"last"})
    assert run("add", "key", plain, zipped, *at).output == (
        f"added 60,001 lines to 'key': {new:,} new, {60_001 - new:,} already there\n".encode()
    )
    found = run("check", "key", plain, zipped, "-", *at, stdin=b"absent\r\nlast").output
    assert lines_of(found) == [*lines, b"last", b"last"]
    stats = server.client.info("commandstats")
    for name, is_sent in (("addpacked", packed), ("insert", not packed)):
        assert (stats[f"cmdstat_bf.{name}"]["calls"] > 0) is is_sent
    server.client.execute_command("ACL", "DELUSER", "limited")


def test_lines_are_not_added_to_a_key_that_is_gone(server: Server) -> None:
    server.client.execute_command("BF.RESERVE", "key", "0.01", 100)
    process = start("add", "key", "-s", server.url)
    assert process.stdin
    process.stdin.write(b"apple\n")
    process.stdin.flush()
    wait_until(lambda: server.client.execute_command("BF.CARD", "key") == 1)
    server.client.delete("key")
    process.stdin.write(b"pear\n")
    assert ends(process, 2) == "oxbloom: the server failed: not found\n"
    assert not server.client.exists("key")


def test_a_file_and_a_key_of_the_same_seed_are_the_same(server: Server, folder: Path) -> None:
    for target in ((folder / "filter",), ("key", "-s", server.url)):
        run("build", *target, "-c", 1000, "--seed", 7, "--counting", stdin=b"apple\npear\napple\n")
    loaded = BloomFilter.load((folder / "filter").read_bytes())
    assert loaded.dump() == BloomFilter.load_from(server.client, "key").dump()
    assert server.client.execute_command("BF.COUNT", "key", "apple") == 2


def test_lines_are_checked_by_a_server_with_redisbloom() -> None:
    with running(REDISBLOOM) as server:
        server.client.execute_command("BF.MADD", "key", "apple", "pear")
        assert run("check", "key", "-s", server.url, stdin=b"plum\npear\n").output == b"pear\n"
        run("build", "built", "-s", server.url, "-c", 100, "--classic", stdin=b"apple\n")
        assert server.client.execute_command("BF.EXISTS", "built", "apple") == 1
        assert "the server failed: " in fails(
            "build", "native", "-s", server.url, "-c", 100, stdin=b"apple\n"
        )
        assert set(server.client.scan_iter()) == {b"key", b"built"}


def test_keys_of_a_cluster() -> None:
    with running(OXBLOOM, "--cluster-enabled", "yes", "--cluster-port", "0") as server:
        server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in server.client.execute_command("CLUSTER", "INFO"))
        for key in ("a", "b", "}{"):
            run("build", key, "-s", server.url, "-c", 100, stdin=b"apple\n")
            assert run("check", key, "-s", server.url, stdin=b"apple\nplum\n").output == b"apple\n"
            assert b"native" in run("info", key, "-s", server.url).output
        assert server.client.dbsize() == 3


def test_the_password_comes_from_the_variable_of_redis_cli_or_the_url() -> None:
    with running(OXBLOOM) as server:
        server.client.config_set("requirepass", "secret")
        known = {"env": os.environ | {"REDISCLI_AUTH": "secret"}}
        run("build", "key", "-s", server.url, "-c", 10, stdin=b"apple\n", **known)
        with_password = server.url.replace("//", "//:secret@")
        for url, more in ((server.url, known), (with_password, {})):
            assert run("check", "key", "-s", url, stdin=b"apple\n", **more).output == b"apple\n"
        assert "cannot connect to the server: " in fails("info", "key", "-s", server.url)
        server.client.execute_command("AUTH", "secret")


def test_the_permissions_that_the_page_names_suffice(server: Server, folder: Path) -> None:
    page = (ROOT / "docs/command-line.md").read_text()
    permitted = dict(re.findall(r"^\| `(.*)` \| `(.*)` \|$", page, re.MULTILINE))
    assert set(permitted) == {"build", "add", "merge", "check", "check --fetch", "info"}
    path = write(folder / "lines", [b"apple"])

    def as_user(command: str, *arguments: object, **more: Any) -> Done:
        rules = f"reset on >secret ~seen:* ~{{seen:* -@all {permitted[command]}"
        server.client.execute_command("ACL", "SETUSER", "limited", *rules.split())
        url = server.url.replace("//", "//limited:secret@")
        return run(*command.split(), "seen:a", *arguments, "-s", url, **more)

    as_user("build", path, "-c", 10)
    as_user("build", path, "-c", 10, "--replace")
    as_user("add", path)
    as_user("merge", "seen:a", "--replace")
    assert as_user("check", path).output == b"apple\n"
    assert as_user("check --fetch", path).output == b"apple\n"
    assert b"native" in as_user("info").output


def old_filter(path: Path) -> bytes:
    """Writes a filter to a file, and returns the content of the file."""
    BloomFilter(10).tofile(path)
    return path.read_bytes()


# --- Existing files and keys ----------------------------------------------------------------------


def test_nothing_is_overwritten_without_replace(server: Server, folder: Path) -> None:
    path = folder / "filter"
    for target in ((path,), ("key", "-s", server.url)):
        run("build", *target, "-c", 10, stdin=b"kept\n")
    kept = path.read_bytes(), server.client.dump("key")
    expected = "use --replace to overwrite it"
    assert fails("build", path, "-c", 10) == f"'{path}' exists: {expected}"
    assert fails("build", "key", "-s", server.url, "-c", 10) == f"the key 'key' exists: {expected}"
    assert (path.read_bytes(), server.client.dump("key")) == kept
    for target in ((path,), ("key", "-s", server.url)):
        run("build", *target, "-c", 10, "--replace", stdin=b"apple\n")
        assert run("check", *target, stdin=b"apple\n").output == b"apple\n"
    assert os.listdir(folder) == ["filter"]
    assert server.client.dbsize() == 1


def test_a_target_that_appears_during_a_build_is_not_overwritten(
    server: Server, folder: Path
) -> None:
    path = folder / "filter"
    to_file, to_key = (
        start("build", path, "-c", 10),
        start("build", "key", "-s", server.url, "-c", 10),
    )
    # Once a process reads lines, it has checked that its target does not exist.
    for process in (to_file, to_key):
        assert process.stdin
        process.stdin.write(b"apple\n" * 1_000_000)
        process.stdin.flush()
    path.write_bytes(b"kept")
    server.client.set("key", "kept")
    assert "exists: use --replace" in ends(to_file, 2)
    assert "exists: use --replace" in ends(to_key, 2)
    assert path.read_bytes() == server.client.get("key") == b"kept"
    assert os.listdir(folder) == ["filter"]
    assert server.client.dbsize() == 1


def test_a_link_is_followed(folder: Path) -> None:
    old_filter(folder / "real")
    (folder / "link").symlink_to("real")
    run("build", folder / "link", "-c", 10, "--replace", stdin=b"apple\n")
    assert (folder / "link").is_symlink()
    assert run("check", folder / "real", stdin=b"apple\n").output == b"apple\n"


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_key(server: Server, number: signal.Signals) -> None:
    gate = Gate(server)
    process = start("build", "key", "-s", gate.url, "-c", 100 * MILLION)
    assert process.stdin
    process.stdin.write(b"apple\n")
    process.stdin.close()
    gate.open_and_wait(50 << 20)  # in the middle of 180 MB
    process.send_signal(number)
    if number != signal.SIGKILL:
        # The command needs the server, to remove what it has loaded.
        gate.drop_connections()
    process.wait(WITHIN)
    gate.close()
    assert process.returncode == SIGNALS.get(number, -number)
    assert process.stderr
    assert b"Traceback" not in process.stderr.read()
    assert not server.client.exists("key")
    if number == signal.SIGKILL:
        # The keys that are left expire.
        assert all(0 < server.client.ttl(key) <= 3600 for key in server.client.scan_iter())
    else:
        assert server.client.dbsize() == 0
    for pipe in (process.stdout, process.stderr):
        assert pipe
        pipe.close()


def test_a_full_disk_leaves_no_file(folder: Path) -> None:
    """A limit on the size of files has the same effect as a full disk."""
    path = folder / "filter"
    old = old_filter(path)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    error = fails("build", path, "-c", MILLION, "--replace", stdin=b"apple\n", preexec_fn=limit)
    assert error == f"cannot write '{path}': File too large"
    assert os.listdir(folder) == ["filter"]
    assert path.read_bytes() == old


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


def test_a_lost_connection_is_one_error(server: Server) -> None:
    gate = Gate(server)
    process = start("build", "key", "-s", gate.url, "-c", 100 * MILLION)
    assert process.stdin
    process.stdin.write(b"apple\n")
    process.stdin.close()
    gate.open_and_wait(50 << 20)
    gate.drop_connections()
    process.wait(WITHIN)
    gate.close()
    assert process.stderr
    assert process.stdout
    errors = process.stderr.read().decode()
    assert process.returncode == 2
    assert errors.startswith("oxbloom: the server failed: ")
    assert errors.count("\n") == 1
    assert server.client.dbsize() == 0
    process.stdout.close()
    process.stderr.close()


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
    locked = folder / "locked"
    for bad in (damaged, cut, text, empty):
        for command in ("info", "check"):
            assert fails(command, bad).startswith(f"'{bad}': no filter of oxbloom or RedisBloom")
    assert fails("info", folder) == f"cannot read '{folder}': Is a directory"
    assert fails("info", locked) == f"cannot read '{locked}': No such file or directory"
    assert fails("check", good, locked) == f"cannot read {locked}: No such file or directory"
    assert (
        fails("build", folder / "new", locked, "-c", 9)
        == f"cannot read {locked}: No such file or directory"
    )
    assert (
        fails("build", folder / "new", folder, "-c", 9) == f"cannot read {folder}: Is a directory"
    )
    assert fails("build", locked / "new", "-c", 9) == f"cannot write '{locked}/new': no such folder"
    assert fails("build", text / "new", "-c", 9) == f"cannot write '{text}/new': Not a directory"
    assert fails("build", folder, "-c", 9, "--replace") == f"'{folder}' is no regular file"
    assert fails("build", "/dev/null", "-c", 9, "--replace") == "'/dev/null' is no regular file"
    assert sorted(os.listdir(folder)) == ["cut", "damaged", "empty", "good", "text"]


def test_output_that_cannot_be_written_is_an_error(folder: Path) -> None:
    run("build", folder / "filter", "-c", 10, stdin=b"apple\n")
    for arguments in (["check"], ["check", "-c"], ["info"], ["info", "--json"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [*OXBLOOM_COMMAND, arguments[0], folder / "filter", *arguments[1:]],
                input=b"apple\n", stdout=full, stderr=subprocess.PIPE, timeout=WITHIN, check=False,
            )  # fmt: skip
        assert done.stderr == b"oxbloom: cannot write the output: No space left on device\n", (
            arguments
        )
        assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "arguments are required: COMMAND"),
        (["destroy"], "invalid choice: 'destroy'"),
        (["build", "f"], "required: -c/--capacity"),
        (["build", "f", "-c", "0"], "not a whole number from 1 on: '0'"),
        (["build", "f", "-c", "1.5"], "not a whole number from 1 on: '1.5'"),
        (["build", "f", "-c", "many"], "not a whole number from 1 on: 'many'"),
        (["build", "f", "-c", "nan"], "not a whole number from 1 on: 'nan'"),
        (["build", "f", "-c", "1e30"], "not a whole number from 1 on: '1e30'"),
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
            ("the key 'list' holds a list: --replace", "the key holds something else")
        )
    assert server.client.llen("list") == 1


def test_a_flag_does_not_swallow_the_name_of_a_file(folder: Path) -> None:
    lines = write(folder / "lines", [b"apple"])
    run("build", folder / "filter", "-c", 9, "--growing", lines)
    assert BloomFilter.fromfile(folder / "filter").growing == 2


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


def test_a_filter_that_a_full_device_does_not_take_is_one_error(folder: Path) -> None:
    command = [*OXBLOOM_COMMAND, "build", "-", "-c", "9"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, input=b"apple\n", stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"oxbloom: cannot write standard output: No space left on device\n"


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
        for arguments in (["info", "key"], ["check", "key"], ["build", "key", "-c", 9]):
            assert fails(*arguments, "-s", nobody).startswith("cannot connect to the server: ")
            assert "the server: Redis URL must" in fails(*arguments, "-s", "localhost")
    with running() as bare:
        for arguments in (["info", "key"], ["check", "key"], ["build", "key", "-c", 9]):
            assert "the server has no BF.* commands: it runs without the oxbloom module" in fails(
                *arguments, "-s", bare.url
            )
    for arguments in (["info", "no key"], ["check", "no key"], ["check", "no key", "--fetch"]):
        assert fails(*arguments, "-s", server.url) == "the server has no key 'no key'"
    server.client.set("text", "value")
    for arguments in (["info", "text"], ["check", "text"], ["check", "text", "--fetch"]):
        error = fails(*arguments, "-s", server.url, stdin=b"apple\n")
        assert error == "the key holds something else, not a Bloom filter"


def test_only_servers_need_redis(folder: Path) -> None:
    program = "import sys\nsys.modules['redis'] = None\nfrom oxbloom._cli import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program]
    path = str(folder / "filter")

    def without_redis(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess:
        return subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, timeout=WITHIN, check=False
        )

    for arguments in (
        ["build", path, "-c", "9"],
        ["check", path],
        ["info", path],
        ["size", "-c", "9"],
        ["module-path"],
    ):
        assert without_redis(*arguments, stdin=b"apple\n").returncode == 0
    at = ["-s", "redis://localhost"]
    for arguments in (
        ["build", "key", "-c", "9", *at],
        ["check", "key", *at],
        ["info", "key", *at],
        ["copy", "a", "b"],
    ):
        done = without_redis(*arguments)
        assert done.returncode == 2
        assert b'pip install "oxbloom[redis]"' in done.stderr
        assert done.stderr.count(b"\n") == 1


# --- Progress -------------------------------------------------------------------------------------


def shown_on_a_terminal(*arguments: object) -> str:
    """Returns what a command writes to standard error if that and standard input are a terminal."""
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 80))
    process = subprocess.Popen(
        [*OXBLOOM_COMMAND, *map(str, arguments)],
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=end,
    )
    os.close(end)
    shown = io.BytesIO()
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown.write(data)
    os.close(terminal)
    assert process.wait(WITHIN) == 0
    return shown.getvalue().decode()


def test_a_terminal_gets_a_progress_bar(server: Server, folder: Path) -> None:
    (folder / "lines").write_bytes(b"".join(b"%d\n" % number for number in range(300_000)))
    target = ("key", "-s", server.url)
    shown = shown_on_a_terminal("build", *target, folder / "lines", "-c", MILLION)
    assert "building: " in shown
    assert "saving: " in shown
    assert "checking: " in shown_on_a_terminal("check", *target, folder / "lines")
    assert "loading: " in shown_on_a_terminal("check", *target, folder / "lines", "--fetch")
    assert "building: " in shown_on_a_terminal(
        "build", folder / "filter", folder / "lines", "-c", 9, "--growing"
    )
    # A pipe gets no progress bar.
    assert run("build", *target, folder / "lines", "-c", MILLION, "--replace").errors == ""
    assert run("check", *target, folder / "lines").errors == ""


# --- Sizes ----------------------------------------------------------------------------------------


def sizes(*arguments: object) -> dict[str, dict[str, Any]]:
    rows = json.loads(run("size", "--json", *arguments).output)
    return {row["name"]: row | (row["plan"] or {}) for row in rows}


@pytest.mark.parametrize(
    ("capacity", "rate"), [(1, 0.5), (100, 0.01), (12_345, 0.001), (300_000, 1e-6)]
)
def test_sizes_are_those_of_filters(capacity: int, rate: float) -> None:
    rows = sizes("-c", capacity, "-e", rate)
    kinds: dict[str, Callable[[], BloomFilter]] = {
        "fixed": lambda: BloomFilter(capacity, rate),
        "may grow": lambda: BloomFilter(capacity, rate, growing=True),
        "RedisBloom, fixed": lambda: BloomFilter(capacity, rate, classic=True),
        "RedisBloom, may grow": lambda: BloomFilter(capacity, rate, classic=True, growing=True),
        f"RedisBloom, grown from {min(capacity, 100)}": lambda: BloomFilter(
            min(capacity, 100), rate, classic=True, growing=True
        ),
        f"grown from {min(capacity, 100)}": lambda: BloomFilter(
            min(capacity, 100), rate, growing=True
        ),
        "counting, fixed": lambda: BloomFilter(capacity, rate, counting=True),
    }
    for name, create in kinds.items():
        filter, row = create(), rows[name]
        number = 0
        while len(filter) < capacity:
            missing = capacity - len(filter)
            filter.add_all(f"item {each}" for each in range(number, number + missing))
            number += missing
        part = filter.info()["parts"][0]
        assert (row["probes"], row["blocks_per_item"]) == (part["probes"], part["blocks_per_item"])
        if row["estimated"]:
            assert row["memory"] == pytest.approx(filter.memory, rel=0.1), name
        else:
            assert row["memory"] == filter.memory, name
        if row["blocks"] and name == "fixed":
            assert row["blocks"] * row["block_bytes"] == part["bytes"]
        if capacity >= 100:  # the rate of a filter with few items depends on their hashes
            assert row["false_positive_rate"] <= 1.01 * rate


def test_the_commands_create_such_filters(server: Server) -> None:
    with running(REDISBLOOM) as redisbloom:
        for name, row in sizes("-c", 5000, "-e", 0.01, "--slices", 4).items():
            theirs = name.startswith("RedisBloom")
            client = redisbloom.client if theirs else server.client
            client.flushall()
            assert client.execute_command(row["command"]) == b"OK"
            if name.startswith("cuckoo"):
                assert client.type("key") == b"oxcuckoo-"
                continue
            facts = json.loads(
                run("info", "key", "--json", "-s", redisbloom.url if theirs else server.url).output
            )
            kinds = {"counting": "counting", "window": "windowed", "last items": "windowed"}
            expected = [kind for text, kind in kinds.items() if text in name]
            assert facts["kind"] == (None if theirs else expected[0] if expected else "native"), (
                name
            )
            assert facts["slices"] == (4 if expected == ["windowed"] else None)
            assert (facts["growing"] is not None) == ("grow" in name), name
            assert facts["capacity"] == 5000 or "grown" in name
            if name in ("fixed", "may grow", "RedisBloom, fixed", "RedisBloom, may grow"):
                assert facts["memory"] == row["memory"]


@pytest.mark.parametrize("rate", [0.123_456_789, 1e-5, 7 / 3 / 10**6, 0.999])
def test_the_commands_have_the_exact_rate(server: Server, rate: float) -> None:
    for capacity in (1234, 98_765):
        row = sizes("-c", capacity, "-e", rate)["fixed"]
        server.client.flushall()
        assert server.client.execute_command(row["command"]) == b"OK"
        assert server.client.execute_command("BF.INFO", "key", "SIZE") == [row["memory"]]
        assert float(server.client.execute_command("BF.INFO", "key", "ERROR")[0]) == rate


def test_sizes_of_any_capacity_are_shown() -> None:
    text = run("size", "-c", "1e12", "-e", "1e-9").output.decode()
    assert "1,000,000,000,000 items at an error rate of 1e-09" in text
    assert "TB" in text
    huge = run("size", "-c", "9e18").output.decode()
    assert "too large" in huge
    assert "100 of" not in run("size", "-c", 1).output.decode()
    assert fails("size", "-c", 10, "--slices", 1) == "--slices must be from 2 to 64"


@pytest.mark.parametrize("what", ["rate", "memory"])
@pytest.mark.parametrize("capacity", [1, 50, 100, MILLION])
def test_a_chart_is_drawn(what: str, capacity: int) -> None:
    environment = os.environ | {"COLUMNS": "80"}
    text = run("size", "-c", capacity, "-e", "1%", "--chart", what, env=environment).output.decode()
    chart = text.split("\n\n", 2)[2]
    assert "(items)" in chart
    assert f"grown from {min(100, capacity)}" in chart
    assert max(map(len, chart.splitlines())) <= 80
    assert "\x1b" not in chart  # no colors, since the output is not a terminal
    assert chart.count("x") > 1


# --- The rest -------------------------------------------------------------------------------------


def test_a_server_loads_the_module() -> None:
    path = run("module-path").output.decode().strip()
    assert path == str(module_path())
    with running(path) as server:
        assert server.client.execute_command("BF.ADD", "key", "apple") == 1


def test_the_program_is_installed() -> None:
    program = Path(sys.executable).with_name("oxbloom")
    result = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=WITHIN, check=True
    )
    assert result.stdout == f"oxbloom {__version__}\n"


def test_each_command_has_help() -> None:
    listed = run("--help").output.decode()
    for command in ("build", "check", "info", "size", "copy", "module-path"):
        assert f"\n    {command}" in listed
        assert f"usage: oxbloom {command}" in run(command, "--help").output.decode()


def test_redis_py_finds_what_the_command_added(server: Server) -> None:
    run("build", "key", "-s", server.url, "-c", 100, stdin=b"apple\n")
    with redis.Redis.from_url(server.url) as client:
        assert client.bf().exists("key", "apple") == 1
