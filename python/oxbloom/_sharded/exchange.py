"""Sends commands through a client of redis-py or valkey-py, and returns the replies as the server sent them.

This follows three rules:

* **No callback sees our replies.** redis-py passes each reply to the response callback of its command, if there is one.
  Programs can register callbacks, and the first call of a client's `bf()` registers one for BF.INFO, which raises
  `KeyError` for a single field. redis-py splits a command's name at spaces (`CONFIG GET`), but looks up callbacks by
  the whole name. So we pass `BF.INFO `, with a space at the end, which has no callback. redis-py removes the space
  before it sends the command.
* **No reply is decoded**, also by clients with `decode_responses`: bits are no text.
* **No connection with unread replies goes back to the pool**, whatever is raised: the next command would take them for
  its own. redis-py closes a connection if reading from it raises, but not if something is raised between two replies,
  such as `KeyboardInterrupt`. So with a single server, we lend a connection to a pipeline, and close it after every
  exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import redis
    import redis.asyncio
    import redis.asyncio.cluster
    import redis.cluster
    import valkey
    import valkey.asyncio
    import valkey.asyncio.cluster
    import valkey.cluster

    Client = redis.Redis | redis.cluster.RedisCluster | valkey.Valkey | valkey.cluster.ValkeyCluster
    AsyncClient = (
        redis.asyncio.Redis
        | redis.asyncio.cluster.RedisCluster
        | valkey.asyncio.Valkey
        | valkey.asyncio.cluster.ValkeyCluster
    )

Command = tuple[str | bytes | int | float | memoryview, ...]
LIBRARIES = ("redis", "valkey")


def prefixed(prefix: str, command: Command) -> Command:
    """Returns a command with the name that it has if the module was loaded with a prefix. Other commands stay as they
    are."""
    name = command[0]
    if isinstance(name, str) and name.startswith(("BF.", "CF.")):
        return (prefix + name, *command[1:])
    return command


def exchange(client: Any, commands: Sequence[Command]) -> list[Any]:
    """Sends commands together. Returns the replies. Those that are errors are exceptions."""
    if _is_cluster(client):
        return _exchange_with_cluster(client, commands)
    pipeline = _filled(client, commands)
    loan = pipeline.connection_pool = _Loan(client.connection_pool)
    try:
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        return replies
    except BaseException:
        if loan.connection:
            loan.connection.disconnect()
        raise
    finally:
        if loan.connection:
            loan.pool.release(loan.connection)


async def exchange_async(client: Any, commands: Sequence[Command]) -> list[Any]:
    """`exchange` for clients of `redis.asyncio` and `valkey.asyncio`."""
    if _is_cluster(client):
        return await _exchange_with_cluster_async(client, commands)
    pipeline = _filled(client, commands)
    loan = pipeline.connection_pool = _AsyncLoan(client.connection_pool)
    try:
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies
    except BaseException:
        if loan.connection:
            await loan.connection.disconnect(nowait=True)
        raise
    finally:
        if loan.connection:
            # A release that is cancelled halfway would lose the connection.
            await asyncio.shield(loan.pool.release(loan.connection))


def _is_cluster(client: object) -> bool:
    return hasattr(client, "nodes_manager")


# A cluster's pipeline sends a command again if its reply was lost, even for a client without retries. So a single
# command is sent without a pipeline. The client raises its error reply, and also errors of its own, such as that the
# cluster does not have a command. These take the place of the replies.


def _exchange_with_cluster(client: Any, commands: Sequence[Command]) -> list[Any]:
    try:
        if len(commands) == 1:
            return [client.execute_command(*_raw(commands[0]), **RAW)]
        replies: list[Any] = _filled(client, commands).execute(raise_on_error=False)
        return replies
    except BaseException as error:
        if _is_of_client(error):
            return [error] * len(commands)
        # An interrupt: the client may have returned a connection with unread replies to its pool.
        for node in client.get_nodes():
            if node.redis_connection:
                node.redis_connection.connection_pool.disconnect(inuse_connections=False)
        raise


async def _exchange_with_cluster_async(client: Any, commands: Sequence[Command]) -> list[Any]:
    # asyncio cancels a task only where it waits, here for a reply. The client then closes the connection.
    try:
        if len(commands) == 1:
            return [await client.execute_command(*_raw(commands[0]), **RAW)]
        replies: list[Any] = await _filled(client, commands).execute(raise_on_error=False)
        # The pipeline would only send commands again that were lost if it raised the first error.
        for _ in range(_retries(client)):
            lost = [
                n for n, reply in enumerate(replies) if isinstance(reply, client.ERRORS_ALLOW_RETRY)
            ]
            if not lost:
                break
            await client.aclose()
            await asyncio.sleep(0.25)
            again = _filled(client, [commands[n] for n in lost])
            for n, reply in zip(lost, await again.execute(raise_on_error=False), strict=True):
                replies[n] = reply
        return replies
    except Exception as error:
        if _is_of_client(error):
            return [error] * len(commands)
        raise


def _retries(client: Any) -> int:
    """Returns the number of times that a client for clusters may send a command again."""
    retry: Any = getattr(client, "retry", None)
    if hasattr(retry, "get_retries"):  # from redis-py 6 on
        return int(retry.get_retries())
    return int(client.cluster_error_retry_attempts) - 1


def _is_of_client(error: BaseException) -> bool:
    """Returns true for an error of the client's library, which has then read all replies or closed the connection."""
    return type(error).__module__.partition(".")[0] in LIBRARIES


def _filled(client: Any, commands: Sequence[Command]) -> Any:
    """Returns a pipeline with the commands."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*_raw(command), **RAW)
    return pipeline


RAW = {"NEVER_DECODE": True}


def _raw(command: Command) -> Command:
    """Returns a command whose reply no callback sees."""
    return (str(command[0]) + " ", *command[1:])


class _Loan:
    """Lends a pipeline one connection of a pool. The pipeline cannot return it, so we can close it first."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.connection: Any = None

    def get_connection(self, *arguments: Any) -> Any:
        """Takes a connection from the pool. Older versions of redis-py pass arguments."""
        self.connection = self.pool.get_connection(*arguments)
        return self.connection

    def release(self, connection: object) -> Any:
        pass


class _AsyncLoan(_Loan):
    async def get_connection(self, *arguments: Any) -> Any:
        self.connection = await self.pool.get_connection(*arguments)
        return self.connection

    async def release(self, connection: object) -> None:
        pass
