"""Pages of documentation as tests read them: sections, code, and what is typed into redis-cli."""

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
    """The text below a heading of the second level, up to the next."""
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found, heading
    return found[1]


def blocks(text: str, *languages: str) -> list[str]:
    """The blocks of code in some languages, in the page's order, without their indentation. By default, those of the shell."""
    fence = rf"^ *```(?:{'|'.join(languages or ['sh'])})\n(.*?)^ *```"
    return [textwrap.dedent(code) for code in re.findall(fence, text, re.DOTALL | re.MULTILINE)]


def typed(text: str) -> list[tuple[str, str]]:
    """The commands that are typed into redis-cli, and the replies that are shown."""
    console = "".join(blocks(text, "console"))
    return [
        (found["command"], found["reply"]) for found in re.finditer(TYPED, console, re.MULTILINE)
    ]


def redis_cli(server: Server, command: str) -> str:
    """What redis-cli prints when a command is typed into it."""
    program = [CLI, "-h", HOST, "-p", str(server.port), "--no-raw"]
    done = subprocess.run(
        program, input=f"{command}\n", stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def run_python(server: Server, code: str) -> None:
    """Runs code that is written for a server on the usual port."""
    with contextlib.ExitStack() as stack:
        names: dict = {}
        exec(code.replace("redis.Redis(", f"redis.Redis(port={server.port}, "), names)  # noqa: S102
        # The code leaves its connection to Python to close.
        for value in names.values():
            if isinstance(value, redis.Redis):
                stack.callback(value.close)
