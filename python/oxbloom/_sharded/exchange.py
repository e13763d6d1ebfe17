"""Sends commands through a client of redis-py, and returns the replies as the server sent them.

This follows two rules:

* **No callback sees our replies.** redis-py passes each reply to the response callback of its command, if there is one.
  Programs can register callbacks, and the first call of a client's `bf()` registers one for BF.INFO, which raises
  `KeyError` for a single field. redis-py splits a command's name at spaces (`CONFIG GET`), but looks up callbacks by
  the whole name. So we pass `BF.INFO `, with a space at the end, which has no callback. redis-py removes the space
  before it sends the command.
* **No connection with unread replies goes back to the pool**, whatever is raised: the next command would take them for
  its own. redis-py closes a connection if reading from it raises, but not if something is raised between two replies,
  such as `KeyboardInterrupt`. So with a single server, we lend a connection to a pipeline, and close it after every
  exception except an error reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster

Command = tuple[str | bytes | int | float, ...]
Client = redis.Redis | redis.cluster.RedisCluster
AsyncClient = redis.asyncio.Redis | redis.asyncio.cluster.RedisCluster


def exchange(client: Client, commands: Sequence[Command], raise_on_error: bool) -> list[Any]:
    """Sends commands together. Returns the replies, or raises the first error reply if `raise_on_error`."""
    if isinstance(client, redis.cluster.RedisCluster):
        return _exchange_with_cluster(client, commands, raise_on_error)
    pipeline = _filled(client, commands)
    loan = pipeline.connection_pool = _Loan(client.connection_pool)
    try:
        replies: list[Any] = pipeline.execute(raise_on_error)
        return replies
    except redis.ResponseError:
        raise  # redis-py has read all replies
    except BaseException:
        if loan.connection:
            loan.connection.disconnect()
        raise
    finally:
        if loan.connection:
            loan.pool.release(loan.connection)


async def exchange_async(
    client: AsyncClient, commands: Sequence[Command], raise_on_error: bool
) -> list[Any]:
    """`exchange` for clients of `redis.asyncio`."""
    if isinstance(client, redis.asyncio.cluster.RedisCluster):
        return await _exchange_with_cluster_async(client, commands, raise_on_error)
    pipeline = _filled(client, commands)
    loan = pipeline.connection_pool = _AsyncLoan(client.connection_pool)
    try:
        replies: list[Any] = await pipeline.execute(raise_on_error)
        return replies
    except redis.ResponseError:
        raise
    except BaseException:
        if loan.connection:
            await loan.connection.disconnect(nowait=True)
        raise
    finally:
        if loan.connection:
            # A release that is cancelled halfway would lose the connection.
            await asyncio.shield(loan.pool.release(loan.connection))


# A cluster's pipeline sends a command again if its reply was lost, even for a client without retries. So a single
# command is sent without a pipeline.


def _exchange_with_cluster(
    client: Any, commands: Sequence[Command], raise_on_error: bool
) -> list[Any]:
    try:
        if len(commands) == 1 and raise_on_error:
            return [client.execute_command(*_without_callback(commands[0]))]
        replies: list[Any] = _filled(client, commands).execute(raise_on_error)
        return replies
    except redis.RedisError:
        raise  # redis-py has closed the connection, or read all replies
    except BaseException:
        # An interrupt: redis-py may have returned a connection with unread replies to its pool.
        for node in client.get_nodes():
            if node.redis_connection:
                node.redis_connection.connection_pool.disconnect(inuse_connections=False)
        raise


async def _exchange_with_cluster_async(
    client: Any, commands: Sequence[Command], raise_on_error: bool
) -> list[Any]:
    # asyncio cancels a task only where it waits, here for a reply. redis-py then closes the connection.
    if len(commands) == 1 and raise_on_error:
        return [await client.execute_command(*_without_callback(commands[0]))]
    replies: list[Any] = await _filled(client, commands).execute(raise_on_error)
    return replies


def _filled(client: Any, commands: Sequence[Command]) -> Any:
    """Returns a pipeline with the commands."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*_without_callback(command))
    return pipeline


def _without_callback(command: Command) -> Command:
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
