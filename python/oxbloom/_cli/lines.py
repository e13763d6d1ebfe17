"""Lines of files, as bytes, a batch at a time."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from oxbloom._cli.errors import CommandError, reason
from oxbloom._cli.progress import Bar, bar

STANDARD_INPUT = "-"
READ_BYTES = 1 << 20


def batches(paths: Sequence[str], *, what: str, hidden: bool = False) -> Iterator[list[bytes]]:
    """Yields the lines of files, without their line feeds, as soon as they are there. The last needs no line feed.

    what: names the progress bar, which `hidden` hides.
    """
    paths = paths or [STANDARD_INPUT]
    with bar(total_size(paths), what=what, hidden=hidden or sys.stdin.isatty()) as shown:
        for path in paths:
            name = "standard input" if path == STANDARD_INPUT else path
            try:
                with opened(path) as file:
                    yield from lines_of(file, shown)
            except OSError as error:
                raise CommandError(f"cannot read {name}: {reason(error)}") from None


def lines_of(file: BinaryIO, shown: Bar) -> Iterator[list[bytes]]:
    begun: list[bytes] = []  # of a line whose end was not read yet
    while data := file.read(READ_BYTES):
        shown.update(len(data))
        first, *others = data.split(b"\n")
        begun.append(first)
        if others:
            *whole, last = others
            lines = [b"".join(begun), *whole]
            begun = [last]
            yield lines
    if last := b"".join(begun):
        yield [last]


def opened(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        os.set_blocking(sys.stdin.fileno(), True)  # otherwise, a pause would look like the end
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    return open(path, "rb", buffering=0)


def total_size(paths: Sequence[str]) -> int | None:
    """Returns the size of all files, or None if one of them has none."""
    total = 0
    for path in paths:
        try:
            status = os.fstat(sys.stdin.fileno()) if path == STANDARD_INPUT else os.stat(path)
        except OSError:  # which is told when the file is read
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total
