"""Tests the queue that keeps each request until it is done. The tests kill crawlers, and lose replies."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
import redis
from gates import opened
from oxbloom.scrapy.deliveries import ORDERS, Deliveries
from oxbloom.scrapy.retries import Retries
from scrapy import Request, Spider
from scrapy_redis.queue import FifoQueue, LifoQueue, PriorityQueue
from servers import ONCE, Server

QUEUE = "quotes:requests"
FILTER = "quotes:bloomfilter"
ORDER = ORDERS[FifoQueue]
LEASE = 600  # seconds, so that no taker counts as dead before the test ends its lease
KINDS = pytest.mark.parametrize("kind", ORDERS, ids=lambda kind: kind.__name__)


Taker = Callable[..., Deliveries]


@pytest.fixture
def taker(server: Server) -> Taker:
    def taker(kind: type = FifoQueue, port: int = server.port, lease: int = LEASE) -> Deliveries:
        client = redis.Redis(port=port, retry=ONCE)
        return Deliveries(client, QUEUE, ORDERS[kind], lease=lease, retries=Retries(5))

    return taker


def entry(number: int, priority: int = 0) -> bytes:
    """Returns data with every character that could be mistaken for a separator."""
    return b"%d %d a b\n\0: c" % (-priority, number)


def put(one: Deliveries, entry: bytes) -> None:
    one.put(entry, one.note(entry))


def number(taken: tuple[str, bytes] | None) -> int | None:
    return int(taken[1].split()[0]) if taken else None


def end_leases(server: Server, *takers: Deliveries) -> None:
    """Has the same effect as the time of the leases."""
    for one in takers:
        *_, leases = one.keys
        assert server.client.zadd(leases, {one.taker: 1}, xx=True, ch=True) == 1


@pytest.mark.parametrize(
    ("kind", "taken"),
    [(FifoQueue, [0, 1, 2, 3]), (LifoQueue, [3, 2, 1, 0]), (PriorityQueue, [3, 2, 1, 0])],
)
def test_entries_are_taken_in_the_order_of_scrapy_redis(server, taker, kind, taken):
    one = taker(kind)
    for n in range(4):
        put(one, entry(n, priority=n))
    assert [number(one.take()) for _ in taken] == taken
    assert one.take() is None


@KINDS
def test_entries_of_this_queue_and_of_scrapy_redis_are_the_same(server, taker, kind):
    one, queue = taker(kind), kind(server.client, Spider("quotes"), QUEUE)
    request = Request("https://example.com/", priority=3, meta={"depth": 2})
    put(one, b"-3 " + queue._encode_request(request))
    assert queue.pop().to_dict() == request.to_dict()
    queue.push(request)
    (_, data) = one.take()
    assert queue._decode_request(data).to_dict() == request.to_dict()


@KINDS
def test_entries_of_a_dead_taker_are_taken_next_unless_they_were_done(server, taker, kind):
    dead, alive = taker(kind), taker(kind)
    for n in range(10):
        put(dead, entry(n))
    tokens = {number(taken): taken[0] for taken in (dead.take() for _ in range(4)) if taken}
    order = list(tokens)
    dead.done(tokens[order[0]])
    dead.take()
    assert alive.sign_of_life() == (0, 4)
    end_leases(server, dead)
    assert alive.sign_of_life() == (4, 0)
    rest = [number(alive.take()) for _ in range(9)]
    assert sorted(rest) == sorted(set(range(10)) - {order[0]})
    assert set(rest[:4]) >= set(order[1:])


@KINDS
def test_entries_that_were_done_go_back_if_the_server_is_restored_from_an_older_state(
    server, taker, kind
):
    one = taker(kind)
    for n in range(3):
        put(one, entry(n))
    taken = [one.take() for _ in range(3)]
    older = {key: server.client.dump(key) for key in one.keys[1:]}
    others = taken[1:]
    for token, _ in others:
        one.done(token)
    assert one.sign_of_life() == (0, 1)
    for key, value in older.items():
        server.client.restore(key, 0, value, replace=True)
    assert one.sign_of_life() == (2, 1)
    assert one.sign_of_life() == (0, 1)
    again = [number(one.take()) for _ in range(2)]
    assert sorted(again) == sorted(number(each) for each in others)
    assert one.take() is None


@pytest.mark.parametrize("first", ["take", "sign_of_life"])
def test_after_an_outage_all_takers_get_the_time_to_give_a_sign_of_life(server, taker, first):
    one, other = taker(), taker()
    put(one, entry(1))
    one.take()
    other.sign_of_life()
    # No taker could reach the server. This one is the first to reach it again, and must not consider the others dead.
    end_leases(server, one, other)
    getattr(other, first)()
    assert other.sign_of_life() == (0, 1)
    assert other.sign_of_life() == (0, 1)
    one.sign_of_life()
    assert other.sign_of_life() == (0, 1)
    # A taker that gives no sign of life for the time of its lease counts as dead.
    end_leases(server, one)
    assert other.sign_of_life() == (1, 0)
    assert number(other.take()) == 1


def test_a_lease_is_as_long_as_its_taker_asked_for(server, taker):
    for lease in (1, 60):
        one = taker(lease=lease)
        begin, _ = server.client.time()
        one.sign_of_life()
        end, _ = server.client.time()
        *_, leases = one.keys
        assert begin + lease <= server.client.zscore(leases, one.taker) <= end + lease


def test_a_note_that_is_done_is_removed_with_the_next_one(server, taker):
    one = taker()
    one.done(one.note(entry(1)))
    one.note(entry(2))
    assert server.client.hvals(f"{{{QUEUE}}}:inflight") == [entry(2)]


def test_entries_that_are_done_are_reported_until_the_server_accepts_the_report(server, taker):
    one = taker()
    put(one, entry(1))
    token, _ = one.take()
    one.done(token)
    server.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.OutOfMemoryError):
            one.sign_of_life()
    finally:
        server.client.config_set("maxmemory", 0)
    assert one.sign_of_life() == (0, 0)
    server.client.config_resetstat()
    assert one.sign_of_life() == (0, 0)
    assert "cmdstat_hdel" not in server.client.info("commandstats")


def test_a_taker_that_leaves_puts_back_the_entries_that_are_not_done(server, taker):
    leaving, staying = taker(), taker()
    for n in range(4):
        put(leaving, entry(n))
    done, _, _ = (leaving.take() for _ in range(3))
    staying.take()
    leaving.done(done[0])
    assert leaving.leave() == 1
    assert sorted(filter(None, (number(staying.take()) for _ in range(3)))) == [1, 2]
    staying.clear()
    assert server.client.keys() == []


def test_an_entry_and_its_item_are_added_together_or_not_at_all(server, taker):
    one = taker()
    addition = ["BF.INSERT", "CAPACITY", 100, "ITEMS", "item"]
    assert one.put_if_new(entry(1), FILTER, addition)
    assert not one.put_if_new(entry(2), FILTER, addition)
    assert server.client.llen(QUEUE) == 1
    # This filter cannot grow.
    server.client.execute_command("BF.RESERVE", "full", 0.01, 1, "NONSCALING")
    assert one.put_if_new(entry(3), "full", ["BF.INSERT", "ITEMS", "a"])

    def fill() -> None:
        for n in range(100):
            one.put_if_new(entry(4), "full", ["BF.INSERT", "ITEMS", n])

    with pytest.raises(redis.ResponseError, match="filter is full"):
        fill()
    assert server.client.llen(QUEUE) == 1 + server.client.execute_command("BF.CARD", "full")


@KINDS
def test_no_lost_reply_loses_or_doubles_an_entry(server, taker, kind):
    with opened(server) as network:
        one = taker(kind, network.port)
        one.sign_of_life()
        for n in range(5):
            network.lose_a_reply()
            one.put_if_new(entry(n), FILTER, ["BF.INSERT", "ITEMS", n])
            network.lose_a_reply()
            token = one.note(entry(n + 5))
            network.lose_a_reply()
            one.put(entry(n + 5), token)
        taken = []
        for _ in range(10):
            network.lose_a_reply()
            found = one.take()
            assert found is not None
            taken.append(number(found))
            one.done(found[0])
        network.lose_a_reply()
        assert one.sign_of_life() == (0, 0)
        assert network.lost == 26
        assert Counter(taken) == dict.fromkeys(range(10), 1)
        assert one.take() is None


@KINDS
def test_every_entry_is_done_once_whichever_taker_dies(server, taker, kind):
    chance = random.Random(1)
    takers = [taker(kind) for _ in range(4)]
    held: dict[Deliveries, dict[str, int]] = {one: {} for one in takers}
    total, done, lost = 0, Counter[int](), Counter[int]()

    def step(one: Deliveries) -> None:
        nonlocal total
        action = chance.random()
        if action < 0.3:
            put(one, entry(total, chance.randrange(3)))
            total += 1
        elif action < 0.9:
            for token in [token for token in held[one] if chance.random() < 0.5]:
                done[held[one].pop(token)] += 1
                one.done(token)
            if taken := one.take():
                held[one][taken[0]] = number(taken)
        else:
            one.sign_of_life()

    for _ in range(2):
        for _ in range(300):
            step(chance.choice(takers))
        dead = takers.pop()
        lost.update(held.pop(dead).values())
        takers.append(taker(kind))
        held[takers[-1]] = {}
        end_leases(server, dead)
        for one in takers:
            one.sign_of_life()
    while step_taken := takers[0].take():
        held[takers[0]][step_taken[0]] = number(step_taken)
    for one in takers:
        for token in held[one].values():
            done[token] += 1
    assert set(done) == set(range(total))
    assert {n: times for n, times in done.items() if times != 1} == {}
    assert lost, "no taker died with an entry"
