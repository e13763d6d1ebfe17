"""Computes the hash slots of keys in a cluster, and finds keys that lie in given slots."""

import functools
from binascii import crc_hqx
from itertools import count

SLOTS = 16384


def hash_slot(key: bytes) -> int:
    """Returns the hash slot of a key."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return crc_hqx(tag, 0) % SLOTS


def beside(key: bytes, suffix: bytes) -> bytes:
    """Returns a name for another key in the same hash slot. The same arguments always give the same name.

    >>> beside(b"seen", b":copy"), beside(b"{user}:seen", b":copy")
    (b'{seen}:copy', b'{user}:seen:copy')
    """
    slot = hash_slot(key)
    for name in (key + suffix, b"{" + key + b"}" + suffix):
        if hash_slot(name) == slot:
            return name
    # Some keys with braces, such as `}{`, need the numeric tag of their slot.
    return b"{%d}" % tags(SLOTS)[slot] + key + suffix


@functools.cache
def tags(parts: int) -> tuple[int, ...]:
    """For each of `parts` equal ranges of hash slots, returns the smallest number whose own slot, as a key, is in it.

    >>> tags(3)
    (3, 1, 0)
    """
    found: dict[int, int] = {}
    numbers = count()
    while len(found) < parts:
        number = next(numbers)
        found.setdefault(hash_slot(b"%d" % number) * parts // SLOTS, number)
    return tuple(found[part] for part in range(parts))
