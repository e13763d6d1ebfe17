"""Monitors a server with INFO, redis_exporter with the script of docs/operating.md, and Prometheus."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from servers import HOST, WITHIN, Server, free_port, wait_until

EXPORTERS = ["redis_exporter", "prometheus-redis-exporter"]


def program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"none of {names} is installed"
    return found


def info_text(server: Server, section: str) -> str:
    """Returns the text that the server sends, which redis-py would turn into a dictionary."""
    command = ["redis-cli", "-h", HOST, "-p", str(server.port), "INFO", section]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def figures(text: str) -> dict[str, str]:
    """Returns the module's figures in the text of INFO."""
    return dict(line.split(":", 1) for line in text.splitlines() if line.startswith("bf_"))


def numbers(text: str) -> dict[str, float]:
    """Returns the module's numeric figures. The figures of a layout share a line. Its name becomes their prefix."""
    found = {}
    for name, value in figures(text).items():
        if name == "bf_last_rejection":
            continue
        if "=" in value:
            pairs = [figure.split("=") for figure in value.split(",")]
            found |= {f"{name}_{figure}": float(number) for figure, number in pairs}
        elif value.isdigit():
            found[name] = float(value)
    return found


def get(address: str) -> str:
    with urlopen(address, timeout=WITHIN) as reply:
        return reply.read().decode()


def answers(address: str) -> bool:
    try:
        return bool(get(address))
    except OSError:
        return False


@contextmanager
def listening(address: str, *command: str, folder: Path | None = None) -> Iterator[None]:
    """Runs a program in the `with` block, which starts once the program answers at an address."""
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or answers(address))
        assert process.poll() is None, f"{command[0]} does not start"
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def exporter(server: Server, script: Path) -> Iterator[str]:
    """Starts an exporter. Yields the address of its metrics."""
    listen = f"{HOST}:{free_port()}"
    address = f"http://{listen}/metrics"
    command = [program(*EXPORTERS), "-redis.addr", server.url, "-script", str(script)]
    with listening(address, *command, "-web.listen-address", listen):
        yield address


class Prometheus:
    """A Prometheus server, accessed through its HTTP API."""

    def __init__(self, address: str) -> None:
        self.address = address

    def api(self, path: str, **parameters: str) -> Any:
        """Returns the data in the reply to a request."""
        query = urlencode({name.replace("match", "match[]"): v for name, v in parameters.items()})
        reply = json.loads(get(f"{self.address}/api/v1/{path}?{query}"))
        assert reply["status"] == "success", reply
        return reply["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Returns the labels and the value of each series in the result."""
        result = self.api("query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]


@contextmanager
def prometheus(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """Starts a Prometheus that scrapes every second and keeps its files in a folder."""
    scraped = {"job_name": "redis", "static_configs": [{"targets": list(targets)}]}
    configuration = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [scraped],
    }
    # JSON is valid YAML.
    (folder / "prometheus.yml").write_text(json.dumps(configuration))
    listen = f"{HOST}:{free_port()}"
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command = [program("prometheus"), *options, f"--web.listen-address={listen}"]
    with listening(f"http://{listen}/-/ready", *command, folder=folder):
        yield Prometheus(f"http://{listen}")
