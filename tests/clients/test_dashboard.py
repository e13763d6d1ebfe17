"""Tests docs/grafana-dashboard.json with a real Prometheus, which gets the metrics of a primary and its replica from
redis_exporter. Each query of each panel must return what the servers themselves report.

`test_operating.py` tests the alerts.
"""

import json
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pages
import pytest
import redis
from monitoring import Prometheus, exporter, info_text, numbers, prometheus
from servers import HOST, OXBLOOM, Server, start, wait_until
from test_dashboard_file import ANNOTATIONS, DASHBOARD, PAGE, PANELS

HOUR = 3600  # longer than the test takes, so that a rate covers all of it
# Prometheus extrapolates a rate by at most 1.1 intervals before the first sample and after the last one. There are at
# least two samples, so the rate covers at most 3.2 intervals instead of one.
EXTRAPOLATED = 3.2

# Filters of each layout, some of which grow, forget or are full, and the number of their items.
FILTERS = {
    "native 0.01 1000": 700,
    "grown 0.01 10": 200,
    "classic 0.01 10 LAYOUT classic": 500,
    "valkey 0.01 10 LAYOUT valkey": 500,
    "counting 0.01 100 COUNTING": 50,
    "rolling 0.01 100 ROLLING": 400,
    "window 0.01 100 WINDOW 3600 ROLLING": 500,
    "full 0.01 1 NONSCALING": 1,
}
# The figures that stay 0.
SILENT = {"rejected_replicated", "internal_errors", "bloom_defrag_hits", "bloom_defrag_misses"}


class Watched:
    """A primary and a replica under load, and the Prometheus that has their metrics."""

    def __init__(self, stack: ExitStack, folder: Any) -> None:
        (script,) = pages.blocks(pages.section(PAGE, "Prometheus"), "lua")
        (folder / "oxbloom.lua").write_text(script)
        self.primary = start(stack, OXBLOOM, "--repl-diskless-sync-delay", "0")
        self.primary.client.config_set("maxmemory", 100 << 20)
        replica = start(stack, OXBLOOM, "--replicaof", f"{HOST} {self.primary.port}")
        wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up")
        self.servers = {"primary": self.primary, "replica": replica}
        self.instances = {
            name: stack.enter_context(exporter(server, folder / "oxbloom.lua")).split("/")[2]
            for name, server in self.servers.items()
        }
        self.prometheus: Prometheus = stack.enter_context(
            prometheus(folder, *self.instances.values())
        )
        # Each figure needs a sample from before it rises, and each figure of commands two.
        self.scrapes_again()
        load(self.primary)
        assert self.primary.client.wait(1, 60_000) == 1
        for _ in range(3):
            self.scrapes_again()
        self.figures = {
            name: numbers(info_text(server, "bf")) for name, server in self.servers.items()
        }

    def scrapes_again(self) -> None:
        """Waits until all exporters have been scraped once more."""
        now = self.prometheus.query("vector(time())")[0][1]
        expression = 'timestamp(redis_script_values{key="bf_items"})'

        def scraped() -> bool:
            times = [time for _, time in self.prometheus.query(expression)]
            return len(times) == len(self.servers) and min(times) > now

        wait_until(scraped)

    def filled_in(self, expression: str) -> str:
        """Returns a query as Grafana sends it if both servers are selected."""
        every = "|".join(re.escape(instance) for instance in self.instances.values())
        # Grafana escapes values for strings in PromQL.
        values = {
            "$instance": f"({every})".replace("\\", "\\\\"),
            "$primary": self.instances["primary"],
            "$__rate_interval": f"{HOUR}s",
        }
        for name, value in values.items():
            expression = expression.replace(name, value)
        return expression

    def shown(self, target: dict[str, Any]) -> dict[tuple[str, str], float]:
        """Returns the values of a query, by the server and the rest of the legend."""
        names = {instance: name for name, instance in self.instances.items()}
        rest = target["legendFormat"].removeprefix("{{instance}}").strip()
        result = {}
        for labels, value in self.prometheus.query(self.filled_in(target["expr"])):
            legend = re.sub(r"\{\{(\w+)\}\}", lambda name: labels[name[1]], rest)  # noqa: B023
            key = names[labels["instance"]], legend
            assert key not in result, f"two series have the legend {key}"
            result[key] = value
        return result


