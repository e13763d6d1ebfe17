"""Checks docs/grafana-dashboard.json with Grafana's Python package, which has a model of dashboards, and with a real
Prometheus, which gets the metrics of a primary and its replica from redis_exporter. Each query of each panel must return
what the servers themselves report.

`test_operating.py` tests the alerts.
"""

import json
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import Any

import pages
import pytest
import redis
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from monitoring import Prometheus, exporter, info_text, numbers, prometheus
from servers import HOST, OXBLOOM, ROOT, Server, start, wait_until

DASHBOARD = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
PAGE = pages.page("operating.md")
GRAFANA = pages.section(PAGE, "Grafana")
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
ANNOTATIONS = DASHBOARD["annotations"]["list"]

HOUR = 3600  # longer than the test takes, so that a rate covers all of it
# Prometheus extrapolates a rate by at most 1.1 intervals before the first sample and after the last one. There are at
# least two samples, so the rate covers at most 3.2 intervals instead of one.
EXTRAPOLATED = 3.2

# Filters of each layout, with the number of their items. Some grow, forget or are full.
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
# The figures that are only of interest to those who change a setting, and are on no panel.
LOOKAHEAD = {"lookahead_active", "lookahead_commands", "lookahead_share"}

# The figures that stay 0.
SILENT = {"rejected_replicated", "internal_errors", "bloom_defrag_hits", "bloom_defrag_misses"}
SILENT |= LOOKAHEAD


# The file


def test_grafana_knows_all_that_is_in_the_file() -> None:
    """The model leaves out fields that it does not know."""
    plugins.register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))

    def missing(ours: Any, theirs: Any, path: str) -> Iterator[str]:
        if isinstance(ours, dict) and isinstance(theirs, dict):
            for name, value in ours.items():
                yield from missing(value, theirs.get(name, "missing"), f"{path}/{name}")
        elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            for number, pair in enumerate(zip(ours, theirs, strict=True)):
                yield from missing(*pair, f"{path}/{number}")
        elif ours != theirs:
            yield f"{path}: {ours}"

    assert list(missing(DASHBOARD, known, "")) == []


def test_the_file_can_be_imported_and_each_panel_says_what_it_shows_and_what_to_do() -> None:
    assert "id" not in DASHBOARD
    assert "__inputs" not in DASHBOARD
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(PANELS) == sum(panel["type"] != "row" for panel in panels)
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables = DASHBOARD["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["datasource", "instance", "primary"]
    assert all(one["datasource"] == source for one in [*variables[1:], *ANNOTATIONS])
    for title, panel in PANELS.items():
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["description"].endswith("."), title
        assert panel["datasource"] == source
        for target in panel["targets"]:
            assert target["datasource"] == source
            assert "$instance" in target["expr"] or "$primary" in target["expr"]
    # No panel overlaps another one.
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in panels)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    tops = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in panels]
    assert all(first < second for first, second in pairwise(tops))


def test_the_page_lists_the_panels_and_the_variables() -> None:
    listed = re.findall(r"^\| \*\*(.*?)\*\* \| (.*) \|$", GRAFANA, re.MULTILINE)
    rows: dict[str, list[str]] = {}
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            rows[panel["title"]] = []
        else:
            rows[list(rows)[-1]].append(panel["title"])
    assert {row: titles.split("; ") for row, titles in listed} == rows
    for variable in DASHBOARD["templating"]["list"]:
        assert f"**{variable['label']}**" in GRAFANA


def test_each_figure_of_the_page_is_on_the_dashboard() -> None:
    table = PAGE[PAGE.index("## What to watch") : PAGE.index("When to wake someone")]
    rows = re.findall(r"^\| `(bf_\w+)` \| (.*) \|$", table, re.MULTILINE)
    # Only figures that are numbers, and no aliases of other figures.
    figures = {name for name, text in rows if not re.fullmatch(r"`bf_\w+`", text)}
    figures -= {"bf_version", "bf_last_rejection"} | {f"bf_{name}" for name in LOOKAHEAD}
    assert len(figures) > 20
    queries = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
    keys = re.findall(r'key=(~?)"(.*?)"', "\n".join(queries))
    for figure in figures:
        assert any(
            re.fullmatch(key, figure) if pattern else key == figure for pattern, key in keys
        ), figure


# Its queries


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
        # Each figure needs a sample from before it rises. Figures of commands exist only after a first call.
        for _ in range(2):
            self.scrapes_again()
            load(self.primary)
        assert self.primary.client.wait(1, 60_000) == 1
        # A replica forgets expired items only when its primary tells it to.
        for _ in range(2):
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
    client.flushall()
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
    figures = {name.removeprefix("bf_"): v for name, v in watched.figures["primary"].items()}
    zero = {name for name, value in figures.items() if value == 0}
    assert {name for name in zero if not name.startswith(tuple(LAYOUTS))} == SILENT
    assert all(value for name, value in figures.items() if re.fullmatch(r"\w+_items", name))
    assert figures["items"] == watched.figures["replica"]["bf_items"]


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
# The figures of each panel. Its queries show them or their rates. A star stands for each layout or reason.
FIGURES = {
    "Filters": ["filters"],
    "Items": ["items"],
    "Memory of the filters": ["bytes"],
    "Replicated commands rejected": ["rejected_replicated"],
    "Filters by layout": ["*_filters"],
    "Items by layout": ["*_items"],
    "Memory by layout": ["*_bytes"],
    "Added and duplicates": ["items_added", "duplicates"],
    "Removed and forgotten": ["items_removed", "items_forgotten"],
    "Slices that ended early": ["slices_ended_early"],
    "Growth": ["layers_grown"],
    "Rejected commands": ["rejected_*"],
    "Additions that stopped": ["additions_rejected"],
    "Replicated commands rejected, and internal errors": ["rejected_replicated", "internal_errors"],
    "Active defragmentation of filters": ["bloom_defrag_hits", "bloom_defrag_misses"],
}
LAYOUTS = {"native", "counting", "windowed", "classic", "native_cuckoo", "classic_cuckoo", "valkey"}
REASONS = {"full", "memory", "data", "mismatch", "key", "syntax"}
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
        figure = FIGURES[title][number] if title in FIGURES else ""
        if "*" in figure:
            legends = REASONS if figure == "rejected_*" else LAYOUTS
            assert {legend for _, legend in shown} == legends
        # A rate is extrapolated from the samples.
        is_rate = "rate(" in target["expr"]
        least, most, scale = (0.999, EXTRAPOLATED, HOUR) if is_rate else (1, 1, 1)
        for (server, legend), value in shown.items():
            figures = watched.figures[server]
            if figure:
                right = figures[f"bf_{figure.replace('*', legend)}"]
                assert least * right <= value * scale <= most * right
            elif title in COMPUTED and number == 0:
                assert value == pytest.approx(COMPUTED[title](figures), rel=1e-9)
    if "minus" in title:
        assert set(shown.values()) == {0}


def test_the_dashboard_marks_alerts(watched: Watched) -> None:
    (marks,) = ANNOTATIONS
    assert watched.prometheus.query(watched.filled_in(marks["expr"])) == []
