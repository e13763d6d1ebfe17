"""Real servers, with either module or none.

The environment tells what to run:

* ``REDISBLOOM_MODULE``: path of RedisBloom's shared library (default: where ``make setup-test`` puts it);
* ``OXBLOOM_MODULE``: path of the module's (default: where ``make build`` puts it);
* ``SERVER_BIN``: the server's program (default ``redis-server``).

They listen on free loopback ports, keep their files in temporary folders, and leave nothing behind.
"""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import redis

ROOT = Path(__file__).parents[2]
REDISBLOOM = os.environ.get("REDISBLOOM_MODULE", str(ROOT / "target/redisbloom/redisbloom.so"))
OXBLOOM = os.environ.get("OXBLOOM_MODULE", str(ROOT / "target/release/liboxbloom.so"))
# With a command that stops the clock by which filters forget.
OXBLOOM_WITH_CLOCK = os.environ.get(
    "OXBLOOM_FAULTY_MODULE", str(ROOT / "target/debug/liboxbloom.so")
)
SERVER = os.environ.get("SERVER_BIN", "redis-server")
HOST = "127.0.0.1"
# Below those that the system gives to connections: nobody takes one by chance while its server is down.
PORTS = range(10_000, 20_000)
ATTEMPTS = 3  # another process may hold a port for a moment
WITHIN = 240  # seconds, for whatever has to happen soon, on a machine as busy as it may be
PATIENCE = 60  # seconds, for an answer


@cache
def server_version() -> tuple[int, int]:
    """Major and minor. Valkey's own, which is above that of the Redis it descends from."""
    told = subprocess.run(
        [SERVER, "--version"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    major, minor, *_ = told.partition("v=")[2].split(".")
    return int(major), int(minor)


def happens(condition: Callable[[], object], within: float = WITHIN) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def wait_until(condition: Callable[[], object], within: float = WITHIN) -> None:
    assert happens(condition, within), "nothing happened"


def free_port(*beside: int) -> int:
    """A port that is free, as are those so far above it: for whoever this process tells of it, as long as it lasts.

    A server may listen where somebody else is only bound, if both allow that. A second search there finds the port taken.
    """
    while True:
        port = random.choice(PORTS)
        with ExitStack() as given_back:
            probes = []
            for each in (port, *(port + distance for distance in beside)):
                probe = given_back.enter_context(socket.socket())
                try:
                    probe.bind((HOST, each))
                except OSError:
                    break
                probes.append(probe)
            else:
                for probe in probes:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.detach()
                return port


class Server:
    """A server with a module or none, in a folder and at a port that it keeps over restarts."""

    def __init__(
        self,
        folder: Path,
        module: str | None,
        *options: str,
        configuration: Path | None = None,
        beside: tuple[int, ...] = (),
    ) -> None:
        """`beside`: distances to other ports that the server takes."""
        self.log = folder / "server.log"
        program = [shutil.which(SERVER) or SERVER, *([str(configuration)] if configuration else [])]
        options = ("--save", "", "--bind", HOST, "--dir", str(folder), *options)
        options += ("--loadmodule", str(Path(module).resolve())) if module else ()
        for _ in range(ATTEMPTS):
            self.port = free_port(*beside)
            self.command = [*program, "--port", str(self.port), *options]
            self.url = f"redis://{HOST}:{self.port}"
            self.client = redis.Redis(HOST, self.port, protocol=2, socket_timeout=PATIENCE)
            if self._comes_up():
                return
        self._fail()

    def start(self) -> None:
        """Starts a server that was killed."""
        for _ in range(ATTEMPTS):
            if self._comes_up():
                return
            time.sleep(0.5)
        self._fail()

    def _fail(self) -> NoReturn:
        log = self.log.read_text(errors="replace")
        pytest.fail(f"{' '.join(self.command)} does not start; its log:\n{log}", pytrace=False)

    def _comes_up(self) -> bool:
        """Starts the server, and waits until it answers. One that does not is ended."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        up = False
        try:
            up = happens(lambda: self.ended() or self.answers()) and not self.ended()
        finally:
            if not up:
                self.kill()
        return up

    def ended(self) -> bool:
        return self.process.poll() is not None

    def answers(self) -> bool:
        """Whether it is this server that answers on its port, with all that it has loaded."""
        try:
            self.client.ping()
            return self.client.info("server")["process_id"] == self.process.pid
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def chunks_loaded(self) -> int:
        """BF.LOADCHUNK commands that succeeded, headers among them."""
        counts = self.client.info("commandstats").get("cmdstat_bf.loadchunk")
        return counts["calls"] - counts["failed_calls"] if counts else 0


def start(stack: ExitStack, module: str | None, *options: str, **more: Any) -> Server:
    """A server that lasts as long as the stack."""
    if module and not Path(module).is_file():
        pytest.fail(f"no such module: {module}", pytrace=False)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oxbloom-"))
    server = Server(Path(folder), module, *options, **more)
    stack.callback(server.client.close)
    stack.callback(server.kill)
    return server


@contextmanager
def running(module: str | None = None, *options: str) -> Iterator[Server]:
    with ExitStack() as stack:
        yield start(stack, module, *options)
