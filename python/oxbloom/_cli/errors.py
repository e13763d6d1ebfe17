"""The errors of the command, and messages to standard error."""

import sys

ERROR = 2  # the exit status after an error, as in grep


class CommandError(Exception):
    """An error that ends the command. Its text is one line for the user."""


def say(line: str) -> None:
    """Writes a line to standard error, above a progress bar if there is one."""
    tqdm = sys.modules.get("tqdm")
    if tqdm is None:
        print(line, file=sys.stderr)
    else:
        tqdm.tqdm.write(line, file=sys.stderr)


def reason(error: OSError) -> str:
    """Returns the system's text for an error."""
    return error.strerror or str(error)
