"""Pastes docs/security.md into one shell. Its users have the rights that it states, and none is left at the end.

tests/server/access/security_page.rs tests each line of the page on its own.
"""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pages
import pasting
import pytest
from pasting import Shell
from servers import OXBLOOM, Server, running, server_version

PAGE = pages.page("security.md")
BLOCKS = pages.blocks(PAGE)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(OXBLOOM) as server:
        yield server


def is_for_this_server(block: str) -> bool:
    """Returns true if a block is for this server. Some blocks start with a comment that names their servers."""
    found = re.search(r"<<'END'\n# (before )?\D*(\d+)\.(\d+)", block)
    if not found:
        return True
    is_later = server_version() >= (int(found[2]), int(found[3]))
    return is_later != bool(found[1])


def test_the_page_can_be_pasted_from_top_to_bottom(server: Server, tmp_path: Path) -> None:
    text = pasting.with_settings(PAGE, {"PORT=6379": f"PORT={server.port}"})
    with Shell(tmp_path, text) as shell:
        shown = [shell.paste(block) for block in pages.blocks(text)]
    assert len(BLOCKS) == 7
    for block, lines in zip(BLOCKS, shown, strict=True):
        if is_for_this_server(block):
            errors = [line for line in lines if re.match("[A-Z]+ ", line)]
            assert all(line.startswith("NOPERM ") for line in errors), block
            assert len(errors) == block.count("# denied"), (block, lines)
            assert len(lines) >= block.count("\n") - 3
    assert len(server.client.acl_users()) == 1


def test_the_checklist_names_the_tested_servers() -> None:
    table = re.search(r"^\| \| (Redis .*) \|$", pages.page("versions.md"), re.MULTILINE)
    answer = re.search(r"^1\. .*?^2\. ", PAGE, re.DOTALL | re.MULTILINE)
    assert table
    assert answer
    tested = [server.split()[-1] for server in table[1].split(" | ")]
    assert re.findall(r"\d\.\d", answer[0]) == tested


def test_digests_are_of_one_length_and_keyed(tmp_path: Path) -> None:
    (code,) = pages.blocks(PAGE, "python")
    (tmp_path / "digests.py").write_text(code)
    digest = runpy.run_path(str(tmp_path / "digests.py"))["digest"]
    one, other = (digest(b"item", key * 16) for key in (b"a", b"b"))
    assert len(one) == len(other) == 16
    assert one != other
