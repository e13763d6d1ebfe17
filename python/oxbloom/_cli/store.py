"""Loads filters from files and keys, and saves them there."""

import argparse
import errno
import os
import stat
import sys
from functools import partial

from oxbloom import _files
from oxbloom._cli.errors import CommandError, reason
from oxbloom._cli.progress import reported
from oxbloom._cli.text import shown
from oxbloom._oxbloom import BloomFilter

STANDARD = b"-"
"""The name of standard input and output, instead of a file."""

NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def load(options: argparse.Namespace) -> BloomFilter:
    """Loads the filter in a file or a key."""
    if options.server is None:
        return load_file(options.filter)
    from oxbloom._cli import servers

    client = servers.connect_for_filter(options.server, "BF.SCANDUMP")
    try:
        with servers.errors(client, options.filter), reported("loading") as progress:
            return BloomFilter.load_from(client, options.filter, progress=progress)
    except KeyError:
        raise CommandError(f"the server has no key {shown(options.filter)}") from None
    except (ValueError, RuntimeError) as error:
        raise CommandError(f"key {shown(options.filter)}: {error}") from None


def load_file(path: bytes) -> BloomFilter:
    try:
        if path == STANDARD:
            return BloomFilter.fromfile(sys.stdin.buffer)
        return BloomFilter.fromfile(path)
    except OSError as error:
        raise CommandError(f"cannot read {shown(path)}: {reason(error)}") from None
    except ValueError as error:
        raise CommandError(f"{shown(path)}: {error}") from None


def load_to_replace(path: bytes) -> tuple[BloomFilter, "File | Output"]:
    """Loads the filter in a file, and returns it with the destination that replaces it."""
    filter = load_file(path)
    return filter, Output() if path == STANDARD else File(path, replace=True, is_loaded=True)


class File:
    """A file for a new filter, which is saved completely or not at all."""

    def __init__(self, path: bytes, replace: bool, *, is_loaded: bool = False) -> None:
        """Checks that the file may be written. `is_loaded`: the caller has loaded a filter from it."""
        self.path = os.path.realpath(path)  # replaces the target of a link, not the link
        self.replace = replace
        self.name = shown(path)
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            folder = os.path.dirname(self.path)
            if not os.path.isdir(folder):
                raise CommandError(f"cannot write {self.name}: no such folder") from None
        except OSError as error:
            raise CommandError(f"cannot write {self.name}: {reason(error)}") from None
        else:
            if not stat.S_ISREG(status.st_mode):
                raise CommandError(f"{self.name} is no regular file")
            if not replace:
                raise self.exists()
            if status.st_size and not is_loaded:
                self.check_replaced()

    def check_replaced(self) -> None:
        try:
            load_file(self.path)
        except CommandError as error:
            raise CommandError(
                f"{error}: --replace overwrites filters only, so delete the file first"
            ) from None

    def exists(self) -> CommandError:
        return CommandError(f"{self.name} exists: use --replace to overwrite it")

    def save(self, filter: BloomFilter) -> None:
        try:
            _files.save(filter, self.path, os.replace if self.replace else self.publish)
        except OSError as error:
            raise CommandError(f"cannot write {self.name}: {reason(error)}") from None

    def publish(self, temporary: bytes, path: bytes) -> None:
        """Renames a temporary file, unless another file has got the name by now."""
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise self.exists() from None
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            if os.path.lexists(path):
                raise self.exists() from None
            os.rename(temporary, path)


class Output:
    """Standard output, for the bytes of a filter."""

    name = "standard output"

    def save(self, filter: BloomFilter) -> None:
        try:
            filter.tofile(sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except OSError as error:
            raise CommandError(f"cannot write {self.name}: {reason(error)}") from None


class Key:
    """A key for a new filter, which is saved completely or not at all."""

    def __init__(self, url: str, key: bytes, replace: bool) -> None:
        from oxbloom._cli import servers

        self.key, self.replace = key, replace
        self.name = shown(key)
        self.client = servers.connect_for_filter(url, "BF.LOADCHUNK")
        self.errors = partial(servers.errors, self.client, key)
        with self.errors():
            if replace:
                servers.check_replaced(self.client, key)
            elif self.client.execute_command("EXISTS", key):
                raise key_exists(key)

    def save(self, filter: BloomFilter) -> None:
        try:
            with self.errors(), reported("saving") as progress:
                filter.save_to(self.client, self.key, replace=self.replace, progress=progress)
        except KeyError:
            raise key_exists(self.key) from None
        except RuntimeError as error:
            raise CommandError(f"key {self.name}: {error}") from None


def key_exists(key: bytes) -> CommandError:
    return CommandError(f"the key {shown(key)} exists: use --replace to overwrite it")


Destination = File | Key | Output


def destination(options: argparse.Namespace) -> Destination:
    """Returns the destination of a new filter. Fails if it exists, unless --replace is set."""
    if options.server is not None:
        return Key(options.server, options.filter, options.replace)
    if options.filter == STANDARD:
        return Output()
    return File(options.filter, options.replace)
