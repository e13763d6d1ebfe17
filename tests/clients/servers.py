"""Starts real servers, with one of the modules or without a module.

Environment variables say what to run:

* ``REDISBLOOM_MODULE``: the path of RedisBloom's library (default: where ``make setup-tests`` puts it);
* ``OXBLOOM_MODULE``: the path of our module (default: where ``make build`` puts it);
* ``OXBLOOM_FAULTY_MODULE``: our module with fault injection (default: where ``make build-modules`` puts it);
* ``SERVER_BIN``: the server's program (default: ``redis-server``).

The servers listen on free loopback ports, keep their files in temporary folders, and leave nothing behind.
"""

import os
import platform
import random
import signal
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
from redis.backoff import NoBackoff
from redis.retry import Retry

ROOT = Path(__file__).parents[2]
REDISBLOOM = os.environ.get("REDISBLOOM_MODULE", str(ROOT / "target/redisbloom/redisbloom.so"))
OXBLOOM = os.environ.get("OXBLOOM_MODULE", str(ROOT / "target/release/liboxbloom.so"))
# This build has BF.CLOCK, which stops the clock of forgetting filters.
OXBLOOM_WITH_CLOCK = os.environ.get(
    "OXBLOOM_FAULTY_MODULE", str(ROOT / "target/faulty/liboxbloom.so")
)
# RedisBloom's library, and options that load our module beside it.
BESIDE = (REDISBLOOM, "--loadmodule", OXBLOOM, "prefix", "OX")
SERVER = os.environ.get("SERVER_BIN", "redis-server")
HOST = "127.0.0.1"
# Below the ephemeral ports, so that no connection takes a server's port while the server is down.
PORTS = range(10_000, 20_000)
ATTEMPTS = 3  # another process may briefly hold a port
WITHIN = 240  # seconds that any wait may take, even on a busy machine
PATIENCE = 60  # seconds that a reply may take
ONCE = Retry(
    NoBackoff(), 0
)  # By default, redis-py tries four times, and waits for seconds before it gives up.


def skip_without_redisbloom(*modules: str | None) -> None:
    """Skips a test that loads RedisBloom on a processor for which it cannot be had."""
    if REDISBLOOM in modules and platform.machine() != "x86_64":
        pytest.skip("RedisBloom's library is only for x86-64")


@cache
def server_version() -> tuple[int, int]:
    """Returns the server's major and minor version. For Valkey, this is Valkey's own version, not that of Redis."""
    output = subprocess.run(
        [SERVER, "--version"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    major, minor, *_ = output.partition("v=")[2].split(".")
    return int(major), int(minor)


def hear_interrupts() -> None:
    """Makes a child process react to SIGINT and SIGHUP: pass this function as `preexec_fn`. Otherwise, processes that a
    shell starts in the background, or that `nohup` starts, ignore these signals, and so do their children."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def happens(condition: Callable[[], object], within: float = WITHIN) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def wait_until(condition: Callable[[], object], within: float = WITHIN) -> None:
    assert happens(condition, within), "the condition was not met in time"


def free_port(*beside: int) -> int:
    """Returns a free port. The ports at the given distances from it are also free. No other test process gets any of
    them while this one runs.

    The ports stay bound here, so other searches find them taken. A server can listen on them nevertheless, since both
    set SO_REUSEADDR.
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
    """A server, with or without a module. It keeps its folder and its port when it is restarted."""

    def __init__(
        self,
        folder: Path,
        module: str | None,
        *options: str,
        configuration: Path | None = None,
        program: str = SERVER,
        beside: tuple[int, ...] = (),
    ) -> None:
        """Starts a server. `beside` has the distances from its port to the other ports that it uses."""
        skip_without_redisbloom(module, *options)
        self.log = folder / "server.log"
        files = [str(configuration)] if configuration else []
        options = ("--save", "", "--bind", HOST, "--dir", str(folder), *options)
        options += ("--loadmodule", str(Path(module).resolve())) if module else ()
        for _ in range(ATTEMPTS):
            self.port = free_port(*beside)
            self.command = [program, *files, "--port", str(self.port), *options]
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
        """Starts the server, and waits until it replies. Kills it if it does not."""
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
        """Returns true if this server replies on its port, and has loaded its data."""
        try:
            with redis.Redis(HOST, self.port, socket_timeout=PATIENCE, retry=ONCE) as client:
                return client.info("server")["process_id"] == self.process.pid
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def chunks_loaded(self) -> int:
        """Returns the number of successful BF.LOADCHUNK commands, headers included."""
        counts = self.client.info("commandstats").get("cmdstat_bf.loadchunk")
        return counts["calls"] - counts["failed_calls"] if counts else 0


def start(stack: ExitStack, module: str | None, *options: str, **more: Any) -> Server:
    """Starts a server. It is killed when the stack closes."""
    skip_without_redisbloom(module, *options)
    if module and not Path(module).is_file():
        pytest.fail(f"no such module: {module}", pytrace=False)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oxbloom-"))
    server = Server(Path(folder), module, *options, **more)
    stack.callback(server.client.close)
    stack.callback(server.kill)
    return server


@contextmanager
def running(module: str | None = None, *options: str, **more: Any) -> Iterator[Server]:
    with ExitStack() as stack:
        yield start(stack, module, *options, **more)


def set_clock(server: Server, seconds: int) -> None:
    """Stops the clock of forgetting filters at a Unix time. The server must have the build OXBLOOM_WITH_CLOCK."""
    server.client.execute_command("BF.CLOCK", "any", 1000 * seconds)
