"""Tests docs/grafana-dashboard.json and the alerts of docs/operating.md with a real Prometheus, which gets the metrics
of a primary and its replica from redis_exporter.

Each query of each panel must return what the servers themselves report. The alerts must be silent until a test provokes
them, and then fire.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pages
import pytest
import redis
from monitoring import Prometheus, exporter, info_text, numbers, prometheus
from servers import HOST, OXBLOOM_WITH_CLOCK, Server, start, wait_until
from test_dashboard_file import ANNOTATIONS, DASHBOARD, PAGE, PANELS

PROMETHEUS = pages.section(PAGE, "Prometheus")
LAYOUTS = ["native", "counting", "windowed", "classic", "native_cuckoo", "classic_cuckoo", "valkey"]
ALERTS = re.findall(r"^ *- alert: (\w+)$", PROMETHEUS, re.MULTILINE)

# Longer than the test takes, so that a rate covers all of it.
HOUR = 3600
# Prometheus extrapolates a rate by at most 1.1 intervals before the first sample and after the last one. There are at
# least two samples, so the rate covers at most 3.2 intervals instead of one.
EXTRAPOLATED = 3.2
MEBIBYTE = 1 << 20


@dataclass
class Rate:
    """The rate of a figure over an hour, in which it rises by `least` to `most`."""

    least: float
    most: float

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, float)
        return self.least * 0.999 <= other * HOUR <= self.most * EXTRAPOLATED


@dataclass
class Between:
    least: float
    most: float

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, float)
        return self.least <= other <= self.most


@dataclass
class Watched:
    """A primary and a replica under load, and what the dashboard shows of them."""

    servers: dict[str, Server]
    prometheus: Prometheus
    # The addresses of the exporters, by the names of the servers.
    instances: dict[str, str]
    # The following is recorded after the load, before the alerts are provoked.
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    commands: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    calls_of_the_second_round: dict[str, float] = field(default_factory=dict)
    added: int = 0
    shown: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    fired: set[tuple[str, str]] = field(default_factory=set)

    @property
    def primary(self) -> Server:
        return self.servers["primary"]

    @property
    def replica(self) -> Server:
        return self.servers["replica"]

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

    def shows(self, panel: dict[str, Any]) -> list[dict[str, float]]:
        """Returns the values of each query of a panel, by their legends. The legends have the names of the servers
        instead of the addresses of their exporters."""
        names = {instance: name for name, instance in self.instances.items()}
        results = []
        for target in panel["targets"]:
            result = {}
            for labels, value in self.prometheus.query(self.filled_in(target["expr"])):
                labels["instance"] = names[labels["instance"]]
                legend = re.sub(
                    r"\{\{(\w+)\}\}",
                    lambda name: labels[name[1]],  # noqa: B023
                    target["legendFormat"],
                )
                assert legend not in result, f"two series have the legend {legend}"
                result[legend] = value
            results.append(result)
        return results


def rejected(client: redis.Redis, *command: str | bytes | int) -> None:
    reply = None
    with suppress(redis.ResponseError):
        reply = client.execute_command(*command)
    assert reply is None or isinstance(reply[-1], redis.ResponseError), command


def load(watched: Watched, number: int) -> None:
    """Does what clients do: creates filters of each layout, adds and removes items, and causes rejections of each kind,
    each a different number of times."""
    client = watched.primary.client

    def add(name: str, items: range) -> None:
        watched.added += sum(client.execute_command("BF.MADD", f"{name} {number}", *items))

    def reserve(name: str, rate: str, capacity: int, *options: str | int) -> None:
        client.execute_command("BF.RESERVE", f"{name} {number}", rate, capacity, *options)

    reserve("native", "0.01", 1000)
    add("native", range(700))
    add("native", range(300))
    reserve("grown", "0.01", 10)
    add("grown", range(200))
    reserve("classic", "0.01", 10, "LAYOUT", "classic")
    add("classic", range(500))
    reserve("valkey", "0.01", 10, "LAYOUT", "valkey")
    add("valkey", range(500))
    reserve("counting", "0.01", 100, "COUNTING")
    add("counting", range(50))
    client.execute_command("BF.MDEL", f"counting {number}", *range(10))
    reserve("rolling", "0.01", 100, "ROLLING")
    add("rolling", range(400))
    reserve("window", "0.01", 100, "WINDOW", 3600, "ROLLING")
    add("window", range(500))
    for layout in ("native", "classic"):
        command = ["CF.INSERT", f"{layout} cuckoo {number}", "LAYOUT", layout, "ITEMS", *range(300)]
        watched.added += sum(client.execute_command(*command))
    reserve("full", "0.01", 1, "NONSCALING")
    client.set("text", "value")
    payload = bytearray(client.dump("native 1"))
    payload[20] ^= 1
    for times, command in enumerate(
        [
            ("BF.MADD", f"full {number}", *range(100)),
            ("BF.RESERVE", "huge", "0.000001", 10**12),
            ("BF.LOADCHUNK", "chunk", 1, b"garbage"),
            ("BF.DEL", "native 1", "item"),
            ("BF.ADD", "text", "item"),
            ("BF.RESERVE", "typo", "x", 100),
            ("RESTORE", "payload", 0, bytes(payload)),
        ],
        start=2,
    ):
        for _ in range(times):
            rejected(client, *command)
    # The full filter accepted at least one item before it was full.
    watched.added += client.execute_command("BF.CARD", f"full {number}")
    client.execute_command("BF.MEXISTS", f"native {number}", *range(100))
    # The server itself rejects a command with too few arguments.
    rejected(client, "BF.ADD", "native 1")


def commands_of(server: Server) -> dict[str, dict[str, float]]:
    """Returns the statistics of the module's commands that the server has run."""
    statistics = server.client.info("commandstats")
    times = server.client.info("latencystats")
    return {
        command: {**values, **times.get(f"latency_percentiles_usec_{command}", {})}
        for name, values in statistics.items()
        if (command := name.removeprefix("cmdstat_")).startswith(("bf.", "cf."))
    }


