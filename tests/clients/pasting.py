"""Pastes pages of the documentation into a shell, as readers do.

The shell only knows what the page defines. It exits at a variable without a value (`set -u`) and when a command fails.
A command that does not return fails the test.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest
import redis
from pages import blocks, section
from servers import HOST, ONCE, ROOT, WITHIN

DONE = "### done"
# The variables that every shell has.
GIVEN = {"HOME", "PATH", "PWD"}
# Files that pages read into their shell.
FUNCTIONS = ["examples/keys_of_type.sh", "examples/wait_until.sh"]


def with_settings(text: str, settings: dict[str, str]) -> str:
    """Returns a page with settings such as `NAME=value` replaced by those of the test."""
    for file in FUNCTIONS:
        text = text.replace(f". {file}\n", f". {ROOT / file}\n")
    for on_the_page, here in settings.items():
        assert on_the_page in text, on_the_page
        text = text.replace(on_the_page, here)
    return text


def programs_at(folder: Path, port: int) -> Path:
    """Creates a folder with a `redis-cli` that connects to this port by default, and with `oxbloom`."""
    program = shutil.which("redis-cli")
    assert program
    folder.mkdir()
    (folder / "redis-cli").write_text(f'#!/bin/sh\nexec {program} -h {HOST} -p {port} "$@"\n')
    (folder / "redis-cli").chmod(0o755)
    (folder / "oxbloom").symlink_to(Path(sys.executable).with_name("oxbloom"))
    return folder


class Shell:
    """A shell into which a page is pasted. `page` is the text of the page with the settings of the test."""

    def __init__(
        self,
        folder: Path,
        text: str,
        settings: dict[str, str] | None = None,
        *,
        directory: Path = ROOT,
        port: int | None = None,
        serves: Iterable[int] = (),
        **environment: str,
    ) -> None:
        """Starts the shell. If a port is given, its `redis-cli` connects to it by default.

        serves: the ports of the servers that the page starts. They are stopped in the end.
        """
        self.serves = serves
        self.page = with_settings(text, settings or {})
        named = set(re.findall(r"\$\{?(\w+)", "\n".join(blocks(text)))) - GIVEN
        known = {name: value for name, value in os.environ.items() if name not in named}
        if port:
            known["PATH"] = f"{programs_at(folder / 'programs', port)}:{known['PATH']}"
        self.errors = folder / f"errors-{id(self)}"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                ["bash", "-eu", "-o", "pipefail"],
                cwd=directory,
                env=known | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def blocks(self, heading: str) -> list[str]:
        """Returns the blocks of commands below a heading of the page."""
        return blocks(section(self.page, heading))

    def paste(self, *code: str) -> list[str]:
        """Pastes code, and returns the lines that it prints. Fails the test if this takes too long."""
        lines = []
        late = threading.Timer(WITHIN, self.end)
        late.start()
        try:
            assert self.process.stdin
            assert self.process.stdout
            self.process.stdin.write("\n".join([*code, f"echo '{DONE}'\n"]))
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line == f"{DONE}\n":
                    return lines
                lines.append(line.rstrip("\n"))
        except BrokenPipeError:
            pass
        finally:
            late.cancel()
        errors = self.errors.read_text(errors="replace")[-5000:]
        pytest.fail(f"{''.join(code)}\n{lines}\n{errors}", pytrace=False)

    def text(self, *code: str) -> str:
        """Pastes code, and returns what it prints."""
        return "\n".join(self.paste(*code))

    def end(self) -> None:
        """Kills the shell, and all processes in its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kills the shell, and stops the servers that the page started."""
        self.end()
        self.process.wait(WITHIN)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()
        for port in self.serves:
            with redis.Redis(HOST, port, retry=ONCE) as client, suppress(redis.ConnectionError):
                client.shutdown(nosave=True)
