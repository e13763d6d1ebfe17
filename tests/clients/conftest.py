"""A real server with the module loaded, for the length of a test run.

What to run is told by the environment:

* ``OXBLOOM_MODULE``: path of the module's shared library (required);
* ``SERVER_BIN``: the server's program (default ``redis-server``).

The server listens on a free loopback port, keeps its files in a temporary folder, and leaves nothing
behind.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

HOST = "127.0.0.1"
READY_WITHIN = 10  # seconds
ATTEMPTS = 3  # another process may take a free port before the server binds it


def what_to_run() -> tuple[str, Path]:
    module = os.environ.get("OXBLOOM_MODULE")
    if not module:
        pytest.fail("OXBLOOM_MODULE must name the module's .so", pytrace=False)
    if not Path(module).is_file():
        pytest.fail(f"OXBLOOM_MODULE: no such file: {module}", pytrace=False)
    name = os.environ.get("SERVER_BIN") or "redis-server"
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"SERVER_BIN: no such program: {name}", pytrace=False)
    return program, Path(module).resolve()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def launch(program: str, module: Path, folder: Path, port: int) -> subprocess.Popen:
    command = [program, "--bind", HOST, "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--loadmodule", str(module)]
    with (folder / "server.log").open("w") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


def answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def becomes_ready(process: subprocess.Popen, port: int) -> bool:
    deadline = time.monotonic() + READY_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        if answers_ping(port):
            return True
        time.sleep(0.02)
    return False


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server():
    """The port of a running server."""
    program, module = what_to_run()
    # A run that is told to stop ends as at Ctrl-C: with its fixtures torn down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="oxbloom-clients-") as name:
        folder = Path(name)
        for _ in range(ATTEMPTS):
            port = free_port()
            process = launch(program, module, folder, port)
            try:
                if becomes_ready(process, port):
                    yield port
                    return
            finally:
                stop(process)
            log = (folder / "server.log").read_text(errors="replace")
            if "Address already in use" not in log:
                break
        pytest.fail(f"{program} did not start; its log:\n{log}", pytrace=False)