def all_rules() -> str:
    """Returns the alerts of the page. The one that waits for ten minutes waits for only a second here."""
    (rules,) = pages.blocks(PROMETHEUS, "yaml")
    assert rules.count("for: 10m") == 1
    return rules.replace("for: 10m", "for: 1s")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("monitoring")
    (script,) = pages.blocks(PROMETHEUS, "lua")
    (folder / "oxbloom.lua").write_text(script)
    with ExitStack() as stack:
        primary = start(stack, OXBLOOM_WITH_CLOCK, "--repl-diskless-sync-delay", "0")
        primary.client.config_set("maxmemory", 100 * MEBIBYTE)
        # Clients can write to this replica, so that a test can make it reject what its primary sends.
        options = ["--replicaof", f"{HOST} {primary.port}", "--replica-read-only", "no"]
        replica = start(stack, OXBLOOM_WITH_CLOCK, *options)
        wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up")
        servers = {"primary": primary, "replica": replica}
        addresses = {
            name: stack.enter_context(exporter(server, folder / "oxbloom.lua"))
            for name, server in servers.items()
        }
        instances = {name: address.split("/")[2] for name, address in addresses.items()}
        scraping = stack.enter_context(prometheus(folder, all_rules(), *instances.values()))
        watched = Watched(servers, scraping, instances)
        # Each figure needs a sample from before it rises. Figures of commands exist only after a first call.
        watched.scrapes_again()
        load(watched, 1)
        watched.scrapes_again()
        before = commands_of(primary)
        load(watched, 2)
        assert primary.client.wait(1, 60_000) == 1
        after = commands_of(primary)
        watched.calls_of_the_second_round = {
            command: after[command]["calls"] - before[command]["calls"] for command in after
        }
        # A replica forgets expired items only when its primary tells it to.
        watched.scrapes_again()
        watched.scrapes_again()
        for name, server in servers.items():
            watched.figures[name] = numbers(info_text(server, "bf"))
            watched.commands[name] = commands_of(server)
        watched.shown = {title: watched.shows(panel) for title, panel in PANELS.items()}
        watched.fired = scraping.firing()
        yield watched


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


def test_each_metric_of_the_dashboard_exists(watched: Watched) -> None:
    queries = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
    queries += [one["query"]["query"] for one in DASHBOARD["templating"]["list"][1:]]
    named = set(re.findall(r"\bredis_\w+", "\n".join(queries)))
    assert named <= set(watched.prometheus.api("label/__name__/values"))
    assert len(named) > 15


