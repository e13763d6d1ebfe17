"""Filters that forget keep their promises when somebody sets the system's clock: the server gets a false one."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import servers

FALSE_CLOCK = os.environ.get(
    "FALSE_CLOCK", str(servers.ROOT / "target/debug/examples/libfalse_clock.so")
)


def set_clock(file: Path, seconds: int) -> None:
    """Sets the offset of the false clock. The server has the file in memory, so this does not replace or cut it."""
    mode = "r+b" if file.exists() else "wb"
    with file.open(mode) as offset:
        offset.write((1000 * seconds).to_bytes(8, sys.byteorder, signed=True))


def test_scripts_have_the_present_time_after_the_clock_went_back_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    offset = tmp_path / "offset"
    set_clock(offset, 0)
    monkeypatch.setattr(servers, "SERVER", str(servers.ROOT / "target/servers/valkey-9.1"))
    monkeypatch.setenv("LD_PRELOAD", FALSE_CLOCK)
    monkeypatch.setenv("FALSE_CLOCK_FILE", str(offset))
    with servers.running(servers.OXBLOOM, "--enable-debug-command", "yes") as server:
        client = server.client
        client.execute_command("BF.RESERVE", "seen", "0.000001", 1000, "WINDOW", 10)
        with client.pipeline(transaction=True) as transaction:
            transaction.execute_command("BF.ADD", "seen", "before")
            transaction.execute_command("DEBUG", "SLEEP", 2)
            set_back = threading.Timer(0.5, lambda: set_clock(offset, -3600))
            set_back.start()
            transaction.execute()
            set_back.join()
        set_clock(offset, 60)
        servers.wait_until(lambda: client.time()[0] > time.time() + 30)
        add = "return redis.call('BF.ADD', KEYS[1], 'after')"
        assert client.eval(add, 1, "seen") == 1
        assert client.execute_command("BF.EXISTS", "seen", "after") == 1
        assert client.execute_command("BF.EXISTS", "seen", "before") == 0
