"""Checks README.md against a server, the benchmarks, and the pages that it links to."""

import contextlib
import re
import signal
import subprocess
from pathlib import Path

import pages
import pytest
import redis
from pasting import Shell
from servers import HOST, ONCE, OXBLOOM, ROOT, free_port, happens

PAGE = (ROOT / "README.md").read_text()
SESSION = pages.typed(PAGE)


def test_the_session_of_the_readme_can_be_repeated(server):
    for _ in range(2):
        for command, reply in SESSION:
            assert pages.redis_cli(server, command) == reply, command


def test_the_command_of_the_readme_adds_a_million_lines(server, tmp_path):
    (command,) = re.findall(r"^\$ (seq .*)$", PAGE, re.MULTILINE)
    with Shell(tmp_path, "", port=server.port) as shell:
        (new,) = shell.paste(command)
    # At most 1 % are false positives. One and a half times as many never are, by chance.
    assert 985_000 < int(new) <= 1_000_000
    assert server.client.execute_command("BF.EXISTS", "numbers", "1000000")


def test_make_run_prints_the_session_of_the_readme(tmp_path):
    port = free_port()
    printed = tmp_path / "printed"
    command = ["tools/run.sh", str(port), str(tmp_path / "run"), str(Path(OXBLOOM).resolve())]
    with printed.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        assert happens(lambda: "Ctrl-C here" in printed.read_text())
        lines = re.findall(r"^    (.*)$", printed.read_text(), re.MULTILINE)
    finally:
        client = redis.Redis(HOST, port, retry=ONCE)
        with contextlib.suppress(redis.ConnectionError), client:
            client.shutdown(nosave=True)
        process.send_signal(signal.SIGTERM)
        process.wait()
    typed = lines[lines.index(f"redis-cli -p {port}") + 1 :]
    assert typed == [command for command, _ in SESSION]


def test_the_readme_is_two_screens_and_its_first_has_the_words_that_people_search_for():
    lines = PAGE.splitlines()
    assert len(lines) <= 150
    screen = " ".join(lines[:40])
    words = [
        *("Bloom filter", "Redis", "Valkey", "RedisBloom", "Redis 8", "valkey-bloom", "duplicate"),
        *("dedup", "false positive", "false negative", "TTL", "expire", "delete", "Docker"),
        *("Scrapy", "Rust"),
    ]
    assert [word for word in words if word not in screen] == []


def test_the_readme_links_to_each_page():
    linked = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")}
    linked |= {str(page.relative_to(ROOT)) for page in ROOT.glob("*.md")} - {"README.md"}
    linked |= {"python/README.md", "filter/README.md", "docs/commands/README.md"}
    assert {page for page in linked if f"]({page}" not in PAGE} == set()


def amount(shown: str) -> float:
    """Returns a figure such as `4.3 MB` in bytes or seconds."""
    units = {"kB": 1e3, "MB": 1e6, "ns": 1e-9, "ms": 1e-3, "s": 1.0}
    number, unit = shown.split()
    return float(number) * units[unit]


def rounds_to(measured: str, stated: str) -> bool:
    number = stated.split()[0]
    digits = len(number.partition(".")[2])
    unit = amount(stated) / float(number)
    return f"{amount(measured) / unit:.{digits}f}" == number


# After `make bench`, the README must be updated.
@pytest.mark.parametrize(
    ("line", "section", "row"),
    [
        ("add 100 new items", "10^8 at 1 %", "MADD \N{MULTIPLICATION SIGN} 100, new | 28"),
        (
            "check 100 items that are there",
            "10^8 at 1 %",
            "MEXISTS \N{MULTIPLICATION SIGN} 100, hit | 28",
        ),
        ("memory of a filter that grew", "Memory, ", "MEMORY USAGE, grown from the defaults, 10^6"),
        (
            "replication and append-only file",
            "Memory, ",
            "replication, BF.MADD of 100, 80 % duplicates",
        ),
        (
            "memory of the process that saves",
            "Memory, ",
            "BGSAVE, peak memory of the child, 10^8 at 1 %, half full",
        ),
        ("time to merge", "Merging filters of 1 GB", "union of two, into one of them"),
    ],
)
def test_the_readmes_figures_are_those_of_the_benchmarks(line, section, row):
    (stated,) = re.findall(rf"^\| {line}.*? \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    (part,) = re.findall(
        rf"^## {re.escape(section)}.*?\n(.*?)(?=^## |\Z)",
        pages.page("benchmarks.md") + pages.page("measurements.md"),
        re.DOTALL | re.MULTILINE,
    )
    (cells,) = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", part, re.MULTILINE)
    # Leaves out the range of the rounds. Numbers without a unit are nanoseconds.
    measured = [re.sub(r" \(.*\)", "", cell) for cell in cells.split(" | ")]
    measured = [f"{cell} ns" if cell.isdigit() else cell for cell in measured]
    compared = [pair for pair in zip(measured, stated, strict=False) if pair[1] != "no merging"]
    assert compared
    assert all(rounds_to(*pair) for pair in compared), compared


@pytest.mark.parametrize(
    ("line", "column"), [("add packed items", 0), ("check packed items that are there", 2)]
)
def test_the_readmes_figures_of_packed_items_are_those_of_the_benchmarks(line, column):
    (stated,) = re.findall(rf"^\| {line}.*? \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    section = pages.section(pages.page("measurements.md"), "Packed batches")
    table = section[section.index("| 10^8 at 1 % |") :]
    for row, figure in zip(("FIXED", "RedisBloom"), stated, strict=True):
        size = "10,000" if row == "FIXED" else "1,000"
        (cells,) = re.findall(rf"^\| {row} \S {size} \| (.*) \|$", table, re.MULTILINE)
        assert f"{cells.split(' | ')[column].split()[0]} ns" == figure


def test_the_readmes_ratios_are_those_of_the_benchmarks():
    targets = (ROOT / "benches/comparison/targets.md").read_text()
    ratios = r"server CPU, relative to RedisBloom \| [\d.]+ \| ([\d.]+) to ([\d.]+) "
    rows = re.findall(rf"^\| ADD, EXISTS .*: {ratios}", targets, re.MULTILINE)
    least, most = min(low for low, _ in rows), max(high for _, high in rows)
    loading = re.search(
        r"^\| loading, .*, relative to RedisBloom \| [\d.]+ \| ([\d.]+) ", targets, re.MULTILINE
    )
    prose = " ".join(PAGE.split())
    assert loading
    assert f"the server takes {least} to {most} of the time" in prose
    assert f"Loading a snapshot takes {loading[1]} times as long" in prose
