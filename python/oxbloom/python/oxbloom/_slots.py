"""Names of temporary keys in the slot of another key, so that a cluster can rename one to the other."""

import functools
from binascii import crc_hqx

SLOTS = 16384


def slot_of(key: bytes) -> int:
    """Returns the slot of a key in a cluster."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return crc_hqx(tag, 0) % SLOTS


def temporary_name(key: bytes, suffix: bytes) -> bytes:
    """Returns a name in the slot of a key, always the same one for a key and a suffix."""
    slot = slot_of(key)
    for name in (key + suffix, b"{" + key + b"}" + suffix):
        if slot_of(name) == slot:
            return name
    # A key with braces of its own, such as `}{`, goes with a number of the same slot.
    return b"{%d}" % _numbers_by_slot()[slot] + key + suffix


@functools.cache
def _numbers_by_slot() -> dict[int, int]:
    return {slot_of(b"%d" % number): number for number in range(1 << 18)}  # these reach all slots