def expected(watched: Watched) -> dict[str, list[dict[str, Any]]]:
    """Returns the values that each query of each panel must have, computed from what the servers report themselves."""
    names = list(watched.servers)
    figures, commands = watched.figures, watched.commands
    info = {name: server.client.info() for name, server in watched.servers.items()}

    def of_each(value: Callable[[str], Any], more: str = "") -> dict[str, Any]:
        return {f"{name}{more}": value(name) for name in names}

    def figure(key: str, more: str = "") -> dict[str, Any]:
        return of_each(lambda name: figures[name][f"bf_{key}"], more)

    def risen(key: str, more: str = "") -> dict[str, Any]:
        """All figures started at 0."""
        rates = {name: figures[name][f"bf_{key}"] for name in names}
        return of_each(lambda name: Rate(rates[name], rates[name]), more)

    def ratio(value: Callable[[dict[str, float]], float], more: str = "") -> dict[str, Any]:
        return of_each(lambda name: pytest.approx(value(figures[name])), more)

    def by_layout(key: str) -> dict[str, Any]:
        each = [figure(f"{layout}_{key}", f" {layout}") for layout in LAYOUTS]
        return {legend: value for values in each for legend, value in values.items()}

    def of_commands(value: Callable[[str, str], Any], more: str = "") -> dict[str, Any]:
        return {
            f"{name} {command}{more}": value(name, command)
            for name in names
            for command in commands[name]
        }

    def calls(name: str, command: str) -> Rate:
        # The first sample may already have the calls of the first round. For the replica, the rounds were not counted
        # separately.
        least = watched.calls_of_the_second_round[command] if name == "primary" else 0
        return Rate(least, commands[name][command]["calls"])

    def seconds(name: str, command: str) -> Between:
        """The mean of the second round may be above that of all calls, but not above their total time."""
        statistics = commands[name][command]
        return Between(0, statistics["usec"] / 1e6)

    def failures(kind: str) -> Callable[[str, str], Rate]:
        return lambda name, command: Rate(0, commands[name][command][f"{kind}_calls"])

    def share_of_duplicates(name: str) -> Any:
        additions = figures[name]["bf_duplicates"] + figures[name]["bf_items_added"]
        return pytest.approx(figures[name]["bf_duplicates"] / additions)

    reasons = ["full", "memory", "data", "mismatch", "key", "syntax"]
    rejections = [risen(f"rejected_{reason}", f" {reason}") for reason in reasons]
    limit = 100 * MEBIBYTE
    bytes_of_the_primary = figures["primary"]["bf_bytes"]
    replica_at = f"{HOST}:{watched.replica.port}"
    return {
        "Filters": [figure("filters")],
        "Items": [figure("items")],
        "Memory of the filters": [figure("bytes")],
        # The replica has no limit.
        "Filters' share of maxmemory": [
            {"primary": pytest.approx(bytes_of_the_primary / limit, rel=1e-9)}
        ],
        "Internal errors in 10 minutes": [of_each(lambda _: 0)],
        "Replicated commands rejected": [of_each(lambda _: 0)],
        "Filters by layout": [by_layout("filters")],
        "Items by layout": [by_layout("items")],
        "Memory by layout": [by_layout("bytes")],
        "Bits for each item": [ratio(lambda of: 8 * of["bf_bytes"] / of["bf_items"])],
        "Items as a share of the capacity": [
            ratio(lambda of: of["bf_items"] / of["bf_bloom_capacity_across_objects"])
        ],
        "Layers of a filter": [
            ratio(lambda of: of["bf_layers"] / of["bf_filters"], " all"),
            {
                legend: value
                for layout in LAYOUTS
                for legend, value in ratio(
                    lambda of: of[f"bf_{layout}_layers"] / of[f"bf_{layout}_filters"],  # noqa: B023
                    f" {layout}",
                ).items()
            },
        ],
        "Added and duplicates": [risen("items_added", " new"), risen("duplicates", " duplicates")],
        "Share of duplicates": [of_each(share_of_duplicates)],
        "Removed and forgotten": [
            risen("items_removed", " removed"),
            risen("items_forgotten", " forgotten"),
        ],
        "Slices that ended early": [risen("slices_ended_early")],
        "Growth": [risen("layers_grown")],
        "Rejected commands": [
            {legend: rate for rates in rejections for legend, rate in rates.items()}
        ],
        "Additions that stopped": [risen("additions_rejected")],
        "Replicated commands rejected, and internal errors": [
            figure("rejected_replicated", " replicated"),
            figure("internal_errors", " internal errors"),
        ],
        "Commands a second": [of_commands(calls)],
        # The query only shows commands that were called in the second round. All commands were.
        "Mean time of a command": [of_commands(seconds)],
        "99th percentile of the time": [
            of_commands(lambda name, command: pytest.approx(commands[name][command]["p99"]))
        ],
        "Share of a core": [of_each(lambda _: Between(1e-9, 1))],
        "Failed commands": [
            of_commands(failures("failed"), " failed"),
            of_commands(failures("rejected"), " rejected"),
        ],
        "Filters: replica minus primary": [{"replica": 0}],
        "Items: replica minus primary": [{"replica": 0}],
        "Bytes behind the primary": [{replica_at: Between(0, 1000)}],
        "Link to the primary": [{"replica": 1}],
        "Memory of the server": [
            of_each(lambda name: Between(figures[name]["bf_bytes"], limit), " used"),
            of_each(lambda name: Between(MEBIBYTE, 4 * info[name]["used_memory_rss"]), " resident"),
            {"primary maxmemory": limit},
        ],
        "Fragmentation": [of_each(lambda _: Between(0.1, 100))],
        "Active defragmentation of filters": [
            risen("bloom_defrag_hits", " moved"),
            risen("bloom_defrag_misses", " not moved"),
        ],
        "Evicted keys": [of_each(lambda _: Rate(0, 0))],
        "Last save, last write": [
            of_each(lambda _: 1, " snapshot"),
            of_each(lambda _: 1, " append-only file"),
        ],
        "Exporter reaches the server": [of_each(lambda _: 1)],
    }


