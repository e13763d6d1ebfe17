"""The commands of python/README.md install the package and start a server. `../test_following_pages.py` runs its code."""

import os
from pathlib import Path

import oxbloom
import redis
from pasting import Shell
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from servers import HOST, ROOT, free_port

PAGE = (ROOT / "python/README.md").read_text()
UNTIL_IT_RUNS = Retry(ConstantBackoff(0.1), 600)


def test_the_commands_install_the_package_and_start_a_server(tmp_path: Path) -> None:
    port = free_port()
    wheels = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "wheels"
    settings = {
        # The wheel is already built. (The test of docs/crawling.md builds it with the page's command.)
        "make wheel\n": "",
        '"$PWD"/target/wheels': f"'{wheels}'",
        "redis-server --loadmodule": f"redis-server --port {port} --daemonize yes --loadmodule",
    }
    with Shell(tmp_path, PAGE, settings, directory=tmp_path, serves=[port]) as shell:
        shell.paste("python3 -m venv python", ". python/bin/activate", *shell.blocks("Install"))
        with redis.Redis(HOST, port, retry=UNTIL_IT_RUNS) as client:
            assert client.execute_command("BF.ADD", "seen", "https://example.com/")
        shown = shell.paste("python -c 'import oxbloom.scrapy; print(oxbloom.__version__)'")
        assert shown == [oxbloom.__version__]
