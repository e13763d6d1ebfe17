"""Pastes docs/recipes.md into a shell from top to bottom. Commands get the replies that the page shows, and the Python
code prints what its comments say.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pages
import pasting
import pytest
from pasting import Shell
from servers import OXBLOOM, WITHIN, Server, running

PAGE = pages.page("recipes.md")
STEP = re.compile(r"^```(?P<language>sh|python)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^(?:redis-cli|print\().*?  ?# (.*)$", re.MULTILINE)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


def printed_by(server: Server, code: str) -> list[str]:
    here = code.replace("redis.Redis(", f"redis.Redis(port={server.port}, ").replace(", )", ")")
    command = [sys.executable, "-W", "error", "-c", here]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stdout.splitlines()


def test_the_page_can_be_pasted_from_top_to_bottom(server: Server, tmp_path: Path) -> None:
    programs = pasting.redis_cli_at(tmp_path / "programs", server.port)
    shell = Shell(tmp_path, PAGE, directory=tmp_path, programs=programs)
    steps = {"sh": 0, "python": 0}
    try:
        for step in STEP.finditer(PAGE):
            shown = SHOWN.findall(step["code"])
            if step["language"] == "sh":
                assert len(shown) == step["code"].count("\n")
                assert shell.paste(step["code"]) == ", ".join(shown).split(", "), step["code"]
            else:
                assert printed_by(server, step["code"]) == shown, step["code"]
            steps[step["language"]] += 1
    finally:
        shell.close()
    assert steps == {"sh": 5, "python": 5}
    # The keys with an expiry have a TTL. The template has none.
    assert server.client.ttl("ad:17") > 2_000_000
    assert server.client.ttl("visits:monday") > 1_000_000
    assert server.client.ttl("visits:template") == -1
