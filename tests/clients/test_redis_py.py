"""Tests that redis-py's own ``client.bf()`` and ``client.cf()`` get from the module what they get from RedisBloom.

Every method and keyword argument is called over RESP2 and RESP3, with legacy and with unified responses, one by one, in
transactions and with asyncio. The results must have the same types and values with both layouts, except for the figures
in which native filters differ. The commands themselves are tested in `tests/server`.
"""

import asyncio
import inspect
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
import redis.asyncio
from redis.commands.bf.commands import BFCommands, CFCommands
from redis.exceptions import ResponseError
from servers import HOST, OXBLOOM, REDISBLOOM, Server, running, server_version

FAMILIES = {"bf": BFCommands, "cf": CFCommands}
# An error rate so low that the items of a small test have no false positives.
TIGHT = 1e-9
# The fields of `info` that differ in native filters. With RESP3, `info` may be a dictionary.
NATIVE_FIGURES = {"size", b"Size"}
NATIVE_FIGURES_OF_CUCKOO = {
    *("filterNum", "deletedNum", b"Number of filters", b"Number of items deleted"),
}


class Call(NamedTuple):
    family: str
    method: str
    arguments: tuple
    options: dict

    def on(self, client: Any) -> Any:
        return getattr(getattr(client, self.family)(), self.method)(*self.arguments, **self.options)


def bf(method: str, *arguments: Any, **options: Any) -> Call:
    return Call("bf", method, arguments, options)


def cf(method: str, *arguments: Any, **options: Any) -> Call:
    return Call("cf", method, arguments, options)


def conversation(headers: dict[str, bytes]) -> list[Call]:
    """Returns calls for a server with a string, and with an empty filter `source` of each family, which has a header."""
    return [
        bf("create", "filter", TIGHT, 1000, expansion=4),
        bf("create", "filter", 0.5, 7),
        bf("info", "filter"),
        bf("add", "filter", "a"),
        bf("add", "filter", "a"),
        bf("madd", "filter", "a", b"\xff\0"),
        bf("insert", "filter", ["a", "b", "b"], capacity=7),
        bf("insert", "filter", ["a"], noCreate=True),
        bf("exists", "filter", b"\xff\0"),
        bf("exists", "filter", "absent"),
        bf("mexists", "filter", "a", "absent", "b"),
        bf("card", "filter"),
        bf("info", "filter"),
        bf("reserve", "full", TIGHT, 3, noScale=True),
        bf("madd", "full", "a", "b", "a", "c", "d"),
        bf("insert", "full", ["b", "d", "b"]),
        bf("add", "full", "d"),
        bf("info", "full"),
        bf("add", "default", "a"),
        bf("info", "default"),
        bf("insert", "growing", ["a"], capacity=50, error=0.001, expansion=3),
        bf("info", "growing"),
        bf("insert", "fixed", ["a"], noScale=True),
        bf("info", "fixed"),
        bf("scandump", "source bf", 0),
        bf("loadchunk", "copy bf", 1, headers["bf"]),
        bf("info", "copy bf"),
        bf("exists", "missing", "a"),
        bf("mexists", "missing", "a", "b"),
        bf("card", "missing"),
        bf("insert", "missing", ["a"], noCreate=True),
        bf("info", "missing"),
        bf("scandump", "missing", 0),
        bf("loadchunk", "missing", 2, b"data"),
        bf("create", "string", 0.01, 10),
        bf("add", "string", "a"),
        bf("madd", "string", "a", "b"),
        bf("insert", "string", ["a"]),
        bf("info", "string"),
        cf("create", "key", 1000, expansion=2, bucket_size=4, max_iterations=50),
        cf("reserve", "other", 1000),
        cf("add", "key", "apple"),
        cf("add", "key", "apple"),
        cf("addnx", "key", "apple"),
        cf("addnx", "key", "pear"),
        cf("insert", "key", ["plum", "plum"], capacity=1000),
        cf("insert", "created", ["plum"]),
        cf("insertnx", "key", ["plum", "fig"], nocreate=True),
        cf("insertnx", "created", ["plum", "fig"], capacity=1000),
        cf("exists", "key", "fig"),
        cf("exists", "absent", "fig"),
        cf("mexists", "key", "fig", "quince"),
        cf("count", "key", "apple"),
        cf("count", "key", "quince"),
        cf("delete", "key", "apple"),
        cf("delete", "key", "quince"),
        cf("info", "key"),
        cf("create", "small", 4, expansion=0),
        cf("insert", "small", ["apple"]),
        cf("scandump", "key", 0),
        cf("loadchunk", "absent", 2, b"data"),
        cf("delete", "absent", "apple"),
        cf("info", "absent"),
        cf("create", "key", 1000),
        cf("create", "new", 1),
        cf("insert", "absent", ["apple"], capacity=1000, nocreate=True),
    ]


