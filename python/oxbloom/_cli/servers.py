"""Connects to servers and clusters. Importing this needs redis-py."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from oxbloom._cli.data_types import DATA_TYPES
from oxbloom._cli.errors import CommandError
from oxbloom._cli.text import shown
from oxbloom._extras import require

require("redis", "redis")
# isort: split
from redis import Redis, RedisError, ResponseError, exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from oxbloom._oxbloom import Chunk
from oxbloom._sharded.commands import ItemCommands, Operation
from oxbloom._sharded.filter import run

PASSWORD_VARIABLE = "REDISCLI_AUTH"  # that of redis-cli
UNREACHABLE = (RedisError, exceptions.RedisClusterException)

Rejection = ResponseError  # an error as the reply to a command
Client = Any  # a Redis or a RedisCluster, whose types differ between versions of redis-py


def connect(url: str, command: str, *, name: str = "server", password: str | None = None) -> Client:
    """Returns a client of a server or a cluster. Raises CommandError if it lacks `command`.

    name: the name of the server in messages. password: is used if the URL has none.
    """
    settings: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": 60,
        "socket_connect_timeout": 10,
        "retry": Retry(NoBackoff(), 0),
    }
    if password:
        settings["password"] = password
    try:
        node: Client = Redis.from_url(url, **settings)
        client = RedisCluster.from_url(url, **settings) if is_cluster(node) else node
    except (*UNREACHABLE, ValueError, TypeError) as error:
        raise CommandError(f"cannot connect to the {name}: {error}") from None
    # Servers check the number of arguments before permissions for keys.
    answer = rejection(node, command)
    if "unknown command" in answer.lower():
        family = command.partition(".")[0]
        if "unknown command" in rejection(node, f"{family}.ADD").lower():
            raise CommandError(
                f"the {name} has no {family}.* commands: it runs without the oxbloom module (`oxbloom module-path` prints "
                "the path for loadmodule)"
            )
        raise CommandError(
            f"the {name} has no {command}: its {family}.* commands are those of another module, or of an older oxbloom"
        )
    if "wrong number of arguments" not in answer.lower():
        raise CommandError(f"the {name} rejects {command}: {answer}")
    if client is not node:
        node.close()
    return client


def rejection(node: Client, command: str) -> str:
    """Returns the error of a command without arguments."""
    try:
        return f"the reply {node.execute_command(command)!r}"
    except RedisError as error:
        return str(error)


def connect_for_filter(url: str, command: str) -> Client:
    """Returns a client for --server, with the password in the environment."""
    return connect(url, command, password=os.environ.get(PASSWORD_VARIABLE))


def is_cluster(client: Client) -> bool:
    try:
        return bool(client.execute_command("INFO", "cluster").get("cluster_enabled"))
    except exceptions.NoPermissionError:
        return False


REPLACED = {"none", *(each.name for each in DATA_TYPES if each.commands == "BF.")}
"""The types of keys that hold Bloom filters, and of keys that do not exist."""

CUCKOO = {each.name for each in DATA_TYPES if each.commands == "CF."}
"""The types of keys that hold cuckoo filters."""


def check_replaced(client: Client, key: bytes) -> None:
    """Raises CommandError if a key holds something other than a filter."""
    kind = client.execute_command("TYPE", key).decode()
    if kind not in REPLACED:
        raise CommandError(
            f"the key {shown(key)} holds a {kind}: --replace overwrites filters only, so delete the key first"
        )


def check_exists(client: Client, key: bytes, *, otherwise: str = "") -> None:
    """Raises CommandError if a key does not exist. `otherwise` ends its text."""
    if not client.execute_command("EXISTS", key):
        raise CommandError(f"the server has no key {shown(key)}{otherwise}")


class Lines:
    """An operation on the lines of blocks, with the filter in a key."""

    def __init__(self, client: Client, key: bytes, operation: Operation) -> None:
        self._client = client
        self._key = key
        self._operation = operation
        self._commands = ItemCommands([key])

    def send(self, block: Chunk) -> bytes:
        """Returns the server's answer to each line: a byte that is 0 or 1."""
        with errors(self._client, self._key):
            flags, error = run(self._client, self._commands.answers(self._operation, block))
            if error:
                raise error
            return flags


@contextmanager
def errors(client: Client, *keys: bytes) -> Iterator[None]:
    """Converts errors of servers to CommandError. `keys` are those that should hold Bloom filters."""
    try:
        yield
    except UNREACHABLE as error:
        if "WRONGTYPE" in str(error):
            raise CommandError(no_bloom_filter(client, keys)) from None
        raise CommandError(f"the server failed: {error}") from None


def no_bloom_filter(client: Client, keys: Sequence[bytes]) -> str:
    """Says which of the keys holds something else, as far as the user may read their types."""
    for key in keys:
        kind = "none"
        with suppress(*UNREACHABLE):
            kind = client.execute_command("TYPE", key).decode()
        if kind in CUCKOO:
            return f"the key {shown(key)} holds a cuckoo filter, which only the commands CF.* can use (CF.INFO describes it)"
        if kind not in REPLACED:
            return f"the key {shown(key)} holds a {kind}, not a Bloom filter"
    return "the key holds something else, not a Bloom filter"
