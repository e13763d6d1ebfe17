"""A queue in Redis that deletes an entry when it is done, not when it is taken.

An entry that is taken moves from the queue to the hash `{queue}:inflight` in one step. It stays there, under a token of
the taker, until the taker reports that it is done. The sorted set `{queue}:leases` has the time at which each taker's
lease ends. Each sign of life extends the lease. A taker whose lease has ended counts as dead, and its entries go back
to the queue, where they are taken next. So do entries that the server ascribes to a living taker that has none of them:
a server that was restored from an older snapshot, or a replica that took over, may lack the report that they are done.

Scripts do all of this, on keys of one hash slot. Each script can be sent again if its reply was lost:

* `TAKE` finds the entry that it moved for the same token the first time.
* `PUT_IF_NEW` finds the item in the filter the second time. The first time, it queued the entry in the same step.
* `PUT` only queues an entry while its note (a copy in the hash) exists, and deletes the note.

Times are those of the server, so the takers' clocks do not matter. If all leases have ended, the server was away or all
takers are dead. Then the first taker that gives a sign of life renews the leases of all, so that the others have time
to give one. A taker whose own lease has ended does not declare others dead.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from scrapy_redis.queue import FifoQueue, LifoQueue, PriorityQueue

from oxbloom._slots import beside

from .retries import Retries

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """The commands that put an entry into the queue, take one, and put it back where it is taken next."""

    put: str
    take: str
    put_back: str


ORDERS = {
    PriorityQueue: Order("ZADD", "ZPOPMIN", "ZADD"),
    FifoQueue: Order("LPUSH", "RPOP", "RPUSH"),
    LifoQueue: Order("LPUSH", "LPOP", "LPUSH"),
}

# An entry is a score, a space and the data. The queue contains only the data, since scrapy-redis also reads it.
PUSH = """
local function push(command, entry)
  local space = string.find(entry, ' ', 1, true)
  local score, data = string.sub(entry, 1, space - 1), string.sub(entry, space + 1)
  if command == 'ZADD' then redis.call('ZADD', KEYS[1], score, data) else redis.call(command, KEYS[1], data) end
end
"""

# Puts back the entries for whose taker and token the function `which` returns true. Returns their number.
PUT_BACK = (
    PUSH
    + """
local function put_back(command, which)
  local back = 0
  for _, token in ipairs(redis.call('HKEYS', KEYS[2])) do
    if which(string.match(token, '^[^:]*'), token) then
      push(command, redis.call('HGET', KEYS[2], token))
      redis.call('HDEL', KEYS[2], token)
      back = back + 1
    end
  end
  return back
end
"""
)

# A sign of life: extends the taker's lease. If all leases have ended, first renews those of all takers. `mine` is the
# end of the taker's lease before it was extended.
SIGN = """
local now, lease = tonumber(redis.call('TIME')[1]), tonumber(ARGV[2])
local mine = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '-1')
local last = tonumber(redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or now)
if last < now then
  for _, taker in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('ZADD', KEYS[3], now + lease, taker) end
end
redis.call('ZADD', KEYS[3], now + lease, ARGV[1])
"""

# KEYS: queue, inflight. ARGV: the command that puts, the entry, the token of its note.
PUT = (
    PUSH
    + """
if redis.call('HDEL', KEYS[2], ARGV[3]) == 1 then push(ARGV[1], ARGV[2]) end
"""
)

# KEYS: queue, filter. ARGV: the command that puts, the entry, the command that adds, and its arguments after the key.
# Returns 1 if the item was new, otherwise 0, or an error.
PUT_IF_NEW = (
    PUSH
    + """
local added = redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))[1]
if type(added) == 'table' then return added end
if added == 1 then push(ARGV[1], ARGV[2]) end
return added
"""
)

# KEYS: queue, inflight, leases. ARGV: the taker, its lease in seconds, the token, the entry, tokens that are done.
NOTE = (
    SIGN
    + """
for i = 5, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
"""
)

# KEYS: queue, inflight, leases. ARGV: the taker, its lease in seconds, the command that takes, the token, tokens that
# are done. Returns the data, or nil.
TAKE = (
    SIGN
    + """
for i = 5, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
local entry = redis.call('HGET', KEYS[2], ARGV[4])
if not entry then
  local taken = redis.call(ARGV[3], KEYS[1])
  if type(taken) == 'table' then
    if not taken[1] then return false end
    entry = taken[2] .. ' ' .. taken[1]
  elseif taken then
    entry = '0 ' .. taken
  else
    return false
  end
  redis.call('HSET', KEYS[2], ARGV[4], entry)
