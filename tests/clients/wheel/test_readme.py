"""python/README.md, taken at its word: its code prints what its comments say, also when it is run again."""

import re

import pages
from servers import ROOT, Server

PAGE = (ROOT / "python/README.md").read_text()
PRINT = re.compile(r"^print\(.*\)  # (.*?)(?:: .*)?$", re.MULTILINE)


def test_the_code_prints_what_its_comments_say(server: Server, capsys) -> None:
    # The blocks build on each other.
    code = "\n".join(pages.blocks(PAGE, "python"))
    said = PRINT.findall(code)
    assert len(said) == code.count("print(") > 10
    for _ in range(2):
        pages.run_python(server, code)
        assert capsys.readouterr().out.splitlines() == said
    assert server.client.keys() == [b"seen"]
