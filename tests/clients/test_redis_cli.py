"""The shell clients of the servers send a file in one command.

The environment variable ``CLI_BIN`` names the client (default: ``redis-cli``).
"""

import os
import subprocess
from pathlib import Path

import pytest
from servers import OXBLOOM, running

CLI = os.environ.get("CLI_BIN", "redis-cli")
LINES = 200_000  # more than fit into a buffer of the client or of the server


@pytest.mark.parametrize("protocol", [[], ["-3"]])
def test_one_command_adds_a_file_and_one_looks_it_up(tmp_path: Path, protocol: list[str]) -> None:
    """The last line of the file has no line feed."""
    items = tmp_path / "urls.txt"
    items.write_text("\n".join(f"https://example.com/{number}" for number in range(LINES)))
    with running(OXBLOOM) as server:

        def send(*words: str) -> str:
            with items.open("rb") as file:
                command = [CLI, "-p", str(server.port), *protocol, "-x", *words]
                return (
                    subprocess.run(command, stdin=file, capture_output=True, check=True)
                    .stdout.decode()
                    .strip()
                )

        server.client.execute_command("BF.RESERVE", "urls", 0.0001, LINES)
        added = int(send("BF.ADDPACKED", "urls", "COUNT", "LINES"))
        assert 0.999 * LINES < added <= LINES
        assert int(send("BF.EXISTSPACKED", "urls", "COUNT", "LINES")) == LINES
        assert server.client.execute_command(
            "BF.EXISTS", "urls", f"https://example.com/{LINES - 1}"
        )