def load(server: Server) -> None:
    """Adds and removes items, and causes rejections of each kind, each a different number of times."""
    client = server.client
    for options, count in FILTERS.items():
        name, *_ = words = options.split()
        client.execute_command("BF.RESERVE", *words)
        client.execute_command("BF.MADD", name, *range(count))
    for layout in ("native", "classic"):
        command = ["CF.INSERT", f"{layout} cuckoo", "LAYOUT", layout, "ITEMS", *range(300)]
        client.execute_command(*command)
    client.execute_command("BF.MADD", "native", *range(300))
    client.execute_command("BF.MDEL", "counting", *range(10))
    client.set("text", "value")
    payload = bytearray(client.dump("native"))
    payload[20] ^= 1
    for times, command in enumerate(
        [
            ("BF.MADD", "full", *range(100)),
            ("BF.RESERVE", "huge", "0.000001", 10**12),
            ("BF.LOADCHUNK", "chunk", 1, b"garbage"),
            ("BF.DEL", "native", "item"),
            ("BF.ADD", "text", "item"),
            ("BF.RESERVE", "typo", "x", 100),
            ("RESTORE", "payload", 0, bytes(payload)),
        ],
        start=2,
    ):
        for _ in range(times):
            reply = None
            with suppress(redis.ResponseError):
                reply = client.execute_command(*command)
            assert reply is None or isinstance(reply[-1], redis.ResponseError), command


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with ExitStack() as stack:
        yield Watched(stack, tmp_path_factory.mktemp("monitoring"))


def test_the_variables_offer_the_servers(watched: Watched) -> None:
    _, instance, primary = DASHBOARD["templating"]["list"]
    query = re.fullmatch(r"label_values\((.*), (\w+)\)", instance["query"]["query"])
    assert query
    offered = watched.prometheus.api(f"label/{query[2]}/values", match=query[1])
    assert sorted(offered) == sorted(watched.instances.values())
    query = re.fullmatch(r"query_result\((.*)\)", primary["query"]["query"])
    assert query
    # Grafana writes a series in this form before it applies the regular expression.
    texts = [
        f"redis_connected_slaves{{{','.join(f'{name}={json.dumps(labels[name])}' for name in labels)}}} {value} 0"
        for labels, value in watched.prometheus.query(query[1])
    ]
    found = [re.search(primary["regex"].strip("/"), text) for text in texts]
    assert [match[1] for match in found if match] == [watched.instances["primary"]]


def test_the_load_has_something_of_everything(watched: Watched) -> None:
    """Otherwise, a query that shows nothing would pass."""
    for figures in watched.figures.values():
        zero = {name.removeprefix("bf_") for name, value in figures.items() if value == 0}
        assert {name for name in zero if not re.search("rejected|_layers_|_items_", name)} <= SILENT
    assert watched.figures["primary"]["bf_items"] == watched.figures["replica"]["bf_items"]


# Figures that panels compute, from those of a server.
COMPUTED = {
    "Bits for each item": lambda of: 8 * of["bf_bytes"] / of["bf_items"],
    "Items as a share of the capacity": lambda of: (
        of["bf_items"] / of["bf_bloom_capacity_across_objects"]
    ),
    "Layers of a filter": lambda of: of["bf_layers"] / of["bf_filters"],
    "Share of duplicates": lambda of: (
        of["bf_duplicates"] / (of["bf_duplicates"] + of["bf_items_added"])
    ),
    "Filters' share of maxmemory": lambda of: of["bf_bytes"] / (100 << 20),
}
# A query of one figure, or of the figures of all layouts or reasons, and perhaps of its rate.
FIGURE = re.compile(
    r'(?P<many>label_replace\()?(?P<rate>rate\()?redis_script_values\{key=~?"(?P<key>[^"]*)", instance=~"\$instance"\}'
    r'(?(rate)\[\$__rate_interval\]\))(?(many), "\w+", "\$1", "key", "(?P<names>[^"]*)"\))'
)
# Panels about one of the servers.
OF_ONE = {
    "Filters' share of maxmemory": "primary",
    "Bytes behind the primary": "primary",
    "Filters: replica minus primary": "replica",
    "Items: replica minus primary": "replica",
    "Link to the primary": "replica",
}


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_shows_what_the_servers_report(watched: Watched, title: str) -> None:
    for number, target in enumerate(PANELS[title]["targets"]):
        shown = watched.shown(target)
        one = OF_ONE.get(title, "primary" if "maxmemory" in target["legendFormat"] else None)
        assert {server for server, _ in shown} == ({one} if one else set(watched.servers))
        assert all(math.isfinite(value) and value >= 0 for value in shown.values())
        query = FIGURE.fullmatch(target["expr"])
        for (server, legend), value in shown.items():
            figures = watched.figures[server]
            if query:
                names = (query["names"] or query["key"]).split("(")
                name = (
                    query["key"]
                    if not query["many"]
                    else names[0] + legend + names[1].split(")")[1]
                )
                least, most = (0.999, EXTRAPOLATED) if query["rate"] else (1, 1)
                scale = HOUR if query["rate"] else 1
                assert least * figures[name] <= value * scale <= most * figures[name], name
            elif title in COMPUTED and number == 0:
                assert value == pytest.approx(COMPUTED[title](figures), rel=1e-9)
    if "minus" in title:
        assert set(shown.values()) == {0}


def test_the_dashboard_marks_alerts(watched: Watched) -> None:
    (marks,) = ANNOTATIONS
    assert watched.prometheus.query(watched.filled_in(marks["expr"])) == []
