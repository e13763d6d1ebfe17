"""Compares docs/forgetting.md with a server.

The script for rotated keys gives the same replies as a window, and keys are replaced by a window without a loss.
`test_following_pages.py` runs its commands.
"""

import re
from collections.abc import Iterator

import pages
import pytest
from servers import OXBLOOM_WITH_CLOCK, Server, running, set_clock

PAGE = pages.page("forgetting.md")

DAY = 86_400


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(OXBLOOM_WITH_CLOCK) as server:
        set_clock(server, 25_000 * DAY)
        yield server


def test_a_window_replies_as_rotated_keys_do(server):
    """The script and the window give the same replies, day after day."""
    (script,) = re.findall(r"<<'END'\n(-- KEYS.*?)^END$", PAGE, re.DOTALL | re.MULTILINE)
    client, day = server.client, DAY
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
        set_clock(server, (30_000 + number) * day + day // 2)
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
    client, day = server.client, DAY
    keys = [f"before:{number}" for number in range(change)]
    for key in keys:
        client.execute_command("BF.RESERVE", key, "0.0000001", 1000, "SEED", 7)
    came: dict[str, int] = {}
    for number in range(4 * change):
        # This is later than all other times in this file.
        set_clock(server, (40_000 + number) * day)
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
