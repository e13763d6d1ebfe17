"""The shapes that docs/how-it-works.md shows are those that a server chooses."""

import re
from collections.abc import Iterator

import pages
import pytest
from servers import OXBLOOM, Server, running

PAGE = pages.page("how-it-works.md")
SHAPE = re.compile(
    r"^\| (0\.\d+) \| (\d), (\d+), ([\d.]+) \| (\d), (\d+), ([\d.]+) \|$", re.MULTILINE
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


def shape(server: Server, rate: str, *options: str) -> tuple[str, str, str]:
    """Returns the blocks per item, the probes, and the bits per item of a filter for a million items."""
    client = server.client
    client.flushall()
    client.execute_command("BF.RESERVE", "filter", rate, 1_000_000, *options)
    described = client.execute_command("BF.DEBUG", "filter")[-1].decode()
    facts = dict(fact.split(":") for fact in described.split())
    return facts["blocks"], facts["hashes"], f"{int(facts['bits']) / 1e6:.1f}"


def test_the_table_has_the_shapes_that_a_server_chooses(server: Server) -> None:
    rows = SHAPE.findall(PAGE)
    assert len(rows) == 5
    for rate, *stated in rows:
        assert stated == [*shape(server, rate), *shape(server, rate, "NONSCALING")]
