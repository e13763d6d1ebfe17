"""Runs the command `oxbloom` on files, as its users do. `test_copying.py` tests `oxbloom copy`."""

import io
import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from command_line import MILLION, OXBLOOM_COMMAND, ends, lines_of, odd_lines, run, start, write
from kinds import KINDS, filled
from oxbloom import BloomFilter, module_path
from servers import OXBLOOM, REDISBLOOM, WITHIN, Server, running

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
    run("build", "-c", 10, folder / "filter", "-e", "1%", lines, "--growing", more)
    found = run("check", "-v", folder / "filter", lines, "-c", more, status=1)
    assert found.output == b"0\n"


def test_names_after_two_dashes_may_begin_with_a_dash(server: Server, folder: Path) -> None:
    write(folder / "-lines", [b"apple"])
    for options in ([], ["-s", server.url]):
        run("build", *options, "-c", 9, "--seed", 7, "--", "-f", "-lines", cwd=folder)
        run("add", *options, "--", "--f", stdin=b"pear\n", cwd=folder, status=2)
        run("add", *options, "--", "-f", "-", stdin=b"pear\n", cwd=folder)
        run("merge", *options, "--", "-m", "-f", cwd=folder)
        assert run("check", *options, "--", "-m", "-lines", cwd=folder).output == b"apple\n"
        assert b"items                2\n" in run("info", *options, "--", "-m", cwd=folder).output
    assert sorted(server.client.keys()) == [b"-f", b"-m"]
    assert sorted(os.listdir(folder)) == ["-f", "-lines", "-m"]
    assert run("size", "-c", 5, "--").output == run("size", "-c", 5).output


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


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("", {}),
        ("--seed 42", {"seed": 42}),
        ("--growing", {"growing": 2}),
        ("--expansion 4", {"growing": 4}),
        ("--counting", {"counting": True}),
        ("--counting --growing", {"counting": True, "growing": 2}),
        ("--window 7d", {"window": 604_800}),
        ("--window 1500ms", {"window": 1.5}),
        ("--window 90 --slices 4 --refresh", {"window": 90, "slices": 4, "refresh": True}),
        ("--rolling", {"rolling": True}),
        ("--classic", {"classic": True}),
    ],
)
def test_options_choose_the_kind(folder: Path, options: str, kind: dict[str, Any]) -> None:
    path = folder / "filter"
    run("build", path, "-c", "1_000", "-e", "1%", *options.split(), stdin=b"apple\npear\n")
    filter, expected = BloomFilter.fromfile(path), BloomFilter(1000, 0.01, **kind)
    facts = ("kind", "capacity", "error_rate", "growing", "window", "slices", "refresh", "rolling")
    assert [filter.info()[fact] for fact in facts] == [expected.info()[fact] for fact in facts]
    assert filter.seed == expected.seed or "seed" not in kind
    # Whoever knows the seed can craft collisions.
    shown = run("info", path).output.decode()
    assert "seed" not in shown
    assert filter.seed in (None, 42) or str(filter.seed) not in shown
    assert filter.seed in (None, 42) or str(filter.seed) not in shown


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

        def order(facts: dict[str, Any]) -> tuple[str, str]:
            # Two keys are compressed, so only their kinds tell them apart.
            return str(facts["key"]), facts["kind"]

        expected = []
        for key in client.scan_iter(count=100):
            if client.type(key) not in (b"list", b"hash", b"string"):
                of_key = BloomFilter.load(client.dump(key)).info()
                window = of_key["window"]
                # Servers compress long keys that repeat themselves.
                name = None if len(key) >= 100 else key.decode()
                facts = {**of_key, "window": window and window.total_seconds()}
                expected.append({"key": name, **facts})
        assert sorted(of_file, key=order) == sorted(expected, key=order)
        lines = run("info", snapshot).lines
        assert len(lines) == 1 + len(expected)
        names = {repr(facts["key"]) if facts["key"] else "(compressed)" for facts in expected}
        assert {line.decode().split("  ")[0] for line in lines[1:]} == names
        # A damaged filter is named, and the others are still listed.
        content, native = snapshot.read_bytes(), client.dump("bf native")
        damaged = content.replace(native[60:80], bytes(20))
        (folder / "damaged.rdb").write_bytes(damaged)
        done = run("info", folder / "damaged.rdb", status=1)
        assert len(done.lines) == len(expected)
        assert done.errors.startswith("key 'bf native': ")
        # Each of these places looks like a filter whose values go on to the end of the file. They take a time that is
        # linear in the length of the file.
        misleading = b"\x07\x01k\x81" + native[2:10]
        many = bytes([5, len(misleading)]) + misleading
        (folder / "crafted.rdb").write_bytes(content + many * 3000 + native)
        done = run("info", folder / "crafted.rdb", status=2)
        assert len(done.lines) == 1 + len(expected)
        assert done.errors.startswith(f"oxbloom: '{folder}/crafted.rdb': the file was crafted: ")
        client.flushall()
        client.restore("bf native", 0, native)
        client.execute_command("SAVE")
        alone = snapshot.read_bytes().replace(native[60:80], bytes(20))
        (folder / "alone.rdb").write_bytes(alone)
        done = run("info", folder / "alone.rdb", status=1)
        assert done.output == b""
        client.flushall()
        client.execute_command("SAVE")
        done = run("info", snapshot)
        assert (done.output, done.errors) == (b"", f"'{snapshot}' has no filters\n")


def test_info_describes_filters_of_redisbloom() -> None:
    with running(REDISBLOOM) as server:
        server.client.execute_command("BF.RESERVE", "key", 0.01, 100)
        server.client.execute_command("BF.MADD", "key", *range(500))
        facts = json.loads(run("info", "key", "-s", server.url, "--json").output)
        count = server.client.execute_command("BF.CARD", "key")
        assert (facts["count"], facts["growing"], facts["kind"]) == (count, 2, None)
        assert sum(part["count"] for part in facts["parts"]) == count
        assert f"{count:,}".encode() in run("info", "key", "-s", server.url).output


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


# --- The rest -------------------------------------------------------------------------------------


def test_a_server_loads_the_module() -> None:
    path = run("module-path").output.decode().strip()
    assert path == str(module_path())
    with running(path) as server:
        assert server.client.execute_command("BF.ADD", "key", "apple") == 1
