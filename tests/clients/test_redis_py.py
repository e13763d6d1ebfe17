"""Tests that redis-py's own ``client.bf()`` works with the module as it does with RedisBloom.

Every method and keyword argument is called over RESP2 and RESP3, with legacy and with unified responses, and must
return the type that the client documents for that mode. Membership is compared with a set. Where a value depends on a
filter's structure (its size, the chunks of a dump), the tests only check what every Bloom filter must satisfy. The file
is long because all its tests run in the same modes, with the same fixtures.
"""

import asyncio
import math
from typing import NamedTuple

import pytest
import redis
import redis.asyncio
from filters import most_false_positives
from redis.commands.bf import BFInfo
from redis.commands.bf.commands import BFCommands
from redis.exceptions import ResponseError, WatchError
from servers import HOST, server_version

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
FULL = "non scaling filter is full"

# An error rate so low that the items of a small test have no false positives.
TIGHT = 1e-18

# More chunks than any dump here has, so that an endless SCANDUMP fails instead of hanging.
MOST_CHUNKS = 1000

# Servers before 7.0 have neither booleans nor maps for modules, whatever protocol the client uses.
SPEAKS_RESP3 = server_version() >= (7, 0)

# If the allocator does not align to cache lines, as in builds without jemalloc, a layer may take one cache line more.
CACHE_LINE = 64

BINARY_ITEMS = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"\0a",
    b"a\r\nb",
    b"\xff\xfe",
    b"\xc3\x28",
    "фильтр".encode(),
    bytes(range(256)) * 256,
]


class Mode(NamedTuple):
    """The protocol of a client, and the form of its responses."""

    protocol: int | None
    legacy: bool

    @property
    def options(self) -> dict:
        return {"protocol": self.protocol, "legacy_responses": self.legacy}

    @property
    def flag(self) -> type:
        """Returns the type of a flag for an item: int in RESP2, bool in RESP3."""
        return int if self.protocol == 2 or not SPEAKS_RESP3 else bool

    def flags(self, *values: int) -> list:
        return [self.flag(value) for value in values]

    @property
    def info(self) -> type:
        if self == (3, True):
            return dict if SPEAKS_RESP3 else list
        return BFInfo


MODES = [Mode(protocol, legacy) for protocol in (2, 3, None) for legacy in (True, False)]


def mode_name(mode: Mode) -> str:
    return f"RESP{mode.protocol or '-default'}-{'legacy' if mode.legacy else 'unified'}"


class Info(NamedTuple):
    capacity: int
    size: int
    filters: int
    items: int
    expansion: int | None


INFO_ATTRIBUTES = ["capacity", "size", "filterNum", "insertedNum", "expansionRate"]
INFO_KEYS = [
    b"Capacity",
    b"Size",
    b"Number of filters",
    b"Number of items inserted",
    b"Expansion rate",
]


def labels(reply: dict | list) -> list:
    return list(reply) if isinstance(reply, dict) else reply[::2]


def read_info(reply: BFInfo | dict | list) -> Info:
    if isinstance(reply, list):
        reply = dict(zip(labels(reply), reply[1::2], strict=True))
    names = INFO_KEYS if isinstance(reply, dict) else INFO_ATTRIBUTES
    return Info(*(reply[name] for name in names))


def assert_alike(copy: BFInfo | dict | list, original: BFInfo | dict | list) -> None:
    """Checks that two replies are equal, except for what the allocator adds to the sizes."""
    ours, theirs = read_info(copy), read_info(original)
    assert ours == theirs._replace(size=ours.size)
    assert abs(ours.size - theirs.size) <= CACHE_LINE * ours.filters


def typed(reply):
    """Returns a reply together with its types, since 1 == True in Python."""
    if isinstance(reply, list):
        return [typed(element) for element in reply]
    return type(reply), reply


def items(prefix: str, count: int) -> list[str]:
    return [f"{prefix}:{number}" for number in range(count)]


def add_all(bf, key, members, batch=1000) -> None:
    for start in range(0, len(members), batch):
        bf.madd(key, *members[start : start + batch])


def answers(bf, key, members, batch=1000) -> list[bool]:
    replies = []
    for start in range(0, len(members), batch):
        replies += bf.mexists(key, *members[start : start + batch])
    return [bool(reply) for reply in replies]


def ideal_bytes(capacity: int, rate: float) -> float:
    """Returns the textbook size of a Bloom filter: n ln(1/p) / (ln 2)^2 bits."""
    return capacity * math.log(1 / rate) / math.log(2) ** 2 / 8


