"""docs/forgetting.md, taken at its word.

What is typed into redis-cli there is typed into it here, and replied to as shown. Where the page says that so much time goes by,
the module's clock is turned. The code for redis-py runs, and the script for keys that are rotated promises no more than the window.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
from servers import ROOT, Server, running

PAGE = (ROOT / "docs/forgetting.md").read_text()
# With a command that turns the clock.
MODULE = Path(os.environ.get("OXBLOOM_FAULTY_MODULE", ROOT / "target/debug/liboxbloom.so"))

BEGIN = 1_800_000_000
SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}

STEP = re.compile(
    r"^\*{0,2}(?:\*\*)?(?P<number>\d+) (?P<unit>minute|hour|day)s? later"
    r"|\*\*(?P<more>\d+) (?P<more_unit>minute|hour|day)s? later"
    rf"|{pages.TYPED}",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(MODULE) as server:
        turn(server, 0)
        yield server


def turn(server: Server, seconds: int) -> None:
    """Stops the clock by which filters forget, so long after the beginning."""
    server.client.execute_command("BF.CLOCK", "any", 1000 * (BEGIN + seconds))


def test_each_command_gets_the_reply_that_is_shown_at_its_time(server):
    later = commands = waits = 0
    for step in STEP.finditer(PAGE):
        if step["command"]:
            reply = pages.redis_cli(server, step["command"])
            assert reply == step["reply"], f"{step['command']}, {later} seconds later"
            commands += 1
        else:
            number, unit = step["number"] or step["more"], step["unit"] or step["more_unit"]
            later += int(number) * SECONDS[unit]
            turn(server, later)
            waits += 1
    assert commands == len(re.findall("^127.0.0.1:6379> ", PAGE, re.MULTILINE)) > 20
    assert waits == PAGE.count(" later**") + PAGE.count(" later:**") == 6


def test_the_python_code_prints_what_it_says(server, capsys):
    (code,) = pages.blocks(PAGE, "python")
    pages.run_python(server, code)
    assert capsys.readouterr().out == "True False\n"


def test_the_window_promises_what_the_keys_do(server):
    """Day after day, the script and the window give the same answers, and the window is what replaces both."""
    (script,) = pages.blocks(PAGE, "lua")
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
        turn(server, 400 * day - BEGIN % day + number * day + day // 2)
        items = [f"item-{number // 4}", f"item-{number}", "always"]
        keys = [f"day:{number - back}" for back in range(3)]
        answers["keys"].append([rotated(keys=keys, args=[item]) for item in items])
        answers["window"].append(
            [client.execute_command("BF.ADD", "window", item) for item in items]
        )
    assert answers["keys"] == answers["window"]
    assert [row[2] for row in answers["window"]] == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


def test_the_bits_an_item_are_those_of_the_slices(server):
    """The table's figures for the default are those of docs/choosing.md, which the library's tests bound."""
    default = re.search(r"\| 8 \(default\) \| an eighth \| ([\d.]+) \| ([\d.]+) \|", PAGE)
    stated = re.search(
        r"\*\*Filters that forget\*\* take (\d+) bits an item at 1 % .*?; at 0\.1 % they take (\d+) bits",
        (ROOT / "docs/choosing.md").read_text(),
        re.DOTALL,
    )
    assert default and stated
    assert [round(float(bits)) for bits in default.groups()] == [
        int(bits) for bits in stated.groups()
    ]
