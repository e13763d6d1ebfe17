"""Runs the command `oxbloom` for tests, and writes its input."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from oxbloom import BloomFilter
from servers import WITHIN, hear_interrupts

OXBLOOM_COMMAND = [sys.executable, "-m", "oxbloom"]
MILLION = 1_000_000


class Done:
    """The exit status and the output of a command."""

    def __init__(self, status: int, output: bytes, errors: bytes) -> None:
        self.status, self.output, self.errors = status, output, errors.decode()

    @property
    def lines(self) -> list[bytes]:
        return self.output.splitlines()


def run(*arguments: object, stdin: bytes = b"", status: int = 0, **more: Any) -> Done:
    command = [
        *OXBLOOM_COMMAND,
        *(each if isinstance(each, bytes) else str(each) for each in arguments),
    ]
    done = subprocess.run(
        command, input=stdin, capture_output=True, timeout=WITHIN, check=False, **more
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode == status, (done.stdout, done.stderr)
    return Done(done.returncode, done.stdout, done.stderr)


def fails(*arguments: object, stdin: bytes = b"", **more: Any) -> str:
    """Runs a command that fails. Returns its error, which is one line."""
    done = run(*arguments, stdin=stdin, status=2, **more)
    assert done.output == b""
    assert done.errors.count("\n") == 1, done.errors
    assert done.errors.startswith("oxbloom: ")
    return done.errors.removeprefix("oxbloom: ").strip()


def start(*arguments: object, **more: Any) -> subprocess.Popen:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*OXBLOOM_COMMAND, *map(str, arguments)],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        preexec_fn=hear_interrupts,  # noqa: PLW1509
        **more,
    )


def ends(process: subprocess.Popen, status: int = 0) -> str:
    """Waits until a process exits. Returns what it wrote: its errors, then its output."""
    output, errors = process.communicate(timeout=WITHIN)
    assert process.returncode == status, (output, errors)
    assert b"Traceback" not in errors
    return (errors + output).decode()


def write(path: Path, lines: list[bytes], *, last: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(lines) + last)
    return path


def odd_lines(seed: int, count: int) -> list[bytes]:
    """Returns lines of any bytes and lengths. Some occur several times."""
    rng = random.Random(seed)
    lines = [b"", b"\r", b" ", "фильтр".encode(), b"\xff\xfe\x00", b"a\rb", b"x" * 3_000_000]
    while len(lines) < count:
        lines.append(rng.randbytes(rng.randrange(1, 30)).replace(b"\n", b"\t"))
        if rng.random() < 0.2:
            lines.append(rng.choice(lines[:6]))
    rng.shuffle(lines)
    return lines


def lines_of(output: bytes) -> list[bytes]:
    """Returns the lines of an output. Only line feeds separate them."""
    *lines, nothing = output.split(b"\n")
    assert nothing == b""
    return lines


def old_filter(path: Path) -> bytes:
    """Writes a filter to a file, and returns the content of the file."""
    BloomFilter(10).tofile(path)
    return path.read_bytes()


def run_code(code: str, *arguments: str) -> None:
    """Runs Python code in a process of its own, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stderr