def copy_filter(bf, source, target) -> None:
    """Copies a filter by SCANDUMP and LOADCHUNK, and checks the types."""
    position = 0
    for _ in range(MOST_CHUNKS):
        position, data = bf.scandump(source, position)
        assert type(position) is int
        assert type(data) is bytes
        if position == 0:
            assert data == b""
            return
        assert bf.loadchunk(target, position, data) in (b"OK", "OK")
    pytest.fail("SCANDUMP does not end")


@pytest.fixture(params=MODES, ids=mode_name)
def mode(request) -> Mode:
    return request.param


@pytest.fixture
def client(server, mode):
    with redis.Redis(HOST, server.port, **mode.options) as client:
        yield client


@pytest.fixture
def bf(client):
    return client.bf()


def test_the_client_offers_no_method_that_is_not_tested_here():
    offered = {name for name in vars(BFCommands) if not name.startswith("_")}
    assert offered == {
        "create",
        "reserve",
        "add",
        "madd",
        "insert",
        "exists",
        "mexists",
        "scandump",
        "loadchunk",
        "info",
        "card",
    }


# Creating


@pytest.mark.parametrize("method", ["create", "reserve"])
@pytest.mark.parametrize(
    ("arguments", "expansion"),
    [({}, 2), ({"expansion": 1}, 1), ({"expansion": 4}, 4), ({"noScale": True}, None)],
)
def test_create_creates_the_filter_that_its_arguments_describe(bf, method, arguments, expansion):
    assert getattr(bf, method)("filter", 0.01, 1234, **arguments) is True
    info = read_info(bf.info("filter"))
    assert info == Info(1234, info.size, 1, 0, expansion)


def test_create_rejects_an_existing_filter_and_leaves_it_alone(bf):
    bf.create("filter", 0.01, 1000)
    bf.add("filter", "member")
    before = read_info(bf.info("filter"))
    with pytest.raises(ResponseError, match=r"^item exists$"):
        bf.create("filter", 0.5, 7, expansion=3)
    assert read_info(bf.info("filter")) == before
    assert bf.exists("filter", "member")


@pytest.mark.parametrize(
    "arguments",
    [
        {"errorRate": 0, "capacity": 10},
        {"errorRate": 1, "capacity": 10},
        {"errorRate": -0.1, "capacity": 10},
        {"errorRate": "low", "capacity": 10},
        {"errorRate": 0.1, "capacity": 0},
        {"errorRate": 0.1, "capacity": -1},
        {"errorRate": 0.1, "capacity": "many"},
        {"errorRate": 0.1, "capacity": 10, "expansion": "big"},
        {"errorRate": 0.1, "capacity": 10, "expansion": 2, "noScale": True},
    ],
    ids=str,
)
def test_create_rejects_bad_arguments_and_creates_no_key(client, bf, arguments):
    with pytest.raises(ResponseError):
        bf.create("filter", **arguments)
    assert client.exists("filter") == 0


@pytest.mark.parametrize("rate", [0.1, 0.01, 0.0001])
def test_size_is_near_that_of_a_textbook_filter(bf, rate):
    bf.create("filter", rate, 100_000)
    size = read_info(bf.info("filter")).size
    assert ideal_bytes(100_000, rate) / 2 < size < ideal_bytes(100_000, rate) * 2


# Adding and checking


def test_add_tells_new_items_from_known_ones(bf, mode):
    replies = [bf.add("filter", item) for item in ("a", "b", "a")]
    assert typed(replies) == typed(mode.flags(1, 1, 0))


def test_add_creates_a_missing_filter_with_the_default_arguments(bf):
    bf.add("filter", "a")
    info = read_info(bf.info("filter"))
    assert info == Info(100, info.size, 1, 1, 2)


def test_madd_answers_for_every_item_in_order(bf, mode):
    assert typed(bf.madd("filter", "a", "b", "a")) == typed(mode.flags(1, 1, 0))
    assert typed(bf.madd("filter", "b", "c")) == typed(mode.flags(0, 1))


def test_insert_answers_for_every_item_in_order(bf, mode):
    assert typed(bf.insert("filter", ["a", "b", "a"])) == typed(mode.flags(1, 1, 0))
    assert typed(bf.insert("filter", ["b", "c"])) == typed(mode.flags(0, 1))


