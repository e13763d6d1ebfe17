"""Filters that forget keep their promises when somebody sets the system's clock. The server gets a false clock from
libfaketime, which Debian's Redis 7.0 does not start with."""

import threading
import time
from pathlib import Path

import pytest
import servers

FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def test_scripts_have_the_present_time_after_the_clock_went_back_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    offset = tmp_path / "offset"
    offset.write_text("+0")
    monkeypatch.setattr(servers, "SERVER", str(servers.ROOT / "target/servers/valkey-9.1"))
    monkeypatch.setenv("LD_PRELOAD", FAKETIME)
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    with servers.running(servers.OXBLOOM, "--enable-debug-command", "yes") as server:
        client = server.client
        client.execute_command("BF.RESERVE", "seen", "0.000001", 1000, "WINDOW", 10)
        with client.pipeline(transaction=True) as transaction:
            transaction.execute_command("BF.ADD", "seen", "before")
            transaction.execute_command("DEBUG", "SLEEP", 2)
            set_back = threading.Timer(0.5, lambda: offset.write_text("-3600"))
            set_back.start()
            transaction.execute()
            set_back.join()
        offset.write_text("+60")
        servers.wait_until(lambda: client.time()[0] > time.time() + 30)
        add = "return redis.call('BF.ADD', KEYS[1], 'after')"
        assert client.eval(add, 1, "seen") == 1
        assert client.execute_command("BF.EXISTS", "seen", "after") == 1
        assert client.execute_command("BF.EXISTS", "seen", "before") == 0
