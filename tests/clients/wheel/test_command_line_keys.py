"""Runs the command `oxbloom` on keys of servers, and on files and keys that exist already."""

import gzip
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from cluster import running_node
from command_line import Done, ends, fails, lines_of, odd_lines, run, start, write
from oxbloom import BloomFilter
from servers import OXBLOOM, REDISBLOOM, ROOT, Server, running, wait_until

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
    with running_node() as server:
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


def permitted() -> dict[str, str]:
    """Returns the permissions that the page names for each command."""
    page = (ROOT / "docs/command-line.md").read_text().replace(r"\|", "|")
    rows = re.findall(r"^\| (`.*) \| `(\+.*)` \|$", page, re.MULTILINE)
    return {command.replace("`", ""): permissions for command, permissions in rows}


def as_limited(server: Server, permissions: str, *patterns: str) -> str:
    """Gives a user these permissions. Returns the URL for this user."""
    rules = ["reset", "on", ">secret", *patterns, "-@all", *permissions.split()]
    server.client.execute_command("ACL", "SETUSER", "limited", *rules)
    return server.url.replace("//", "//limited:secret@")


def test_the_permissions_that_the_page_names_suffice(server: Server, folder: Path) -> None:
    path = write(folder / "lines", [b"apple"])

    def as_user(command: str, *arguments: object, **more: Any) -> Done:
        url = as_limited(server, permitted()[command], "~seen:*", "~{seen:*")
        return run(*command.split(), "seen:a", *arguments, "-s", url, **more)

    as_user("build", path, "-c", 10)
    as_user("build", path, "-c", 10, "--replace")
    as_user("add", path)
    as_user("merge", "seen:a", "--replace")
    assert as_user("check", path).output == b"apple\n"
    assert as_user("check --fetch", path).output == b"apple\n"
    as_user("fold")
    assert b"native" in as_user("info").output
    url = as_limited(server, permitted()["follow"], "~seen:*")
    file = folder / "copy"
    process = start("follow", url, "seen:a", file)
    wait_until(lambda: process.poll() is not None or file.exists())
    process.terminate()
    process.communicate(timeout=240)
    assert b"apple" in BloomFilter.fromfile(file)
    assert len(permitted()) == 10


def test_the_permissions_of_copy_that_the_page_names_suffice(server: Server, folder: Path) -> None:
    for command in ("BF.ADD seen:a item", "CF.RESERVE seen:c 100 LAYOUT classic", "BF.ADD no item"):
        server.client.execute_command(*command.split())
    server.client.expire("seen:a", 1000)
    with running(OXBLOOM) as destination:

        def copied(*options: str) -> bytes:
            source = as_limited(server, permitted()["copy, on the source"], "~seen:*")
            target = as_limited(
                destination, permitted()["copy, on the destination"], "~seen:*", "~{seen:*"
            )
            at = ("--match", "seen:*", "--progress-file", folder / "progress")
            return run("copy", source, target, *at, *options).output

        assert copied("--native", "--verify").startswith(b"copied 2 filters")
        server.client.execute_command("BF.ADD", "seen:a", "another")
        assert copied("--native", "--replace").startswith(b"copied 1 filter")
        assert destination.client.ttl("seen:a") > 0
        assert destination.client.execute_command("BF.EXISTS", "seen:a", "another")
        assert destination.client.dbsize() == 2


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


# --- Following ------------------------------------------------------------------------------------


def test_a_file_follows_a_key_until_it_is_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "copy.bloom"

    def has(item: str) -> bool:
        return file.exists() and item in BloomFilter.fromfile(file)

    with running(OXBLOOM) as server:
        server.client.execute_command("BF.ADD", "key", "apple")
        for number in (signal.SIGTERM, signal.SIGINT):
            process = start("follow", server.url, "key", file, "--interval", "10ms")
            try:
                wait_until(lambda: has("apple"))
                server.client.execute_command("BF.ADD", "key", "pear")
                wait_until(lambda: has("pear"))
                status = file.stat()
                server.client.execute_command("BF.ADD", "key", "pear")
                server.client.delete("key")
                wait_until(lambda: not has("apple"))
                assert file.stat().st_ino != status.st_ino
                server.client.execute_command("BF.ADD", "key", "apple")
                wait_until(lambda: has("apple"))
                server.kill()
                server.start()
                server.client.execute_command("BF.ADD", "key", "plum")
                wait_until(lambda: has("plum"))
                server.client.execute_command("BF.ADD", "key", "apple")
            finally:
                process.send_signal(number)
                _, errors = process.communicate(timeout=240)
            assert process.returncode == 128 + number
            assert b"Traceback" not in errors
        assert [each.name for each in tmp_path.iterdir()] == ["copy.bloom"]
        assert "no key 'nothing'" in fails("follow", server.url, "nothing", file)
        server.client.execute_command("BF.RESERVE", "counts", 0.01, 100, "COUNTING")
        assert "COUNTING, WINDOW or ROLLING" in fails("follow", server.url, "counts", file)
        server.client.set("text", "x")
        assert "not a Bloom filter" in fails("follow", server.url, "text", file)
        text = tmp_path / "text"
        text.write_bytes(b"no filter")
        assert "overwrites filters only" in fails("follow", server.url, "key", text)
