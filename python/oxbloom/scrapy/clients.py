"""Creates clients like scrapy-redis, except that they do not retry. The module `retries` does that instead."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy.settings import BaseSettings, Settings
from scrapy_redis import connection

from .compat import without_retries
from .retries import Retries
from .settings import params

TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
PLACE = ("url", "host", "port")


def filter_client(settings: BaseSettings, retries: Retries) -> Any:
    """Creates a client for the filter from `BLOOMFILTER_REDIS_PARAMS`, or by default from the queue's settings."""
    own = params(settings, "BLOOMFILTER_REDIS_PARAMS")
    if own:
        return _client({}, own, "BLOOMFILTER_REDIS_PARAMS", retries)
    return queue_client(settings, retries)


def queue_client(settings: BaseSettings, retries: Retries) -> Any:
    """Creates a client from scrapy-redis's settings. It does not retry by itself."""
    names = connection.SETTINGS_PARAMS_MAP
    given = {name: settings.get(name) for name in names if settings.get(name)}
    more = params(settings, "REDIS_PARAMS")
    places = [name for name in given if names[name] in PLACE]
    setting = places[0] if places else "REDIS_PARAMS" if {*PLACE} & {*more} else "REDIS_URL"
    return _client(given, more, setting, retries)


def _client(
    settings: dict[str, Any], params: dict[str, Any], setting: str, retries: Retries
) -> Any:
    """Creates a client, and sets the server's name in `retries`. A client for a cluster connects at once."""
    names = connection.SETTINGS_PARAMS_MAP
    place = {**params, **{names[name]: value for name, value in settings.items()}}
    retries.server = f"the server {_address(place)} ({setting})"
    params = {**params, "retry": Retry(NoBackoff(), 0)}
    for name in TIMEOUTS:
        params[name] = min(params.get(name) or retries.attempt, retries.attempt)
    settings = {**settings, "REDIS_PARAMS": params}
    client = retries.until_answered(lambda: connection.get_redis_from_settings(Settings(settings)))
    return without_retries(client.value)


def _address(place: dict[str, Any]) -> str:
    """Returns the address of a server, without the password that a URL may have."""
    url = urlsplit(place.get("url") or "")
    if url.scheme == "unix":
        return url.path
    host = url.hostname or place.get("host") or "localhost"
    return f"{host}:{url.port or place.get('port') or 6379}"
