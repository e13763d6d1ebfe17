"""Checks README.md against a server, the benchmarks, and the pages that it links to."""

import contextlib
import re
import signal
import subprocess
from pathlib import Path

import pages
import pytest
import redis
from servers import HOST, ONCE, OXBLOOM, ROOT, free_port, happens

PAGE = (ROOT / "README.md").read_text()
TYPED = [command for command, _ in pages.typed(PAGE)]


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
    assert typed == TYPED


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


def figure(table: str, row: str, contender: str) -> str:
    """Returns the figure of a contender in a row of a table that `make bench` wrote, which may have its rows as columns."""
    row, contender = (name.replace(" x ", " \N{MULTIPLICATION SIGN} ") for name in (row, contender))
    written = pages.page("benchmarks.md") + pages.page("measurements.md")
    (part,) = re.findall(
        rf"^<!-- {table} -->\n(.*?)^<!-- /{table} -->", written, re.DOTALL | re.MULTILINE
    )
    cells = [
        re.split(r"\s*\|\s*", line)[1:-1] for line in part.splitlines() if line.startswith("|")
    ]
    if row in cells[0]:
        row, contender = contender, row
    (line,) = (line for line in cells[2:] if line[0] == row)
    # Leaves out the range of the rounds, and the ratio. Numbers without a unit are nanoseconds.
    shown = re.split(r" \(|, ", line[cells[0].index(contender)])[0]
    return f"{shown} ns" if shown.isdigit() else shown


# After `make bench`, the README must be updated.
@pytest.mark.parametrize(
    ("line", "table", "row"),
    [
        ("add 100 new items", "large", "MADD x 100, new: CPU"),
        ("check 100 items that are there", "large", "MEXISTS x 100, hit: CPU"),
        ("memory of a filter that grew", "memory", "MEMORY USAGE, grown to 10^6"),
        (
            "replication and append-only file",
            "replication",
            "replication, BF.MADD of 100, 80 % duplicates",
        ),
        ("memory of the process that saves", "saving", "BGSAVE, peak memory of the child"),
        ("time to merge", "merging", "union of two, into one of them"),
        ("add packed items", "packed", "new: CPU"),
        ("check packed items that are there", "packed", "hit: CPU"),
    ],
)
def test_the_readmes_figures_are_those_of_the_benchmarks(line, table, row):
    (stated,) = re.findall(rf"^\| {line}.*? \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    contenders = ("oxbloom", "RedisBloom")
    if table == "packed":
        contenders = ("FIXED x 10,000", "RedisBloom x 1,000")
    for contender, number in zip(contenders, stated, strict=True):
        if number != "no merging":
            assert rounds_to(figure(table, row, contender), number), contender


def test_the_bars_of_the_readmes_picture_are_as_long_as_the_benchmarks_say():
    picture = pages.page("speeds.svg")
    measured = [
        figure("packed", "hit: CPU", "FIXED x 10,000"),
        figure("packed", "hit: CPU", "RedisBloom x 1,000"),
        *(figure("large", "MEXISTS x 100, hit: CPU", name) for name in ("oxbloom", "RedisBloom")),
        *(
            figure("large", "EXISTS, pipelined, hit: CPU", name)
            for name in ("oxbloom", "RedisBloom")
        ),
    ]
    bars = re.findall(r'<rect class="\w+" y="\d+" width="(\d+)"', picture)
    assert [f"{bar} ns" for bar in bars] == measured
    assert re.findall(r">(\d+)</text>", picture) == bars


def test_the_readmes_ratios_are_those_of_the_benchmarks():
    goals = pages.page("benchmarks.md")
    rows = re.findall(
        r"^\| one item in a command \| .*? \| oxbloom / RedisBloom, CPU \| ([\d.]+) to ([\d.]+) ",
        goals,
        re.MULTILINE,
    )
    least, most = min(low for low, _ in rows), max(high for _, high in rows)
    (loading,) = re.findall(r"^\| loading \| Saving .*? \| .*? \| ([\d.]+) ", goals, re.MULTILINE)
    prose = " ".join(PAGE.split())
    assert f"the server takes {least} to {most} of the time" in prose
    assert f"Loading a snapshot takes {loading} times as long" in prose
