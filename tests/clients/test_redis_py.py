"""Tests that redis-py's own ``client.bf()`` works with the module as it does with RedisBloom.

Every method and keyword argument is called over RESP2 and RESP3, with legacy and with unified responses, one by one, in
pipelines and with asyncio, and must return the type that the client documents for that mode. The commands themselves
are tested in `tests/server`, and compared with RedisBloom in `tests/oracle`.
"""

import asyncio
import inspect
from typing import Any, NamedTuple

import pytest
import redis
import redis.asyncio
from redis.commands.bf import BFInfo
from redis.commands.bf.commands import BFCommands
from redis.exceptions import ResponseError
from servers import HOST, Server, server_version

WRONG_TYPE = ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
NOT_FOUND = ResponseError("not found")
FULL = ResponseError("non scaling filter is full")

# An error rate so low that the items of a small test have no false positives.
TIGHT = 1e-18

# Servers before 7.0 have neither booleans nor maps for modules, whatever protocol the client uses.
SPEAKS_RESP3 = server_version() >= (7, 0)


class Mode(NamedTuple):
    """The protocol of a client, and the form of its responses."""

    protocol: int | None
    legacy: bool

    @property
    def options(self) -> dict:
        return {"protocol": self.protocol, "legacy_responses": self.legacy}

    def flag(self, value: int) -> int:
        """Returns a flag for an item: an int in RESP2, a bool in RESP3."""
        return value if self.protocol == 2 or not SPEAKS_RESP3 else bool(value)

    def flags(self, *values: int) -> list[int]:
        return [self.flag(value) for value in values]

    @property
    def info(self) -> type:
        if self == (3, True):
            return dict if SPEAKS_RESP3 else list
        return BFInfo


MODES = [Mode(protocol, legacy) for protocol in (2, 3, None) for legacy in (True, False)]


def mode_name(mode: Mode) -> str:
    return f"RESP{mode.protocol or '-default'}-{'legacy' if mode.legacy else 'unified'}"


each_mode = pytest.mark.parametrize("mode", MODES, ids=mode_name)


class Info(NamedTuple):
    """The reply to BF.INFO, without the size."""

    capacity: int
    filters: int
    items: int
    expansion: int | None


INFO_KEYS = [
    b"Capacity",
    b"Size",
    b"Number of filters",
    b"Number of items inserted",
    b"Expansion rate",
]


def read_info(reply: BFInfo | dict | list) -> Info:
    if isinstance(reply, BFInfo):
        names = ["capacity", "size", "filterNum", "insertedNum", "expansionRate"]
        capacity, size, *others = (reply[name] for name in names)
    else:
        fields = reply if isinstance(reply, dict) else dict(zip(*[iter(reply)] * 2, strict=True))
        assert list(fields) == INFO_KEYS
        capacity, size, *others = fields.values()
    assert type(size) is int
    assert size > 0
    return Info(capacity, *others)


def typed(reply: Any) -> Any:
    """Returns a reply together with its types, since 1 == True in Python."""
    if isinstance(reply, (list, tuple)):
        return [typed(element) for element in reply]
    if isinstance(reply, ResponseError):
        return ResponseError, str(reply)
    return type(reply), reply


class Call(NamedTuple):
    """A call of a method, and what it must return or raise."""

    method: str
    arguments: tuple
    options: dict
    returns: Any

    def on(self, bf: Any) -> Any:
        return getattr(bf, self.method)(*self.arguments, **self.options)

    def check(self, reply: Any, mode: Mode) -> None:
        if isinstance(self.returns, Info):
            assert type(reply) is mode.info, self
            reply = read_info(reply)
        elif self.returns == [int, bytes]:
            reply = [type(part) for part in reply]
        assert typed(reply) == typed(self.returns), self


def call(method: str, *arguments: Any, returns: Any, **options: Any) -> Call:
    return Call(method, arguments, options, returns)


def conversation(mode: Mode, header: bytes) -> list[Call]:
    """Returns calls for a server with an empty filter `source`, which has this header, and a string."""
    flag, flags = mode.flag, mode.flags
    binary = b"\xff\0"
    return [
        call("create", "filter", TIGHT, 1000, expansion=4, returns=True),
        call("create", "filter", 0.5, 7, returns=ResponseError("item exists")),
        call("info", "filter", returns=Info(1000, 1, 0, 4)),
        call("add", "filter", "a", returns=flag(1)),
        call("add", "filter", "a", returns=flag(0)),
        call("madd", "filter", "a", binary, returns=flags(0, 1)),
        call("insert", "filter", ["a", "b", "b"], capacity=7, returns=flags(0, 1, 0)),
        call("insert", "filter", ["a"], noCreate=True, returns=flags(0)),
        call("exists", "filter", binary, returns=flag(1)),
        call("exists", "filter", "absent", returns=flag(0)),
        call("mexists", "filter", "a", "absent", "b", returns=flags(1, 0, 1)),
        call("card", "filter", returns=3),
        call("info", "filter", returns=Info(1000, 1, 3, 4)),
        call("reserve", "full", TIGHT, 3, noScale=True, returns=True),
        call("madd", "full", "a", "b", "a", "c", "d", returns=[*flags(1, 1, 0, 1), FULL]),
        call("insert", "full", ["b", "d", "b"], returns=[*flags(0), FULL]),
        call("add", "full", "d", returns=FULL),
        call("info", "full", returns=Info(3, 1, 3, None)),
        call("add", "default", "a", returns=flag(1)),
        call("info", "default", returns=Info(100, 1, 1, 2)),
        call("insert", "growing", ["a"], capacity=50, error=0.001, expansion=3, returns=flags(1)),
        call("info", "growing", returns=Info(50, 1, 1, 3)),
        call("insert", "fixed", ["a"], noScale=True, returns=flags(1)),
        call("info", "fixed", returns=Info(100, 1, 1, None)),
        call("scandump", "source", 0, returns=[int, bytes]),
        call("loadchunk", "copy", 1, header, returns=b"OK"),
        call("info", "copy", returns=Info(1234, 1, 0, 2)),
        call("exists", "missing", "a", returns=flag(0)),
        call("mexists", "missing", "a", "b", returns=flags(0, 0)),
        call("card", "missing", returns=0),
        call("insert", "missing", ["a"], noCreate=True, returns=NOT_FOUND),
        call("info", "missing", returns=NOT_FOUND),
        call("scandump", "missing", 0, returns=NOT_FOUND),
        call("loadchunk", "missing", 2, b"data", returns=NOT_FOUND),
        call("create", "string", 0.01, 10, returns=WRONG_TYPE),
        call("add", "string", "a", returns=WRONG_TYPE),
        call("madd", "string", "a", "b", returns=WRONG_TYPE),
        call("insert", "string", ["a"], returns=WRONG_TYPE),
        call("card", "string", returns=WRONG_TYPE),
        call("info", "string", returns=WRONG_TYPE),
    ]


