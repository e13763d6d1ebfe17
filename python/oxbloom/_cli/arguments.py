"""The arguments that several subcommands share."""

import argparse
import os
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

Subparsers = Any  # argparse has no public name for this type

OPTIONS_END = "--"
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
DEFAULT_ERROR_RATE = 0.001  # that of BloomFilter
DEFAULT_EXPANSION = 2


class Verbatim(str):
    """An argument after `--`. It is no option, even if it begins with a dash."""


class Parser(argparse.ArgumentParser):
    """The parser of a subcommand. Its options and files may be in any order."""

    _is_mixing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._is_mixing:  # called by parse_known_intermixed_args
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        if args and OPTIONS_END in args:
            # Otherwise, the second pass of this method would take them for options.
            end = args.index(OPTIONS_END)
            args = [*args[:end], *map(Verbatim, args[end + 1 :])]
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False

    def _parse_optional(self, arg_string: str) -> Any:
        if isinstance(arg_string, Verbatim):
            return None
        return super()._parse_optional(arg_string)


def count(text: str) -> int:
    """Reads a number of items: 1000000, 1_000_000 or 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not (number.is_finite() and 1 <= number < 2**63 and number == number.to_integral_value()):
        raise argparse.ArgumentTypeError(f"not a whole number from 1 to 2^63 - 1: {text!r}")
    return int(number)


def seed(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**64):
        raise argparse.ArgumentTypeError(f"not a whole number below 2^64: {text!r}")
    return int(text)


def rate(text: str) -> float:
    """Reads an error rate: 0.01 or 1%."""
    try:
        number = float(Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1))
    except InvalidOperation:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"not an error rate above 0 and below 1: {text!r}")
    return number


def duration(text: str) -> timedelta:
    """Reads a length of time: 90 (seconds), 500ms, 30m, 12h, 7d or 2w."""
    number = text.rstrip("smhdw")
    try:
        seconds = float(number) * SECONDS[text[len(number) :] or "s"]
        length = timedelta(seconds=seconds)
    except (ValueError, KeyError, OverflowError):
        length = timedelta()
    if length <= timedelta():
        raise argparse.ArgumentTypeError(
            f"not a length of time such as 90s, 30m, 12h or 7d: {text!r}"
        )
    return length


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name the filter: a file or a key."""
    parser.add_argument(
        "filter",
        metavar="FILTER",
        type=os.fsencode,
        help="a file, or with --server a key; one that begins with a dash follows --",
    )
    parser.add_argument(
        "-s",
        "--server",
        metavar="URL",
        help="the filter is a key of this server or cluster: redis://[user@]host:port[/db], rediss:// for TLS, or "
        "unix:// and a path. The password may be in the environment variable REDISCLI_AUTH",
    )


def add_lines(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the input files."""
    parser.add_argument(
        "lines",
        metavar="FILE",
        nargs="*",
        help="files with one item per line, also compressed ones (.gz); without a file, or for -, standard input",
    )


def add_kind(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a new filter."""
    kind = parser.add_argument_group("kind of filter")
    add = kind.add_argument
    add("-c", "--capacity", metavar="N", type=count, required=True,
        help="number of distinct items that fit, such as 1000000 or 1e6")  # fmt: skip
    add("-e", "--error-rate", metavar="RATE", type=rate, default=DEFAULT_ERROR_RATE,
        help="share of false positives, such as 0.01 or 1%% (default: %(default)s)")  # fmt: skip
    add("--growing", action="store_const", const=DEFAULT_EXPANSION,
        help="grow when the filter is full")  # fmt: skip
    add("--expansion", metavar="N", type=count, dest="growing",
        help="grow by this factor (only --classic uses the number)")  # fmt: skip
    add("--counting", action="store_true", help="count the items, so that they can be removed")
    add("--window", metavar="TIME", type=duration,
        help="forget each item after this time, such as 90s, 12h or 7d")  # fmt: skip
    add("--rolling", action="store_true", help="remember the last items, as many as the capacity")
    add("--slices", metavar="N", type=count, help="slices of a window, 2 to 64 (default: 15)")
    add("--refresh", action="store_true", help="restart an item's window when it is added again")
    add("--classic", action="store_true", help="RedisBloom's layout, for servers with RedisBloom")
    add("--seed", metavar="N", type=seed,
        help="seed of the hash, which is random by default; anyone who knows it can craft collisions")  # fmt: skip


def kind_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of a new filter as the arguments of BloomFilter."""
    names = ("growing", "counting", "window", "rolling", "slices", "refresh", "classic", "seed")
    return {name: getattr(options, name) for name in names}
