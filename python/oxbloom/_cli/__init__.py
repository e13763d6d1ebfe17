"""The command `oxbloom`, which works with filters in files and in keys of servers.

Each subcommand is a module with a function `add_to`, which declares its arguments, and a function `run`, which returns
the exit status. They share `arguments`, `lines` (reads the input), `progress` and `servers`. Modules that need redis-py
or plotille are only imported when they are used.
"""

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from oxbloom import __version__, module_path
from oxbloom._cli import add, build, check, copy_arguments, fold, follow, info, merge, size
from oxbloom._cli.arguments import Parser
from oxbloom._cli.errors import ERROR, CommandError, reason, say

STATUS_OF_SIGNALS = 128  # shells add this to a signal's number
TERMINATING = (signal.SIGTERM, signal.SIGHUP)

DESCRIPTION = """\
Bloom filters in files and in keys of Redis and Valkey servers.

A filter is a file, unless --server names a server: then it is a key of this server.
"""


class Terminated(KeyboardInterrupt):
    """Raised by a signal that ends the process, so that unfinished files and keys are deleted."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names may have characters that the encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    for number in TERMINATING:
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, terminate)
    try:
        status = run(parser().parse_args(arguments))
        sys.stdout.flush()
        return status
    except CommandError as error:
        say(f"oxbloom: {error}")
    except ImportError as error:  # from `require`
        if error.name != "redis":
            raise
        say(f"oxbloom: {error}")
    except BrokenPipeError:  # the reader of the output has closed it
        return STATUS_OF_SIGNALS + signal.SIGPIPE
    except OSError as error:
        say(f"oxbloom: cannot write the output: {reason(error)}")
    except MemoryError as error:
        say(f"oxbloom: {error or 'not enough memory'}")
    except Terminated as terminated:
        return STATUS_OF_SIGNALS + terminated.number
    except KeyboardInterrupt as interrupt:
        say(f"oxbloom: interrupted{''.join(map(str, interrupt.args))}")
        return STATUS_OF_SIGNALS + signal.SIGINT
    finally:
        discard_output()
    return ERROR


def run(options: argparse.Namespace) -> int:
    command: int = options.run(options)
    return command


def terminate(number: int, _frame: FrameType | None) -> None:
    raise Terminated(number)


def discard_output() -> None:
    """Writes the rest of the output. If that fails, drops it, so that Python does not try it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    whole = argparse.ArgumentParser(
        prog="oxbloom",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"oxbloom {__version__}")
    commands = whole.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=Parser
    )
    for module in (build, add, merge, fold, check, info, size, follow, copy_arguments):
        module.add_to(commands)
    path = commands.add_parser(
        "module-path",
        help="print the path of the server module",
        description="Prints the path of the server module in this package, for a server's loadmodule.",
    )
    path.set_defaults(run=print_module_path)
    return whole


def print_module_path(_options: argparse.Namespace) -> int:
    try:
        print(module_path())
    except FileNotFoundError as error:
        raise CommandError(str(error)) from None
    return 0
