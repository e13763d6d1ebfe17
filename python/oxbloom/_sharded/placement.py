"""Computes the keys of a sharded filter, the shard of an item, and the capacity of each shard.

A filter of N shards has N keys. Each key holds a filter with a part of the capacity. All programs, in any language,
must agree on two things:

* **The shard of an item** is the CRC-32 of its bytes (the one of zlib, PNG and gzip), modulo N. Text is encoded as
  UTF-8.
* **The key of shard i** of the filter `name` is `{tag}:name:i/N`. The tag is the smallest number, in decimal digits,
  whose hash slot lies in the i-th of N equal parts of a cluster's 16384 slots: `slot(tag) * N / 16384`, rounded down,
  is i. A hash slot is the CRC-16 (XMODEM) of the tag modulo 16384, as in every client for clusters. With one shard, the
  key is `name` itself.

So the shards are spread evenly over the hash slots. They are also spread evenly over the masters if these have equal,
contiguous parts of the slots, as after `redis-cli --cluster create`.

The capacity of a shard is an N-th of the whole, plus five standard deviations. The number of items in a shard has a
binomial distribution: for n items in total, the mean is n / N, and the standard deviation is below its square root.
In a full filter with a mean of a million items, at most one shard in three million has more items than its capacity.
With a mean of a hundred items, it is one in 800,000. The five deviations cost 0.5 % of memory with a million items a
shard, and 5 % with 10,000.
"""

import math
import zlib

from oxbloom._slots import SLOTS, tags

DEVIATIONS = 5


def shard_of(item: bytes, shards: int) -> int:
    """Returns the number of the shard of an item, from 0.

    >>> shard_of(b"https://example.com/", 16)
    4
    """
    return zlib.crc32(item) % shards


def keys(name: str, shards: int) -> list[str]:
    """Returns the keys of a filter, one for each shard.

    >>> keys("seen", 3)
    ['{3}:seen:0/3', '{1}:seen:1/3', '{0}:seen:2/3']
    >>> keys("seen", 1)
    ['seen']
    """
    if not 1 <= shards <= SLOTS:
        raise ValueError(f"shards must be 1 to {SLOTS}, not {shards}")
    if not isinstance(name, str if shards > 1 else str | bytes):
        raise TypeError(f"the name of a filter must be a str, not {type(name).__name__}")
    if shards == 1:
        return [name]
    return [f"{{{tag}}}:{name}:{shard}/{shards}" for shard, tag in enumerate(tags(shards))]


def capacity_of_each(capacity: int, shards: int) -> int:
    """Returns the capacity of each shard, so that `capacity` items fit into all of them together.

    >>> capacity_of_each(16_000_000, 16)
    1005000
    """
    if shards == 1:
        return capacity
    mean = capacity / shards
    return min(capacity, math.ceil(mean + DEVIATIONS * math.sqrt(mean)))
