"""Puts filters of all kinds under load: threads write to them, and checks compare them with the replies."""

import math
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AskError, ClusterDownError, RedisClusterException
from redis.retry import Retry
from servers import wait_until

BATCH = 40  # items that a writer adds with one command
WAIT_TIMEOUT = 50  # milliseconds
OWN_FILTERS = 8  # filters that each writer creates by adding to them
LOOKUP_BATCH = 1000  # items that are looked up with one command
ABSENT = 10_000  # items that are never added, for each filter

# With this, redis-py repeats only commands that a server redirected without running them. Repeating a removal that ran
# would remove too much.
ONCE = Retry(NoBackoff(), 0)

FAILURES = (redis.RedisError, RedisClusterException)

ADD_BY_SCRIPT = "return redis.call('BF.MADD', KEYS[1], unpack(ARGV))"


def is_change_of_roles(error: Exception) -> bool:
    """Returns true if a command failed because its server is not the primary or cannot be reached."""
    kinds = (
        redis.ConnectionError,
        redis.TimeoutError,
        redis.ReadOnlyError,
        AskError,
        ClusterDownError,
    )
    return isinstance(error, (*kinds, RedisClusterException)) or bool(
        re.search("READONLY|UNBLOCKED|read only replica|WAIT cannot", str(error))
    )


class Kind(NamedTuple):
    rate: float
    capacity: int
    options: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        return "COUNTING" in self.options


BY_DEFAULT = Kind(0.01, 100)
KINDS = {
    "native": Kind(0.01, 1000),
    "linear": Kind(0.001, 2000, ("EXPANSION", "1")),
    "fixed": Kind(0.01, 500_000, ("NONSCALING",)),
    "classic": Kind(0.01, 1000, ("LAYOUT", "classic")),
    "counting": Kind(0.01, 1000, ("COUNTING",)),
    # Its window is longer than the tests take.
    "windowed": Kind(0.01, 1000, ("WINDOW", "604800", "REFRESH")),
}


def most_false_positives(trials: int, rate: float) -> float:
    """Returns a bound that a number with the binomial distribution B(trials, rate) exceeds with a probability below
    2e-14.

    It is Bernstein's inequality at eight standard deviations, which filter/tests/promises/rates.rs explains.
    """
    z = 8
    variance = trials * rate * (1 - rate)
    return trials * rate + z**2 / 6 + math.sqrt(z**4 / 36 + z**2 * variance)


def reserve(client: Any, prefix: str, kinds: dict[str, Kind] = KINDS) -> dict[str, Kind]:
    """Creates filters of all kinds. Returns them by key."""
    keys = {f"{prefix}{name}": kind for name, kind in kinds.items()}
    for key, (rate, capacity, options) in keys.items():
        client.execute_command("BF.RESERVE", key, rate, capacity, *options)
    return keys


@dataclass
class Occurrences:
    """Bounds on how often an item is in a filter."""

    least: int = 0
    most: int = 0


