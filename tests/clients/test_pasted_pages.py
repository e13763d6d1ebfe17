"""Pastes pages into one shell from top to bottom. Commands get the replies that the page shows, and the Python code prints
what its comments say. Where a page says that time passes, the test sets the module's clock.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pages
import pytest
from pasting import Shell
from servers import OXBLOOM_WITH_CLOCK, WITHIN, Server, running, set_clock

BEGIN = 1_800_000_000
SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}

STEP = re.compile(
    r"\*\*(?P<number>\d+) (?P<unit>minute|hour|day)s? later"
    r"|^```(?P<language>sh|python)\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
SHOWN = re.compile(r"^(?:redis-cli |print\().*? +# (.*)$", re.MULTILINE)


def printed_by(server: Server, code: str) -> list[str]:
    """Returns what Python code prints, in a process of its own."""
    here = code.replace("redis.Redis(", f"redis.Redis(port={server.port}, ").replace(", )", ")")
    command = [sys.executable, "-W", "error", "-c", here]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stdout.splitlines()


# The steps of each page, and limits of the TTLs that its keys have at the end.
@pytest.mark.parametrize(
    ("name", "steps", "ttls"),
    [
        ("forgetting.md", {"sh": 13, "python": 1, "later": 6}, {}),
        (
            "recipes.md",
            {"sh": 5, "python": 5},
            {
                "ad:17": (2_000_000, 3_000_000),
                "visits:monday": (1_000_000, 3_000_000),
                "visits:template": (-1, -1),
            },
        ),
    ],
)
def test_the_page_can_be_pasted_from_top_to_bottom(
    tmp_path: Path, name: str, steps: dict[str, int], ttls: dict[str, tuple[int, int]]
) -> None:
    page, now = pages.page(name), BEGIN
    done: Counter[str] = Counter()
    with (
        running(OXBLOOM_WITH_CLOCK) as server,
        Shell(tmp_path, page, directory=tmp_path, port=server.port) as shell,
    ):
        set_clock(server, now)
        for step in STEP.finditer(page):
            done[step["language"] or "later"] += 1
            if step["number"]:
                now += int(step["number"]) * SECONDS[step["unit"]]
                set_clock(server, now)
                continue
            code, shown = step["code"], SHOWN.findall(step["code"])
            assert len(shown) == len(re.findall(r"^(?:redis-cli |print\()", code, re.MULTILINE))
            if step["language"] == "sh":
                place = f"{code}, {now - BEGIN} seconds later"
                assert shell.paste(code) == ", ".join(shown).split(", "), place
            else:
                assert printed_by(server, code) == shown, code
        for key, (least, most) in ttls.items():
            assert least <= server.client.ttl(key) <= most, key
    assert done == steps
    assert done["later"] == len(re.findall(r" later:?\*\*", page))
    assert "127.0.0.1:6379>" not in page