@pytest.mark.parametrize(
    ("arguments", "capacity", "expansion"),
    [
        ({}, 100, 2),
        ({"capacity": 4321}, 4321, 2),
        ({"expansion": 3}, 100, 3),
        ({"noScale": True}, 100, None),
        ({"capacity": 50, "error": 0.001, "expansion": 1}, 50, 1),
        ({"capacity": 50, "error": 0.001, "noScale": True}, 50, None),
    ],
    ids=str,
)
def test_insert_creates_the_filter_that_its_arguments_describe(bf, arguments, capacity, expansion):
    bf.insert("filter", ["a", "b"], **arguments)
    info = read_info(bf.info("filter"))
    assert info == Info(capacity, info.size, 1, 2, expansion)


@pytest.mark.parametrize("rate", [0.1, 0.0001])
def test_insert_creates_a_filter_with_the_requested_error_rate(bf, rate):
    bf.insert("filter", ["a"], capacity=100_000, error=rate)
    size = read_info(bf.info("filter")).size
    assert ideal_bytes(100_000, rate) / 2 < size < ideal_bytes(100_000, rate) * 2


def test_insert_into_an_existing_filter_keeps_its_arguments(bf, mode):
    bf.create("filter", 0.01, 1000, expansion=4)
    replies = bf.insert("filter", ["a"], capacity=7, error=0.5, expansion=3)
    assert typed(replies) == typed(mode.flags(1))
    info = read_info(bf.info("filter"))
    assert info == Info(1000, info.size, 1, 1, 4)


def test_insert_with_no_create_adds_only_to_an_existing_filter(client, bf, mode):
    with pytest.raises(ResponseError, match=r"^not found$"):
        bf.insert("filter", ["a"], noCreate=True)
    assert client.exists("filter") == 0
    bf.create("filter", 0.01, 1000)
    assert typed(bf.insert("filter", ["a"], noCreate=True)) == typed(mode.flags(1))


def test_exists_and_mexists_tell_members_from_absent_items(bf, mode):
    bf.madd("filter", "a", "b")
    assert typed(bf.exists("filter", "a")) == typed(mode.flag(1))
    assert typed(bf.exists("filter", "absent")) == typed(mode.flag(0))
    replies = bf.mexists("filter", "a", "absent", "b")
    assert typed(replies) == typed(mode.flags(1, 0, 1))


def test_card_counts_distinct_items(bf):
    bf.create("filter", TIGHT, 1000)
    assert typed(bf.card("filter")) == typed(0)
    bf.madd("filter", *items("member", 500), *items("member", 500))
    assert typed(bf.card("filter")) == typed(500)


def test_reads_of_a_missing_key_find_nothing_and_create_nothing(client, bf, mode):
    assert typed(bf.exists("missing", "a")) == typed(mode.flag(0))
    assert typed(bf.mexists("missing", "a", "b")) == typed(mode.flags(0, 0))
    assert typed(bf.card("missing")) == typed(0)
    assert client.exists("missing") == 0


@pytest.mark.parametrize("item", [1, 1.5, "1", b"1"], ids=repr)
def test_an_item_is_the_bytes_that_the_client_sends(bf, item):
    bf.create("filter", TIGHT, 1000)
    bf.add("filter", item)
    as_text = item.decode() if isinstance(item, bytes) else str(item)
    assert bf.exists("filter", as_text)
    assert bf.exists("filter", as_text.encode())
    assert not bf.exists("filter", "2")


@pytest.mark.parametrize("key", [b"filter", b"\xff\xfe", b"with\0nul", b" ", "ключ"], ids=repr)
def test_keys_and_items_may_be_any_bytes(bf, key):
    bf.create(key, TIGHT, 1000)
    members, others = BINARY_ITEMS[::2], BINARY_ITEMS[1::2]
    assert bf.madd(key, *members) == [1] * len(members)
    assert bf.mexists(key, *members) == [1] * len(members)
    assert bf.mexists(key, *others) == [0] * len(others)
    assert bf.insert(key, others) == [1] * len(others)
    assert [bf.exists(key, item) for item in BINARY_ITEMS] == [1] * len(BINARY_ITEMS)
    assert bf.card(key) == len(BINARY_ITEMS)


@pytest.mark.parametrize("capacity", [10_000, 1000], ids=["one-layer", "scaled"])
def test_there_are_no_false_negatives_and_few_false_positives(bf, capacity):
    remembered = set(items("member", 10_000))
    bf.create("filter", 0.01, capacity)
    add_all(bf, "filter", list(remembered))
    asked = list(remembered) + items("absent", 30_000)
    found = {
        item for item, answer in zip(asked, answers(bf, "filter", asked), strict=True) if answer
    }
    assert remembered <= found
    assert len(found - remembered) <= most_false_positives(30_000, 0.01)


