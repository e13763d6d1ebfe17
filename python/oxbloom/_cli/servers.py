"""Connections to servers and clusters, and filters in their keys. Importing this needs redis-py."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oxbloom._cli.errors import CommandError
from oxbloom._extras import require

require("redis", "redis")
# isort: split
from redis import Redis, RedisError, ResponseError, exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

PASSWORD_VARIABLE = "REDISCLI_AUTH"  # that of redis-cli
ANY_KEY = b":oxbloom"
UNREACHABLE = (RedisError, exceptions.RedisClusterException)

Rejection = ResponseError  # the reply to a command that a server rejects
Client = Any  # a Redis or a RedisCluster, whose types differ between versions of redis-py


def connect(url: str, command: str, *, name: str = "server", password: str | None = None) -> Client:
    """Returns a client of a server or a cluster, if the server has a command.

    name: what messages call the server. password: the one that counts if the URL has none.
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
        client: Client = Redis.from_url(url, **settings)
        client.ping()
        if is_cluster(client):
            client.close()
            client = RedisCluster.from_url(url, **settings)
    except (*UNREACHABLE, ValueError, TypeError) as error:
        raise CommandError(f"cannot connect to the {name}: {error}") from None
    try:
        client.execute_command(command, ANY_KEY)
    except RedisError as error:  # that an argument is missing, or that there is no such key
        expected = ("wrong number of arguments", "not found")
        if not any(text in str(error).lower() for text in expected):
            raise CommandError(f"the {name} rejects {command}: {error}") from None
    return client


def connect_for_filter(url: str, command: str) -> Client:
    """Returns a client for the key that --server and the filter name."""
    return connect(url, command, password=os.environ.get(PASSWORD_VARIABLE))


def is_cluster(client: Client) -> bool:
    try:
        return bool(client.execute_command("INFO", "cluster").get("cluster_enabled"))
    except ResponseError:  # not permitted
        return False


@contextmanager
def errors() -> Iterator[None]:
    """Turns errors of servers into those of the command."""
    try:
        yield
    except UNREACHABLE as error:
        raise CommandError(f"the server failed: {error}") from None
