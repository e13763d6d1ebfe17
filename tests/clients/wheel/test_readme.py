"""Follows python/README.md: its commands install the package and start a server, and its code prints what its comments
say, also when it runs again."""

import os
import re
from pathlib import Path

import oxbloom
import pages
import redis
from pasting import Shell, with_settings
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from servers import HOST, ROOT, Server, free_port

PAGE = (ROOT / "python/README.md").read_text()
UNTIL_IT_RUNS = Retry(ConstantBackoff(0.1), 600)
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


def test_the_commands_install_the_package_and_start_a_server(tmp_path: Path) -> None:
    port = free_port()
    wheels = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "wheels"
    page = with_settings(
        PAGE,
        {
            # The wheel is already built. (The test of docs/crawling.md builds it with the page's command.)
            "make wheel\n": "",
            '"$PWD"/target/wheels': f"'{wheels}'",
            "redis-server --loadmodule": f"redis-server --port {port} --daemonize yes --loadmodule",
        },
    )
    with Shell(tmp_path, page, directory=tmp_path, serves=[port]) as shell:
        shell.paste("python3 -m venv python", ". python/bin/activate", *pages.blocks(page))
        with redis.Redis(HOST, port, retry=UNTIL_IT_RUNS) as client:
            assert client.execute_command("BF.ADD", "seen", "https://example.com/")
        shown = shell.paste("python -c 'import oxbloom.scrapy; print(oxbloom.__version__)'")
        assert shown == [oxbloom.__version__]