# Growing


def test_info_is_of_the_type_that_the_mode_promises(bf, mode):
    bf.create("filter", 0.01, 1000)
    reply = bf.info("filter")
    assert type(reply) is mode.info
    if mode.info is not BFInfo:
        assert labels(reply) == INFO_KEYS
    assert [type(value) for value in read_info(reply)] == [int] * 5


@pytest.mark.parametrize("expansion", [1, 2, 4])
def test_a_full_filter_grows_as_far_as_it_must(bf, expansion):
    bf.create("filter", TIGHT, 100, expansion=expansion)
    members = items("member", 2000)
    sizes = []
    for count in (100, 101, 500, 2000):
        add_all(bf, "filter", members[:count])
        info = read_info(bf.info("filter"))
        filters = 1 if count == 100 else 2
        assert info == Info(info.capacity, info.size, filters, count, expansion)
        assert count <= info.capacity <= 100 + 128 + 2 * count
        sizes.append(info.size)
    assert 0 < sizes[0] < sizes[1] < sizes[2] < sizes[3]
    assert all(answers(bf, "filter", members))


def test_a_full_filter_that_must_not_scale_rejects_new_items(bf, mode):
    bf.create("filter", TIGHT, 2, noScale=True)
    bf.madd("filter", "a", "b")
    with pytest.raises(ResponseError, match=f"^{FULL}$"):
        bf.add("filter", "c")
    assert typed(bf.add("filter", "a")) == typed(mode.flag(0))
    assert typed(bf.mexists("filter", "a", "b", "c")) == typed(mode.flags(1, 1, 0))
    info = read_info(bf.info("filter"))
    assert info == Info(2, info.size, 1, 2, None)


@pytest.mark.parametrize("method", ["madd", "insert"])
def test_a_batch_stops_at_the_item_that_does_not_fit(bf, mode, method):
    bf.create("filter", TIGHT, 3, noScale=True)
    batch = ["a", "b", "a", "c", "d", "a"]
    arguments = batch if method == "madd" else [batch]
    replies = getattr(bf, method)("filter", *arguments)
    assert typed(replies[:-1]) == typed(mode.flags(1, 1, 0, 1))
    assert isinstance(replies[-1], ResponseError)
    assert str(replies[-1]) == FULL
    assert bf.card("filter") == 3


# Errors


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("info", ()),
        ("scandump", (0,)),
        ("loadchunk", (2, b"data")),
    ],
)
def test_a_missing_key_is_reported_as_not_found(client, bf, method, arguments):
    with pytest.raises(ResponseError, match=r"^not found$"):
        getattr(bf, method)("missing", *arguments)
    assert client.exists("missing") == 0


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("create", (0.01, 10)),
        ("add", ("a",)),
        ("madd", ("a", "b")),
        ("insert", (["a"],)),
        ("card", ()),
        ("info", ()),
        ("scandump", (0,)),
        ("loadchunk", (1, b"data")),
    ],
)
def test_a_key_of_another_type_is_rejected_and_left_alone(client, bf, method, arguments):
    client.set("string", "value")
    with pytest.raises(ResponseError, match=f"^{WRONG_TYPE}$"):
        getattr(bf, method)("string", *arguments)
    assert client.get("string") == b"value"


# Dumping and loading


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"errorRate": 0.1, "capacity": 1000}, 0),
        ({"errorRate": 0.1, "capacity": 1000}, 1000),
        ({"errorRate": 0.1, "capacity": 100, "expansion": 3}, 5000),
        ({"errorRate": 0.1, "capacity": 1000, "noScale": True}, 500),
    ],
    ids=["empty", "one-layer", "scaled", "non-scaling"],
)
def test_a_copied_filter_answers_and_grows_as_the_original(bf, arguments, count):
    members, absent = items("member", count), items("absent", 5000)
    bf.create("original", **arguments)
    add_all(bf, "original", members)
    copy_filter(bf, "original", "copy")

    assert all(answers(bf, "copy", members))
    assert answers(bf, "copy", absent) == answers(bf, "original", absent)
    assert_alike(bf.info("copy"), bf.info("original"))
    assert bf.card("copy") == bf.card("original")

    later = items("later", 400)
    for key in ("original", "copy"):
        add_all(bf, key, later)
    assert_alike(bf.info("copy"), bf.info("original"))
    assert answers(bf, "copy", absent) == answers(bf, "original", absent)


