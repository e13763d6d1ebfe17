"""Real servers with either module, for the tests that need more than one.

The environment tells what to run:

* ``REDISBLOOM_MODULE``: path of RedisBloom's shared library (default: where ``make setup-test`` puts it);
* ``OXBLOOM_MODULE``: path of the module's;
* ``SERVER_BIN``: the server's program (default ``redis-server``).
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

ROOT = Path(__file__).parents[2]
REDISBLOOM = os.environ.get("REDISBLOOM_MODULE", str(ROOT / "target/incumbent/redisbloom.so"))
OXBLOOM = os.environ.get("OXBLOOM_MODULE", str(ROOT / "target/release/liboxbloom.so"))
SERVER = os.environ.get("SERVER_BIN", "redis-server")
HOST = "127.0.0.1"
ATTEMPTS = 3  # another process may hold a port for a moment
WITHIN = 20  # seconds, for whatever has to happen soon


def wait_until(condition: Callable[[], object], within: float = WITHIN) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.005)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class Server:
    """A server with a module, in a folder that it keeps over restarts."""

    def __init__(
        self, folder: Path, module: str | None, *options: str, port: int | None = None
    ) -> None:
        self.port = port or free_port()
        self.url = f"redis://{HOST}:{self.port}"
        self.client = redis.Redis(HOST, self.port, protocol=2)
        self.command = [shutil.which(SERVER) or SERVER, "--port", str(self.port), "--save", ""]
        self.command += ["--bind", HOST, "--dir", str(folder), *options]
        self.command += ["--loadmodule", str(Path(module).resolve())] if module else []
        self.start()

    def start(self) -> None:
        for _ in range(ATTEMPTS):
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            wait_until(lambda: self.answers() or self.process.poll() is not None)
            if self.process.poll() is None:
                return
            time.sleep(0.5)
        pytest.fail(f"the server does not start: {' '.join(self.command)}", pytrace=False)

    def answers(self) -> bool:
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def chunks_loaded(self) -> int:
        """BF.LOADCHUNK commands that succeeded, headers among them."""
        counts = self.client.info("commandstats").get("cmdstat_bf.loadchunk")
        return counts["calls"] - counts["failed_calls"] if counts else 0


@contextmanager
def running(module: str | None = None, *options: str) -> Iterator[Server]:
    if module and not Path(module).is_file():
        pytest.fail(f"no such module: {module}", pytrace=False)
    with tempfile.TemporaryDirectory(prefix="oxbloom-") as folder:
        server = Server(Path(folder), module, *options)
        try:
            yield server
        finally:
            server.kill()
            server.client.close()
