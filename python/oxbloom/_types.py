"""The types of arguments and results."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Protocol, TypedDict

Progress = Callable[[int, int], object]
"""A function that is called with the bytes that are done and the total."""

Kind = Literal[
    "native", "counting", "native_cuckoo", "windowed", "classic", "classic_cuckoo", "valkey"
]


class Server(Protocol):
    """A client of a server or a cluster, such as those of redis-py and valkey-py."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class Part(TypedDict):
    """A part of a filter: its blocks, its table, or a layer of a classic filter."""

    bytes: int
    blocks_per_item: int | None
    probes: int
    capacity: int
    count: int


class Plan(TypedDict):
    """The predicted memory and false-positive rate of a filter."""

    memory: int
    false_positive_rate: float
    estimated: bool
    probes: int
    blocks: int | None
    block_bytes: int | None
    blocks_per_item: int | None


class Info(TypedDict):
    """The result of `BloomFilter.info`."""

    kind: Kind
    capacity: int
    count: int
    estimated: bool | None
    error_rate: float
    false_positive_rate: float
    fill: float
    memory: int
    growing: int | None
    seed: int | None
    window: timedelta | None
    slices: int | None
    refresh: bool
    rolling: bool
    parts: list[Part]