end
return string.sub(entry, string.find(entry, ' ', 1, true) + 1)
"""
)

# KEYS: queue, inflight, leases. ARGV: the taker, its lease in seconds, the command that puts back, the number of tokens
# that the taker holds, these tokens, and tokens that are done. Returns the number of entries that went back, and the
# number of those in flight.
SIGN_OF_LIFE = (
    PUT_BACK
    + SIGN
    + """
local held, last_held = {}, 4 + tonumber(ARGV[4])
for i = 5, last_held do held[ARGV[i]] = true end
for i = last_held + 1, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
local in_time = mine >= now
if in_time then redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. now) end
local back = put_back(ARGV[3], function(taker, token)
  if taker == ARGV[1] then return not held[token] end
  return in_time and not redis.call('ZSCORE', KEYS[3], taker)
end)
return {back, redis.call('HLEN', KEYS[2])}
"""
)

# KEYS: queue, inflight, leases. ARGV: the taker, the command that puts back, tokens that are done.
# Puts back the other entries of the taker. Returns the number of other takers that have a lease.
LEAVE = (
    PUT_BACK
    + """
for i = 3, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
put_back(ARGV[2], function(taker) return taker == ARGV[1] end)
redis.call('ZREM', KEYS[3], ARGV[1])
return redis.call('ZCOUNT', KEYS[3], redis.call('TIME')[1], '+inf')
"""
)


class Deliveries:
    """A queue of scrapy-redis, as one taker uses it."""

    def __init__(
        self,
        server: Any,
        queue: str,
        order: Order,
        *,
        lease: int,
        retries: Retries,
    ) -> None:
        """`lease`: in seconds."""
        self.server = server
        self.order = order
        self.taker = uuid.uuid4().hex
        self.lease = lease
        self.retries = retries
        notes = (beside(queue.encode(), suffix).decode() for suffix in (b":inflight", b":leases"))
        self.keys = [queue, *notes]
        self._tokens = 0
        self._held: set[str] = set()
        self._done: list[str] = []
        self._note, self._put, self._put_if_new, self._take, self._sign_of_life, self._leave = map(
            server.register_script, (NOTE, PUT, PUT_IF_NEW, TAKE, SIGN_OF_LIFE, LEAVE)
        )

    def note(self, entry: bytes) -> str:
        """Stores a new entry in the hash, as if it had been taken. `put` may then queue it. Returns its token."""
        token = self._token()
        self._reporting(self._note, self.lease, token, entry)
        self._held.add(token)
        return token

    def put(self, entry: bytes, token: str) -> None:
        """Puts a noted entry into the queue, and deletes its note."""
        self._run(lambda: self._put(self.keys[:2], [self.order.put, entry, token]))
        self._held.discard(token)

    def put_if_new(self, entry: bytes, filter_key: str, addition: Sequence[Any]) -> bool:
        """Adds an item to a filter in the same hash slot, and puts an entry into the queue if the item is new."""
        keys = [self.keys[0], filter_key]
        return bool(self._run(lambda: self._put_if_new(keys, [self.order.put, entry, *addition])))

    def take(self) -> tuple[str, bytes] | None:
        """Takes the next entry, and returns its token and its data. Returns None if the queue is empty."""
        token = self._token()
        data = self._reporting(self._take, self.lease, self.order.take, token)
        if data is None:
            return None
        self._held.add(token)
        return token, data

    def done(self, token: str) -> None:
        """Marks an entry as done. The next script that names this taker reports it to the server."""
        self._held.discard(token)
        self._done.append(token)

    def sign_of_life(self) -> tuple[int, int]:
        """Extends the lease. Returns how many entries that no living taker holds were put back, and how many are in
        flight."""
        order, held = self.order.put_back, self._held
        back, in_flight = self._reporting(self._sign_of_life, self.lease, order, len(held), *held)
        return back, in_flight

    def leave(self) -> int:
        """Puts back the entries that are not done. Returns the number of other takers at work."""
        others: int = self._reporting(self._leave, self.order.put_back)
        return others

    def clear(self) -> None:
        """Deletes the entries in flight and the leases, of all takers."""
        self._run(lambda: self.server.delete(*self.keys[1:]))

    def _token(self) -> str:
        self._tokens += 1
        return f"{self.taker}:{self._tokens}"

    def _reporting(self, script: Callable[..., Any], *arguments: str | bytes | int) -> Any:
        """Runs a script, and passes it the tokens that are done."""
        reported = list(self._done)
        answer = self._run(lambda: script(self.keys, [self.taker, *arguments, *reported]))
        del self._done[: len(reported)]
        return answer

    def _run(self, command: Callable[[], T]) -> T:
        return self.retries.until_answered(command).value