def test_a_copied_filter_is_independent_of_the_original(bf, mode):
    bf.create("original", TIGHT, 1000)
    bf.add("original", "both")
    copy_filter(bf, "original", "copy")
    bf.add("copy", "only the copy")
    assert typed(bf.mexists("copy", "both", "only the copy")) == typed(mode.flags(1, 1))
    assert typed(bf.mexists("original", "both", "only the copy")) == typed(mode.flags(1, 0))


def test_a_filter_of_many_megabytes_can_be_copied(bf):
    # RedisBloom's chunks hold at most 16 MiB; this filter is larger.
    bf.create("original", 0.001, 10_000_000)
    members, absent = items("member", 2000), items("absent", 2000)
    add_all(bf, "original", members)
    copy_filter(bf, "original", "copy")
    asked = members + absent
    assert all(answers(bf, "copy", members))
    assert answers(bf, "copy", asked) == answers(bf, "original", asked)
    assert_alike(bf.info("copy"), bf.info("original"))


def test_a_dump_is_not_loaded_over_an_existing_filter(bf):
    bf.create("source", 0.01, 5000)
    position, header = bf.scandump("source", 0)
    bf.add("target", "member")
    before = read_info(bf.info("target"))
    with pytest.raises(ResponseError):
        bf.loadchunk("target", position, header)
    assert read_info(bf.info("target")) == before
    assert bf.exists("target", "member")


@pytest.mark.parametrize("junk", [b"", b"\0", b"junk", b"\xff" * 100], ids=repr)
def test_an_invalid_header_is_rejected_and_creates_no_key(client, bf, junk):
    with pytest.raises(ResponseError):
        bf.loadchunk("filter", 1, junk)
    assert client.exists("filter") == 0


def test_loadchunk_replies_ok(bf):
    bf.create("source", 0.01, 100)
    position, header = bf.scandump("source", 0)
    assert typed(bf.loadchunk("target", position, header)) == typed(b"OK")


def test_a_decoding_client_gets_text_but_keeps_dumps_as_bytes(server, client, mode):
    with redis.Redis(HOST, server.port, decode_responses=True, **mode.options) as decoding:
        bf = decoding.bf()
        bf.add("source", "ключ")
        info = bf.info("source")
        if mode.info is not BFInfo:
            assert labels(info) == [key.decode() for key in INFO_KEYS]
        else:
            assert read_info(info) == Info(100, info.size, 1, 1, 2)
        position, header = bf.scandump("source", 0)
        assert type(header) is bytes
        assert typed(bf.loadchunk("target", position, header)) == typed("OK")
        copy_filter(bf, "source", "copy")
        assert typed(bf.exists("copy", "ключ")) == typed(mode.flag(1))


# Pipelines and transactions


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "pipeline"])
def test_a_pipeline_replies_as_the_single_calls_do(client, mode, transaction):
    with client.pipeline(transaction=transaction) as pipeline:
        bf = pipeline.bf()
        bf.create("filter", TIGHT, 1000)
        bf.add("filter", "a")
        bf.madd("filter", "a", "b")
        bf.insert("filter", ["b", "c"])
        bf.exists("filter", "c")
        bf.mexists("filter", "c", "d")
        bf.card("filter")
        bf.info("filter")
        bf.scandump("filter", 0)
        replies = pipeline.execute()
    position, header = replies.pop()
    info = replies.pop()
    flag, flags = mode.flag, mode.flags
    expected = [True, flag(1), flags(0, 1), flags(0, 1), flag(1), flags(1, 0), 3]
    assert typed(replies) == typed(expected)
    assert type(info) is mode.info
    assert read_info(info).items == 3
    assert typed(client.bf().loadchunk("copy", position, header)) == typed(b"OK")


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "pipeline"])
def test_an_error_in_a_pipeline_stays_in_its_place(client, mode, transaction):
    client.set("string", "value")
    with client.pipeline(transaction=transaction) as pipeline:
        bf = pipeline.bf()
        bf.add("filter", "a")
        bf.add("string", "a")
        bf.info("missing")
        bf.exists("filter", "a")
        first, wrong_type, missing, last = pipeline.execute(raise_on_error=False)
    assert typed([first, last]) == typed(mode.flags(1, 1))
    assert isinstance(wrong_type, ResponseError)
    assert str(wrong_type) == WRONG_TYPE
    assert isinstance(missing, ResponseError)
    assert str(missing) == "not found"