def test_every_method_and_argument_of_the_client_is_tested_here():
    calls = conversation({"bf": b""})
    for family, commands in FAMILIES.items():
        methods = {name: method for name, method in vars(commands).items() if name[0] != "_"}
        # `reserve` is another name of `create`.
        offered = {
            (method.__name__, parameter.name)
            for method in methods.values()
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is None
        }
        ours = [each for each in calls if each.family == family]
        called = {(methods[each.method].__name__, name) for each in ours for name in each.options}
        assert called == offered
        assert {each.method for each in ours} == methods.keys()


# The ways to call methods. Each returns the replies to calls on a server.


def one_by_one(server: Server, options: dict, calls: list[Call]) -> list[Any]:
    def reply(call: Call) -> Any:
        try:
            return call.on(client)
        except ResponseError as error:
            return error

    with redis.Redis(HOST, server.port, **options) as client:
        return list(map(reply, calls))


def in_a_transaction(server: Server, options: dict, calls: list[Call]) -> list[Any]:
    with (
        redis.Redis(HOST, server.port, **options) as client,
        client.pipeline() as pipeline,
    ):
        for call in calls:
            call.on(pipeline)
        return pipeline.execute(raise_on_error=False)


def with_asyncio(server: Server, options: dict, calls: list[Call]) -> list[Any]:
    async def replies() -> list[Any]:
        async with redis.asyncio.Redis(host=HOST, port=server.port, **options) as client:
            found = []
            for call in calls:
                try:
                    found.append(await call.on(client))
                except ResponseError as error:
                    found.append(error)
            return found

    return asyncio.run(replies())


@pytest.fixture(scope="module")
def redisbloom() -> Iterator[Server]:
    with running(REDISBLOOM, program="redis-server") as server:
        yield server


@pytest.fixture(scope="module", params=["native", "classic"])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def running_server(layout: str) -> Iterator[Server]:
    layouts = ("bf-layout", layout, "cf-layout", layout)
    with running(None, "--loadmodule", str(Path(OXBLOOM).resolve()), *layouts) as server:
        yield server


# Servers before 7.0 have neither booleans nor maps for modules, whatever protocol the client uses.
each_mode = pytest.mark.parametrize(
    "options",
    [
        {"protocol": protocol, "legacy_responses": legacy}
        for protocol, legacy in product((2, 3, None), (True, False))
        if protocol == 2 or server_version() >= (7, 0)
    ],
    ids=str,
)


def shown(call: Call, reply: Any, layout: str) -> str:
    """Returns a reply with its type, without what may differ between the modules."""
    if call.method == "scandump" and isinstance(reply, (list, tuple)):
        return repr([type(part) for part in reply])
    if call.method == "info" and not isinstance(reply, Exception):
        fields = reply if isinstance(reply, dict) else vars(reply)
        differ = NATIVE_FIGURES | (NATIVE_FIGURES_OF_CUCKOO if call.family == "cf" else set())
        same = {name: fields[name] for name in fields if layout == "classic" or name not in differ}
        return f"{type(reply)} {list(fields)} {same}"
    return repr(reply)


@pytest.mark.parametrize(
    "way", [one_by_one, in_a_transaction, with_asyncio], ids=lambda way: way.__name__
)
@each_mode
def test_all_methods_return_what_they_return_with_redisbloom(
    server, redisbloom, layout, options, way
):
    replies = []
    for each in (server, redisbloom):
        client = each.client
        client.flushall()
        client.set("string", "value")
        client.execute_command("BF.RESERVE", "source bf", TIGHT, 1234)
        calls = conversation({"bf": client.execute_command("BF.SCANDUMP", "source bf", 0)[1]})
        replies.append(way(each, options, calls))
    for call, ours, theirs in zip(calls, *replies, strict=True):
        assert shown(call, ours, layout) == shown(call, theirs, layout), call


# A client that decodes replies also decodes the chunks of cuckoo filters, which breaks them.
@pytest.mark.parametrize(("family", "decode"), [("bf", False), ("bf", True), ("cf", False)])
@each_mode
def test_a_filter_is_copied_as_bytes_also_by_a_client_that_decodes(server, options, family, decode):
    with redis.Redis(HOST, server.port, decode_responses=decode, **options) as client:
        commands = getattr(client, family)()
        commands.insert("source", ["ключ"], capacity=10_000)
        position, data = commands.scandump("source", 0)
        while position:
            assert type(data) is bytes
            assert commands.loadchunk("copy", position, data) == ("OK" if decode else b"OK")
            position, data = commands.scandump("source", position)
        assert not data
        assert list(map(bool, commands.mexists("copy", "ключ", "absent"))) == [True, False]
