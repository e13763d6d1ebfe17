"""Tests that redis-py's own ``client.cf()`` gets from the module what it gets from RedisBloom.

Every method is called over RESP2 and RESP3 on both modules. The results must have the same types and values, with both
layouts, except for the figures in which native filters differ.
"""

from collections.abc import Iterator

import pytest
import redis
from redis.commands.bf.commands import CFCommands
from servers import HOST, REDISBLOOM, Server, running

# The attributes of `info` that differ in native filters: see docs/cuckoo.md. With RESP3, `info` is a dictionary.
NATIVE_FIGURES = {"size", "filterNum", "deletedNum"}
NATIVE_FIGURES |= {b"Size", b"Number of filters", b"Number of items deleted"}


@pytest.fixture(scope="module")
def redisbloom() -> Iterator[Server]:
    with running(REDISBLOOM) as server:
        yield server


@pytest.fixture(params=["native", "classic"])
def layout(request: pytest.FixtureRequest, server: Server) -> Iterator[str]:
    server.client.config_set("bf.cf-layout", request.param)
    yield request.param
    server.client.config_set("bf.cf-layout", "native")


def test_the_client_offers_no_method_that_is_not_tested_here():
    offered = {name for name in vars(CFCommands) if not name.startswith("_")}
    assert offered == {
        *("create", "reserve", "add", "addnx", "insert", "insertnx", "exists", "mexists"),
        *("delete", "count", "scandump", "loadchunk", "info"),
    }


def failure(cf: CFCommands, method: str, *arguments: object) -> str:
    with pytest.raises(redis.ResponseError) as error:
        getattr(cf, method)(*arguments)
    return str(error.value)


def results(client: redis.Redis) -> list:
    """Calls each method on an empty server. Returns the results, and the text of errors."""
    client.flushall()
    cf = client.cf()
    made = [
        cf.create("key", 1000, expansion=2, bucket_size=4, max_iterations=50),
        cf.reserve("other", 1000),
        cf.add("key", "apple"),
        cf.add("key", "apple"),
        cf.addnx("key", "apple"),
        cf.addnx("key", "pear"),
        cf.insert("key", ["plum", "plum"], capacity=1000),
        cf.insert("created", ["plum"]),
        cf.insertnx("key", ["plum", "fig"], nocreate=True),
        cf.exists("key", "fig"),
        cf.exists("missing", "fig"),
        cf.mexists("key", "fig", "quince"),
        cf.count("key", "apple"),
        cf.count("key", "quince"),
        cf.delete("key", "apple"),
        cf.delete("key", "quince"),
        cf.create("full", 4, expansion=0),
        cf.insert("full", ["apple"]),
        failure(cf, "delete", "missing", "apple"),
        failure(cf, "info", "missing"),
        failure(cf, "create", "key", 1000),
        failure(cf, "create", "new", 1),
        failure(cf, "insert", "missing", ["apple"], 1000, True),
    ]
    iterator = 0
    for _ in range(100):
        iterator, data = cf.scandump("key", iterator)
        if iterator == 0:
            break
        made.append(cf.loadchunk("copy", iterator, data))
    made += [iterator, data, cf.mexists("copy", "apple", "pear", "plum", "fig", "quince")]
    return made


@pytest.mark.parametrize("protocol", [2, 3])
def test_all_methods_return_what_they_return_with_redisbloom(server, redisbloom, layout, protocol):
    with (
        redis.Redis(HOST, server.port, protocol=protocol) as ours,
        redis.Redis(HOST, redisbloom.port, protocol=protocol) as theirs,
    ):
        assert repr(results(ours)) == repr(results(theirs))
        infos = [client.cf().info("key") for client in (ours, theirs)]
        infos = [info if isinstance(info, dict) else vars(info) for info in infos]
        assert infos[0].keys() == infos[1].keys()
        differing = {name for name, value in infos[0].items() if infos[1][name] != value}
        assert differing <= (NATIVE_FIGURES if layout == "native" else set())
