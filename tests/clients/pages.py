"""Reads pages of the documentation for tests: sections, code, and redis-cli sessions."""

import contextlib
import re
import subprocess
import textwrap

import redis
from servers import HOST, ROOT, Server

CLI = "redis-cli"
# A command after redis-cli's prompt, and its reply.
TYPED = r"^127\.0\.0\.1:6379> (?P<command>.*)\n(?P<reply>(?:(?!127\.0\.0\.1|\$ |```).*\n)+)"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def section(text: str, heading: str) -> str:
    """Returns the text from a heading of the second level to the next one."""
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found, heading
    return found[1]


def blocks(text: str, *languages: str) -> list[str]:
    """Returns the code blocks in these languages (by default, sh), in the order of the page and without indentation."""
    fence = rf"^ *```(?:{'|'.join(languages or ['sh'])})\n(.*?)^ *```"
    return [textwrap.dedent(code) for code in re.findall(fence, text, re.DOTALL | re.MULTILINE)]


def typed(text: str) -> list[tuple[str, str]]:
    """Returns the commands that a page types into redis-cli, with the replies that it shows."""
    console = "".join(blocks(text, "console"))
    return [
        (found["command"], found["reply"]) for found in re.finditer(TYPED, console, re.MULTILINE)
    ]


def redis_cli(server: Server, command: str) -> str:
    """Returns the output of redis-cli for a command."""
    program = [CLI, "-h", HOST, "-p", str(server.port), "--no-raw"]
    done = subprocess.run(
        program, input=f"{command}\n", stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def run_python(server: Server, code: str) -> None:
    """Runs code that connects to the default port. It connects to the port of `server` instead."""
    with contextlib.ExitStack() as stack:
        names: dict = {}
        exec(re.sub(r"\b(redis(?:\.asyncio)?\.Redis)\(", rf"\1(port={server.port}, ", code), names)  # noqa: S102
        # The code does not close its connection.
        for value in names.values():
            if isinstance(value, redis.Redis):
                stack.callback(value.close)
