"""Compares docs/forgetting.md with a server.

The page is pasted into one shell from top to bottom, and its commands get the replies that it shows. Where the page
says that time passes, the test sets the module's clock. The code for redis-py runs. The script for rotated keys gives
the same replies as a window.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

import pages
import pasting
import pytest
from pasting import Shell
from servers import OXBLOOM_WITH_CLOCK, ROOT, Server, running

PAGE = pages.page("forgetting.md")

BEGIN = 1_800_000_000
SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}

STEP = re.compile(
    r"\*\*(?P<number>\d+) (?P<unit>minute|hour|day)s? later"
    r"|^```sh\n(?P<shell>.*?)^```"
    r"|^```python\n(?P<python>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^(?P<typed>redis-cli .*?) +# (?P<reply>.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(OXBLOOM_WITH_CLOCK) as server:
        set_clock(server, 0)
        yield server


def set_clock(server: Server, seconds: int) -> None:
    """Stops the clock of forgetting filters this many seconds after BEGIN."""
    server.client.execute_command("BF.CLOCK", "any", 1000 * (BEGIN + seconds))


def test_the_page_can_be_pasted_from_top_to_bottom_and_replies_as_shown_at_each_time(
    server, tmp_path
):
    """Pastes the page into one shell. The Python code runs in a process of its own, at its place in the page."""
    programs = pasting.redis_cli_at(tmp_path / "programs", server.port)
    shell = Shell(tmp_path, PAGE, directory=tmp_path, programs=programs)
    later = commands = waits = codes = 0
    try:
        for step in STEP.finditer(PAGE):
            if step["number"]:
                later += int(step["number"]) * SECONDS[step["unit"]]
                set_clock(server, later)
                waits += 1
            elif step["shell"]:
                shown = shell.paste(step["shell"])
                expected = [reply["reply"] for reply in COMMAND.finditer(step["shell"])]
                assert shown == ", ".join(expected).split(", "), (
                    f"{step['shell']}, {later} seconds later"
                )
                assert len(expected) == len(re.findall("^redis-cli ", step["shell"], re.MULTILINE))
                commands += len(expected)
            else:
                code = step["python"].replace("redis.Redis(", f"redis.Redis(port={server.port}, ")
                done = subprocess.run(
                    [sys.executable, "-c", code], capture_output=True, text=True, check=False
                )
                assert done.stdout == "True False\n", done.stderr
                codes += 1
    finally:
        shell.close()
    assert commands > 20
    assert codes == 1
    assert waits == PAGE.count(" later**") + PAGE.count(" later:**") == 6
    assert "127.0.0.1:6379>" not in PAGE


def test_a_window_replies_as_rotated_keys_do(server):
    """The script and the window give the same replies, day after day."""
    (script,) = re.findall(r"<<'END'\n(-- KEYS.*?)^END$", PAGE, re.DOTALL | re.MULTILINE)
    client, day = server.client, SECONDS["day"]
    rotated = client.register_script(script)
    client.execute_command(
        "BF.RESERVE", "window", "0.0000001", 1000, "WINDOW", 2 * day, "SLICES", 2, "SEED", 7
    )
    for number in range(-3, 12):
        key = f"day:{number}"
        client.execute_command("BF.RESERVE", key, "0.0000001", 1000, "SEED", 7)
    answers: dict[str, list[list[int]]] = {"keys": [], "window": []}
    for number in range(10):
        # Slices begin at midnight.
        set_clock(server, 400 * day - BEGIN % day + number * day + day // 2)
        items = [f"item-{number // 4}", f"item-{number}", "always"]
        keys = [f"day:{number - back}" for back in range(3)]
        answers["keys"].append([rotated(keys=keys, args=[item]) for item in items])
        answers["window"].append(
            [client.execute_command("BF.ADD", "window", item) for item in items]
        )
    assert answers["keys"] == answers["window"]
    assert [row[2] for row in answers["window"]] == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


def test_keys_are_replaced_by_a_window_as_the_page_says_and_no_item_is_forgotten_early(server):
    """Before the change, the new items of a day go into its key. From then on, they only go into the window."""
    change, window = 4, 2  # days
    client, day = server.client, SECONDS["day"]
    keys = [f"before:{number}" for number in range(change)]
    for key in keys:
        client.execute_command("BF.RESERVE", key, "0.0000001", 1000, "SEED", 7)
    came: dict[str, int] = {}
    for number in range(4 * change):
        # This is later than all other times in this file.
        set_clock(server, 1000 * day + number * day)
        if number == change:
            command = ("BF.RESERVE", "after", "0.0000001", 1000, "WINDOW", window * day)
            client.execute_command(*command, "SLICES", window, "SEED", 7)
        if number == change + window:
            client.delete(*keys)
        # The keys of today and the two days before; after the change, the last three keys.
        checked = keys[max(0, min(number, change - 1) - 2) : number + 1]
        checked += ["after"] if number >= change else []
        for item in (*(f"{n}" for n in range(number + 1)), "always"):
            seen = any(client.execute_command("BF.EXISTS", key, item) for key in checked)
            age = number - came.get(item, -window)
            assert seen or age >= window, f"{item} on day {number}"
            if number >= change + window:
                assert not seen or age <= window + 1, f"{item} on day {number}"
            if not seen:
                came[item] = number
                client.execute_command("BF.ADD", checked[-1], item)
    assert client.exists(*keys) == 0


def test_the_bits_an_item_are_those_of_the_page_on_choosing(server):
    """The figures for the default are those of docs/choosing.md, which the library's tests check."""
    default = re.search(r"\| 15 \(default\) \| a 15th \| ([\d.]+) \| ([\d.]+) \|", PAGE)
    stated = re.search(
        r"\*\*Filters that forget\*\* take (\d+) bits an item at 1 % .*? At 0\.1 %, they take (\d+) bits",
        (ROOT / "docs/choosing.md").read_text(),
        re.DOTALL,
    )
    assert default
    assert stated
    assert [round(float(bits)) for bits in default.groups()] == [
        int(bits) for bits in stated.groups()
    ]
