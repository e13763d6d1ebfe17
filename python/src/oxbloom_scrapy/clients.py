"""Clients as scrapy-redis makes them, but such as leave it to `patience` to send a command again."""

from __future__ import annotations

from typing import Any

from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy.settings import BaseSettings, Settings
from scrapy_redis import connection

from .compat import without_retries


def filter_client(settings: BaseSettings) -> Any:
    """A client for the filter: as `BLOOMFILTER_REDIS_PARAMS` says, or else the queue's settings."""
    own = settings.getdict("BLOOMFILTER_REDIS_PARAMS")
    return _client({}, own) if own else queue_client(settings)


def queue_client(settings: BaseSettings) -> Any:
    """A client as scrapy-redis's settings say, which does not retry by itself."""
    names = connection.SETTINGS_PARAMS_MAP
    return _client({name: settings.get(name) for name in names}, settings.getdict("REDIS_PARAMS"))


def _client(settings: dict[str, Any], params: dict[str, Any]) -> Any:
    params = {**params, "retry": Retry(NoBackoff(), 0)}
    client = connection.get_redis_from_settings(Settings({**settings, "REDIS_PARAMS": params}))
    return without_retries(client)