def test_every_method_and_argument_of_the_client_is_tested_here():
    methods = {name: method for name, method in vars(BFCommands).items() if name[0] != "_"}
    offered = {
        (name, parameter.name)
        for name, method in methods.items()
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is None
    }
    calls = conversation(MODES[0], b"")
    assert methods.keys() == {each.method for each in calls}
    # `reserve` is another name of `create`.
    called = {(each.method, name) for each in calls for name in each.options}
    assert called == offered - {("reserve", "expansion"), ("create", "noScale")}


# The ways to call methods. Each returns the replies to calls on a server.


def one_by_one(server: Server, mode: Mode, calls: list[Call]) -> list[Any]:
    def reply(call: Call) -> Any:
        try:
            return call.on(client.bf())
        except ResponseError as error:
            return error

    with redis.Redis(HOST, server.port, **mode.options) as client:
        return [reply(call) for call in calls]


def in_a_pipeline(
    server: Server, mode: Mode, calls: list[Call], *, transaction: bool = False
) -> list[Any]:
    with (
        redis.Redis(HOST, server.port, **mode.options) as client,
        client.pipeline(transaction=transaction) as pipeline,
    ):
        for call in calls:
            call.on(pipeline.bf())
        return pipeline.execute(raise_on_error=False)


def in_a_transaction(server: Server, mode: Mode, calls: list[Call]) -> list[Any]:
    return in_a_pipeline(server, mode, calls, transaction=True)


def with_asyncio(server: Server, mode: Mode, calls: list[Call]) -> list[Any]:
    async def replies() -> list[Any]:
        async with redis.asyncio.Redis(host=HOST, port=server.port, **mode.options) as client:
            found = []
            for call in calls:
                try:
                    found.append(await call.on(client.bf()))
                except ResponseError as error:
                    found.append(error)
            return found

    return asyncio.run(replies())


def in_a_pipeline_of_asyncio(server: Server, mode: Mode, calls: list[Call]) -> list[Any]:
    async def replies() -> list[Any]:
        async with (
            redis.asyncio.Redis(host=HOST, port=server.port, **mode.options) as client,
            client.pipeline() as pipeline,
        ):
            for call in calls:
                call.on(pipeline.bf())
            return await pipeline.execute(raise_on_error=False)

    return asyncio.run(replies())


@pytest.mark.parametrize(
    "way",
    [one_by_one, in_a_pipeline, in_a_transaction, with_asyncio, in_a_pipeline_of_asyncio],
    ids=lambda way: way.__name__,
)
@each_mode
def test_every_method_returns_what_the_client_documents(server, mode, way):
    client = server.client
    client.execute_command("BF.RESERVE", "source", TIGHT, 1234)
    client.set("string", "value")
    calls = conversation(mode, client.execute_command("BF.SCANDUMP", "source", 0)[1])
    for call, reply in zip(calls, way(server, mode, calls), strict=True):
        call.check(reply, mode)
    assert client.execute_command("BF.INFO", "filter", "ERROR") == [b"1e-18"]
    assert client.execute_command("BF.INFO", "growing", "ERROR") == [b"0.001"]
    assert client.get("string") == b"value"


@pytest.mark.parametrize("decode", [False, True])
@each_mode
def test_a_filter_is_copied_as_bytes_also_by_a_client_that_decodes(server, mode, decode):
    with redis.Redis(HOST, server.port, decode_responses=decode, **mode.options) as client:
        bf = client.bf()
        bf.insert("source", ["ключ"], capacity=10_000, error=TIGHT)
        info = bf.info("source")
        names = info if isinstance(info, dict) else [] if isinstance(info, BFInfo) else info[::2]
        assert all(isinstance(name, str) is decode for name in names)
        position, data = bf.scandump("source", 0)
        while position:
            assert typed(bf.loadchunk("copy", position, data)) == typed("OK" if decode else b"OK")
            position, data = bf.scandump("source", position)
            assert type(data) is bytes
        assert typed([position, data]) == typed([0, b""])
        assert typed(bf.mexists("copy", "ключ", "absent")) == typed(mode.flags(1, 0))