@pytest.mark.parametrize("method", ["add", "madd", "insert", "create", "loadchunk"])
def test_a_watched_key_notices_a_write(client, bf, method):
    bf.create("source", 0.01, 100)
    arguments = {
        "add": ("a",),
        "madd": ("a", "b"),
        "insert": (["a"],),
        "create": (0.01, 100),
        "loadchunk": bf.scandump("source", 0),
    }
    with client.pipeline() as pipeline:
        pipeline.watch("filter")
        getattr(bf, method)("filter", *arguments[method])
        pipeline.multi()
        pipeline.bf().add("filter", "too late")
        with pytest.raises(WatchError):
            pipeline.execute()
    assert not bf.exists("filter", "too late")


def test_a_watched_key_does_not_notice_a_read(client, bf, mode):
    bf.add("filter", "a")
    with client.pipeline() as pipeline:
        pipeline.watch("filter")
        bf.exists("filter", "a")
        bf.mexists("filter", "a", "b")
        bf.card("filter")
        bf.info("filter")
        bf.scandump("filter", 0)
        pipeline.multi()
        pipeline.bf().add("filter", "b")
        assert typed(pipeline.execute()) == typed(mode.flags(1))


# asyncio


def async_client(port: int, mode: Mode) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(host=HOST, port=port, **mode.options)


def test_asyncio_methods_reply_as_the_blocking_ones_do(server, client, mode):
    flag, flags = mode.flag, mode.flags

    async def scenario():
        async with async_client(server.port, mode) as connection:
            bf = connection.bf()
            assert await bf.create("filter", TIGHT, 1000, expansion=4) is True
            assert typed(await bf.add("filter", "a")) == typed(flag(1))
            assert typed(await bf.madd("filter", "a", b"\xff\0")) == typed(flags(0, 1))
            assert typed(await bf.insert("filter", ["a", "c"])) == typed(flags(0, 1))
            assert typed(await bf.exists("filter", b"\xff\0")) == typed(flag(1))
            assert typed(await bf.mexists("filter", "c", "d")) == typed(flags(1, 0))
            assert typed(await bf.card("filter")) == typed(3)
            reply = await bf.info("filter")
            assert type(reply) is mode.info
            info = read_info(reply)
            assert info == Info(1000, info.size, 1, 3, 4)

            position = 0
            for _ in range(MOST_CHUNKS):
                position, data = await bf.scandump("filter", position)
                if position == 0:
                    break
                assert typed(await bf.loadchunk("copy", position, data)) == typed(b"OK")
            assert typed([position, data]) == typed([0, b""])
            assert typed(await bf.mexists("copy", "a", "d")) == typed(flags(1, 0))

            with pytest.raises(ResponseError, match=r"^item exists$"):
                await bf.create("filter", 0.01, 10)
            with pytest.raises(ResponseError, match=r"^not found$"):
                await bf.info("missing")

    asyncio.run(scenario())


@pytest.mark.parametrize("transaction", [True, False], ids=["transaction", "pipeline"])
def test_an_asyncio_pipeline_replies_as_the_single_calls_do(server, client, mode, transaction):
    flag, flags = mode.flag, mode.flags

    async def scenario():
        async with (
            async_client(server.port, mode) as connection,
            connection.pipeline(transaction=transaction) as pipeline,
        ):
            bf = pipeline.bf()
            bf.create("filter", TIGHT, 1000)
            bf.add("filter", "a")
            bf.madd("filter", "a", "b")
            bf.mexists("filter", "b", "c")
            bf.card("filter")
            bf.info("filter")
            *replies, info = await pipeline.execute()
        assert typed(replies) == typed([True, flag(1), flags(0, 1), flags(1, 0), 2])
        assert type(info) is mode.info

    asyncio.run(scenario())


def test_concurrent_asyncio_callers_count_every_item_once(server, client, mode):
    async def scenario():
        async with async_client(server.port, mode) as connection:
            bf = connection.bf()
            await bf.create("filter", TIGHT, 1000)

            async def caller():
                return [await bf.add("filter", item) for item in items("member", 50)]

            replies = await asyncio.gather(*(caller() for _ in range(10)))
            assert sum(sum(added) for added in replies) == 50
            assert await bf.card("filter") == 50

    asyncio.run(scenario())
