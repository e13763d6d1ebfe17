"""Errors of the command, and how they are told."""

import sys

ERROR = 2  # the exit status after an error, as of grep


class CommandError(Exception):
    """A reason to give up, in one line for the user."""


def say(line: str) -> None:
    """Writes a line to standard error, above a progress bar if there is one."""
    tqdm = sys.modules.get("tqdm")
    if tqdm is None:
        print(line, file=sys.stderr)
    else:
        tqdm.tqdm.write(line, file=sys.stderr)


def reason(error: OSError) -> str:
    """Returns what the system says of an error."""
    return error.strerror or str(error)