def test_the_load_has_something_of_everything(watched: Watched) -> None:
    """Otherwise, a query that shows nothing would pass."""
    figures = watched.figures["primary"]
    assert figures["bf_items_added"] == watched.added
    assert figures["bf_items_removed"] == 20
    assert figures["bf_items"] == watched.added - 20 - figures["bf_items_forgotten"]
    silent = {
        "bf_rejected_replicated",
        "bf_internal_errors",
        "bf_bloom_defrag_hits",
        "bf_bloom_defrag_misses",
    }
    of_all = {name for name in figures if not re.match(f"bf_({'|'.join(LAYOUTS)})_", name)}
    assert {name for name in of_all if figures[name] == 0} == silent
    rejections = [figures[f"bf_rejected_{reason}"] for reason in ("full", "memory", "mismatch")]
    assert rejections == [4, 6, 10]
    assert all(figures[f"bf_{layout}_items"] > 0 for layout in LAYOUTS)
    assert watched.figures["replica"]["bf_items"] == figures["bf_items"]


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_shows_what_the_servers_report(watched: Watched, title: str) -> None:
    wanted = expected(watched)
    assert wanted.keys() == PANELS.keys()
    for shown, right in zip(watched.shown[title], wanted[title], strict=True):
        assert shown == right


def provoke(watched: Watched) -> None:
    """Causes a command that the replica rejects, a memory that is full of filters, and an internal error."""
    client = watched.primary.client
    client.execute_command("BF.RESERVE", "in the way", "0.01", 100)
    assert client.wait(1, 60_000) == 1
    watched.replica.client.set("in the way", "text")
    client.execute_command("BF.ADD", "in the way", "item")
    client.config_set("maxmemory", 0)
    client.execute_command("BF.RESERVE", "large", "0.01", 60_000_000)
    large = client.execute_command("BF.INFO", "large", "SIZE")[0]
    limit = int(client.info("memory")["used_memory"] / 0.95)
    assert large > 0.8 * limit
    client.config_set("maxmemory", limit)
    rejected(client, "BF.RESERVE", "too large", "0.01", 60_000_000)
    # This comes last: to print its location, a panic loads data that stay in memory.
    rejected(client, "BF.PANIC", "key")


def test_alerts_are_silent_until_they_are_provoked_and_then_fire(watched: Watched) -> None:
    """Runs last, since it changes what the other tests look at."""
    groups = watched.prometheus.api("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["name"] for rule in rules] == ALERTS
    assert all((rule["health"], rule.get("lastError", "")) == ("ok", "") for rule in rules)
    assert watched.fired == set()
    provoke(watched)
    exporter_of = {alert: "primary" for alert in ALERTS} | {"OxbloomReplicationRejected": "replica"}
    firing = {(alert, watched.instances[name]) for alert, name in exporter_of.items()}
    wait_until(lambda: watched.prometheus.firing() == firing)
    # The dashboard marks the times of the alerts, and shows what caused them.
    (marks,) = ANNOTATIONS
    wait_until(
        lambda: (
            {
                (labels["alertname"], labels["instance"])
                for labels, _ in watched.prometheus.query(watched.filled_in(marks["expr"]))
            }
            == firing
        )
    )
    watched.scrapes_again()
    shown = {title: watched.shows(panel) for title, panel in PANELS.items()}
    assert shown["Internal errors in 10 minutes"][0]["primary"] >= 1
    assert shown["Replicated commands rejected"] == [{"primary": 0, "replica": 1}]
    assert shown["Replicated commands rejected, and internal errors"] == [
        {"primary replicated": 0, "replica replicated": 1},
        {"primary internal errors": 1, "replica internal errors": 0},
    ]
    assert 0.8 < shown["Filters' share of maxmemory"][0]["primary"] < 1
    # On the replica, "in the way" is not a filter.
    assert shown["Filters: replica minus primary"] == [{"replica": -1}]
