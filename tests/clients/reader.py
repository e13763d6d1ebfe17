"""Follows pages of the documentation from top to bottom, as readers do, and checks that each block prints what it shows.

Shell code is pasted into one shell. Commands are typed into redis-cli or into this shell. Python code runs in one
process. Where a page says that time passes, the module's clock is set.
"""

import contextlib
import io
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Self

import redis
from pages import TYPED
from pasting import Shell
from servers import HOST, Server, set_clock

CLI = "redis-cli"
BEGIN = 1_800_000_000
SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
STEP = re.compile(
    r"\*\*(?P<number>\d+) (?P<unit>minute|hour|day)s? later"
    r"|^ *```(?P<language>sh|console|python)\n(?P<code>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
LINE = re.compile(
    rf"{TYPED}|^\$ (?P<line>.*)\n(?P<shown>(?:(?!\$ |127\.0\.0\.1).*\n)*)", re.MULTILINE
)
# Commands that install something, or do not return.
NOT_TYPED = re.compile(r"(make|pip|sudo|redis-server)\b|redis-cli$")
# Commands, with the comments that say what they print.
IN_SHELL = re.compile(r"^redis-cli .*?(?: +# (.*))?$", re.MULTILINE)
IN_PYTHON = re.compile(r"^ *print\(.*\) +# (.*)$", re.MULTILINE)


def redis_cli(server: Server, command: str) -> str:
    """Returns the output of redis-cli for a command."""
    program = [CLI, "-h", HOST, "-p", str(server.port), "--no-raw"]
    done = subprocess.run(
        program, input=f"{command}\n", stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


class Reader:
    """A reader of a page, with a server on the default port, an empty folder, and a time."""

    def __init__(
        self, server: Server, folder: Path, text: str, *, is_again: bool, is_fresh: bool
    ) -> None:
        """is_again: the page was followed before. is_fresh: Python code starts on a server without keys."""
        self.server, self.folder, self.is_again, self.is_fresh = server, folder, is_again, is_fresh
        ports = {"PORT=6379": f"PORT={server.port}", "redis://localhost:6379": server.url}
        settings = {on_the_page: here for on_the_page, here in ports.items() if on_the_page in text}
        self.shell = Shell(folder, text, settings, directory=folder, port=server.port)
        self.names: dict = {}  # the variables of the Python code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shell.close()

    def follow(self) -> None:
        """Follows the page to its end."""
        steps, now = list(STEP.finditer(self.shell.page)), BEGIN
        if any(step["number"] for step in steps):
            set_clock(self.server, now)
        for step in steps:
            if step["number"]:
                now += int(step["number"]) * SECONDS[step["unit"]]
                set_clock(self.server, now)
            else:
                follow = {"sh": self.paste, "console": self.type, "python": self.run}
                follow[step["language"]](textwrap.dedent(step["code"]))

    def paste(self, code: str) -> None:
        printed = self.shell.paste(code)
        if shown := IN_SHELL.findall(code):
            assert printed == ", ".join(shown).split(", "), code
        # A comment at the start of a line names the servers for which a block is.
        if not re.search("^# ", code, re.MULTILINE):
            denied = [line for line in printed if line.startswith("NOPERM ")]
            assert len(denied) == code.count("# denied"), code

    def type(self, code: str) -> None:
        lines = list(LINE.finditer(code))
        assert "".join(line[0] for line in lines) == code
        for line in lines:
            if line["command"]:
                assert redis_cli(self.server, line["command"]) == line["reply"], line["command"]
            elif line["shown"]:
                printed = self.shell.paste(f"{{ {line['line']}; }} 2>&1 || true")
                assert printed == line["shown"].splitlines(), line["line"]
            elif not NOT_TYPED.match(line["line"]):
                # redis-cli succeeds even if the reply is an error.
                printed = self.shell.paste(line["line"])
                assert not any(re.match("[A-Z]{3,} ", reply) for reply in printed), printed

    def run(self, code: str) -> None:
        if self.is_fresh:
            self.server.client.flushall()
        # After `True` or `False`, a comment may explain it.
        said = [re.sub("^(True|False): .*", r"\1", words) for words in IN_PYTHON.findall(code)]
        assert len(said) == code.count("print("), code
        said = [words.split("; when you run it again, ")[-self.is_again] for words in said]
        port = rf"\1(port={self.server.port}, "
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.chdir(self.folder):
            exec(re.sub(r"\b(redis(?:\.asyncio)?\.Redis)\(", port, code), self.names)  # noqa: S102
        # The code does not close its connections.
        for value in self.names.values():
            if isinstance(value, redis.Redis):
                value.close()
        printed = output.getvalue().splitlines()
        # A loop prints more lines like the one that is shown.
        if said and said[-1].endswith(", ..."):
            printed[len(said) - 1 :] = [f"{printed[len(said) - 1]}, ..."]
        assert printed == said, code
