"""Reads lines of files as bytes, in blocks of whole lines."""

import errno
import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, cast

from oxbloom._cli.errors import CommandError, reason
from oxbloom._cli.progress import Bar, bar
from oxbloom._oxbloom import Chunk

STANDARD_INPUT = "-"
READ_BYTES = 1 << 18
"""A server handles the lines of a block in one command: some ten thousand, in a millisecond."""

COMPRESSED = ".gz"
UTF_8_MARK = b"\xef\xbb\xbf"
"""Some editors put this in front of a text. It belongs to no line."""


def blocks(paths: Sequence[str], *, what: str, hidden: bool = False) -> Iterator[Chunk]:
    """Yields the lines of files in blocks, as soon as they can be read.

    The last line needs no line feed. `what` is the name of the progress bar, which `hidden` hides. It is also hidden
    while the user types lines.
    """
    paths = paths or [STANDARD_INPUT]
    is_typed = STANDARD_INPUT in paths and bool(sys.stdin) and sys.stdin.isatty()
    with bar(total_size(paths), what=what, hidden=hidden or is_typed) as shown:
        for path in paths:
            name = "standard input" if path == STANDARD_INPUT else path
            try:
                with opened(path) as file:
                    yield from blocks_of(file, shown)
            except (EOFError, zlib.error) as error:
                raise CommandError(f"cannot read {name}: {error}") from None
            except OSError as error:
                raise CommandError(f"cannot read {name}: {reason(error)}") from None


def blocks_of(file: BinaryIO, shown: Bar) -> Iterator[Chunk]:
    begun: list[bytes] = []  # parts of a line whose end was not read yet
    first_bytes = True
    while data := file.read(READ_BYTES):
        shown.update(len(data))
        if first_bytes:
            data = data.removeprefix(UTF_8_MARK)
            first_bytes = False
        end = data.rfind(b"\n") + 1
        if end:
            yield Chunk.of_lines(b"".join([*begun, data[:end]]))
            begun = []
        begun.append(data[end:])
    if last := b"".join(begun):
        yield Chunk.of_lines(last)


def opened(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        os.set_blocking(standard_input(), True)  # otherwise, a pause would look like the end
        return open(standard_input(), "rb", buffering=0, closefd=False)
    if path.endswith(COMPRESSED):
        return cast("BinaryIO", gzip.open(path))
    return open(path, "rb", buffering=0)


def standard_input() -> int:
    """Returns the descriptor of standard input. Raises OSError if the caller has closed it."""
    if not sys.stdin:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.fileno()


def total_size(paths: Sequence[str]) -> int | None:
    """Returns the total size of the files, or None if one is not a regular file, or compressed."""
    total = 0
    for path in paths:
        try:
            status = os.fstat(standard_input()) if path == STANDARD_INPUT else os.stat(path)
        except OSError:  # reported when the file is read
            return None
        if not stat.S_ISREG(status.st_mode) or path.endswith(COMPRESSED):
            return None
        total += status.st_size
    return total
