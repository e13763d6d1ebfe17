"""Reads pages of the documentation for tests: sections, code, and redis-cli sessions."""

import re
import textwrap

from servers import ROOT

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
