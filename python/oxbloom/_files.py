"""Saves filters in files, completely or not at all."""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress

from oxbloom._oxbloom import BloomFilter

LONGEST = 200  # bytes of the file's name in that of its temporary file
NEW = 0o666  # the permissions of a new file, of which the umask removes some
UNSYNCHRONIZED = (
    errno.EACCES,
    errno.EINVAL,
)  # folders that may not be read, or whose file system cannot do it

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Publish = Callable[[bytes, bytes], None]


def save(filter: BloomFilter, path: Path, publish: Publish = os.replace) -> None:
    """Saves a filter. After an error, the old file is still there, or the new one is complete.

    A link is followed. The new file has the permissions of the old one.

    publish: gives the temporary file, whose name it gets first, the name of the file.
    """
    name = os.fsencode(os.path.realpath(path))
    mode = None
    with suppress(FileNotFoundError):
        mode = os.stat(name).st_mode
    if mode is not None and not stat.S_ISREG(mode):
        # A device or a pipe cannot be replaced.
        with open(name, "wb") as file:
            filter.tofile(file)
        return
    folder, base = os.path.split(name)
    unique = b".%s.unfinished" % secrets.token_hex(8).encode()
    temporary = os.path.join(folder, base[:LONGEST] + unique)
    try:
        with open(temporary, "xb", opener=opener(mode)) as file:
            filter.tofile(file)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, name)
        # Otherwise, a power failure could bring the old file back.
        synchronize(folder)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def opener(mode: int | None) -> Callable[[str, int], int]:
    """Returns a function that creates a file with the permissions of an old one, if there is one."""

    def create(name: str, flags: int) -> int:
        descriptor = os.open(name, flags, NEW if mode is None else stat.S_IMODE(mode))
        if mode is not None:
            # The umask has removed some. Some file systems have none.
            with suppress(PermissionError):
                os.fchmod(descriptor, stat.S_IMODE(mode))
        return descriptor

    return create


def synchronize(folder: bytes) -> None:
    """Makes the names in a folder permanent."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCHRONIZED:
            raise