class Writer(threading.Thread):
    """Adds its own items to filters, and removes some from filters that support it, until it is told to stop.

    A write is certain once it is acknowledged; with `replicas`, once that many replicas have it.
    """

    def __init__(self, name: str, client: Any, keys: dict[str, Kind], replicas: int = 0) -> None:
        super().__init__()
        self.label, self.client, self.replicas = name, client, replicas
        self.shared = keys
        self.keys = keys | {
            f"{next(iter(keys))} of {name} {n}": BY_DEFAULT for n in range(OWN_FILTERS)
        }
        self.items: dict[str, dict[str, Occurrences]] = defaultdict(
            lambda: defaultdict(Occurrences)
        )
        self.rounds, self.errors = 0, list[Exception]()
        self.denied: list[str] = []  # items that were certainly present, but could not be removed
        self.stopped = threading.Event()

    def run(self) -> None:
        ways = cycle(["BF.MADD", "BF.INSERT", "EVAL", "BF.ADD"])
        numbers = count()
        while not self.stopped.is_set():
            errors = len(self.errors)
            # In every other round, the writer creates one more filter of its own.
            keys = islice(self.keys.items(), len(self.shared) + self.rounds // 2)
            for (key, kind), way in zip(keys, ways, strict=False):
                items = [f"{self.label} {next(numbers)}" for _ in range(BATCH)]
                try:
                    self._add(key, way, items)
                    if kind.counts:
                        self._add(key, "BF.MADD", items[::2])
                        self._remove(key, items[::3])
                        self._remove(key, items[::4])
                except FAILURES as error:
                    if not is_change_of_roles(error):
                        raise
                    self.errors.append(error)
                    self._reload_slots()
            self.rounds += errors == len(self.errors)

    def _add(self, key: str, way: str, items: list[str]) -> None:
        known = [self.items[key][item] for item in items]
        if way == "BF.ADD":
            items, known = items[:1], known[:1]
        for each in known:
            each.most += 1
        commands = {
            "BF.ADD": ("BF.ADD", key, *items),
            "BF.MADD": ("BF.MADD", key, *items),
            "BF.INSERT": ("BF.INSERT", key, "ITEMS", *items),
            "EVAL": ("EVAL", ADD_BY_SCRIPT, 1, key, *items),
        }
        _, is_certain = self._send(key, *commands[way])
        if is_certain:
            for each in known:
                each.least += 1

    def _remove(self, key: str, items: list[str]) -> None:
        """Removes items that are certainly present."""
        items = [item for item in items if self.items[key][item].least > 0]
        known = [self.items[key][item] for item in items]
        for each in known:
            each.least -= 1
        if items:
            replies, is_certain = self._send(key, "BF.MDEL", key, *items)
            self.denied += [item for item, there in zip(items, replies, strict=True) if not there]
            for each in known if is_certain else []:
                each.most -= 1

    def _send(self, key: str, *command: Any) -> tuple[Any, bool]:
        """Sends a command. Returns its reply, and true if its effect is certain to last."""
        if not self.replicas:
            return self.client.execute_command(*command), True
        # Both commands use one connection, since WAIT waits for the writes of its own connection.
        with self._connection(key).pipeline(transaction=False) as connection:
            connection.execute_command(*command).execute_command(
                "WAIT", self.replicas, WAIT_TIMEOUT
            )
            reply, reached = connection.execute()
        return reply, reached >= self.replicas

    def _connection(self, key: str) -> redis.Redis:
        if not isinstance(self.client, redis.RedisCluster):
            return self.client
        return self.client.get_redis_connection(self.client.get_node_from_key(key))

    def _reload_slots(self) -> None:
        """Reads again which server serves which slot."""
        time.sleep(0.01)
        if isinstance(self.client, redis.RedisCluster):
            with suppress(*FAILURES):
                self.client.nodes_manager.initialize()


@contextmanager
def writing(*writers: Writer) -> Iterator[None]:
    """Runs writers in the `with` block."""
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.join()


def go_on(*writers: Writer, rounds: int = 2) -> None:
    """Waits until each writer has completed this many more rounds without an error."""
    goals = [(writer, writer.rounds + rounds) for writer in writers]
    wait_until(lambda: all(writer.rounds >= goal for writer, goal in goals))


def ask(client: Any, command: str, key: str, items: Iterable[str]) -> list[int]:
    items = list(items)
    starts = range(0, len(items), LOOKUP_BATCH)
    replies = (
        client.execute_command(command, key, *items[start : start + LOOKUP_BATCH])
        for start in starts
    )
    return [int(each) for reply in replies for each in reply]


def keys_of(*writers: Writer) -> dict[str, Kind]:
    """Returns the filters to which the writers have written."""
    keys = {key: kind for writer in writers for key, kind in writer.keys.items()}
    return {key: keys[key] for key in keys if any(key in writer.items for writer in writers)}


def check(client: Any, *writers: Writer) -> None:
    """Checks that filters have all items that are certainly present, and few false positives."""
    assert [item for writer in writers for item in writer.denied] == []
    for key, kind in keys_of(*writers).items():
        known = {item: each for writer in writers for item, each in writer.items[key].items()}
        present = [item for item, occurrences in known.items() if occurrences.least > 0]
        gone = [item for item, occurrences in known.items() if occurrences.most == 0]
        absent = gone + [f"absent {number}" for number in range(ABSENT)]
        assert present or key not in writers[0].shared, key
        answers = ask(client, "BF.MEXISTS", key, present)
        assert [item for item, answer in zip(present, answers, strict=True) if not answer] == []
        false_positives = sum(ask(client, "BF.MEXISTS", key, absent))
        assert false_positives <= most_false_positives(len(absent), kind.rate), key
        if kind.counts:
            counts = list(zip(present, ask(client, "BF.MCOUNT", key, present), strict=True))
            assert [item for item, counted in counts if counted < known[item].least] == []
            too_many = sum(counted > known[item].most for item, counted in counts)
            assert too_many <= most_false_positives(len(counts), kind.rate), key


def check_alike(one: redis.Redis, other: redis.Redis, keys: Iterable[str]) -> None:
    """Checks that two servers have the same filters, bit for bit."""
    absent = [f"absent {number}" for number in range(ABSENT)]
    for key in keys:
        assert one.dump(key) == other.dump(key) is not None, key
        answers = [ask(client, "BF.MEXISTS", key, absent) for client in (one, other)]
        assert answers[0] == answers[1], key
