"""Where the parts of a sharded filter lie, and which of them an item belongs to.

A filter of N shards is N keys, each of them a filter of its own with a share of the capacity. All clients must agree on two
things, whatever language they are written in:

* **The shard of an item** is the CRC-32 of its bytes (the one of zlib, PNG and gzip), modulo N. Text is encoded as UTF-8.
* **The key of shard i** of the filter `name` is `{tag}:name:i/N`. The tag is the smallest number, in decimal digits, whose hash
  slot lies in the i-th of N equal parts of a cluster's 16384 slots: `slot(tag) * N / 16384`, rounded down, is i. A hash slot is
  the CRC-16 (XMODEM) of the tag modulo 16384, as in every client for clusters. With one shard the key is `name` itself.

So the shards lie in N hash slots that are spread evenly, and so on all primaries alike, as long as these have equal, contiguous
parts of the slots, as `redis-cli --cluster create` deals them out.

A shard holds the capacity's N-th part and five standard deviations more. How many of n items fall to one of N shards is
binomially distributed, with a mean of n / N and a deviation below its square root. When the whole is full, more than that has
fallen to one shard in three million at most if there are a million items for each, to one in 800,000 if there are a hundred. It
costs 0.5 % of memory with a million items a shard, 5 % with 10,000.
"""

import math
import zlib

from oxbloom._slots import SLOTS, tags

DEVIATIONS = 5


def shard_of(item: bytes, shards: int) -> int:
    """The number of the shard that an item belongs to, from 0.

    >>> shard_of(b"https://example.com/", 16)
    4
    """
    return zlib.crc32(item) % shards


def keys(name: str, shards: int) -> list[str]:
    """The keys of a filter, one for each shard.

    >>> keys("seen", 3)
    ['{3}:seen:0/3', '{1}:seen:1/3', '{0}:seen:2/3']
    >>> keys("seen", 1)
    ['seen']
    """
    if not 1 <= shards <= SLOTS:
        raise ValueError(f"shards must be 1 to {SLOTS}, not {shards}")
    if shards == 1:
        return [name]
    return [f"{{{tag}}}:{name}:{shard}/{shards}" for shard, tag in enumerate(tags(shards))]


def capacity_of_each(capacity: int, shards: int) -> int:
    """How many items each shard must have room for, so that `capacity` items fit into all of them.

    >>> capacity_of_each(16_000_000, 16)
    1005000
    """
    if shards == 1:
        return capacity
    mean = capacity / shards
    return min(capacity, math.ceil(mean + DEVIATIONS * math.sqrt(mean)))
