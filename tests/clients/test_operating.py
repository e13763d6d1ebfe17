"""docs/operating.md, followed to the letter: its commands are typed into a shell, its script runs in the exporter, its alerts
fire, and its tables have every figure and every error that there is.

Only the values that the reader is asked to set are others: ports, and folders.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from servers import HOST, OXBLOOM, ROOT, WITHIN, Server, free_port, running, wait_until

PAGE = (ROOT / "docs/operating.md").read_text()
EXPORTERS = ["redis_exporter", "prometheus-redis-exporter"]


def blocks(heading: str, language: str = "sh") -> list[str]:
    """The code of a language below a heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section, heading
    return re.findall(rf"^```{language}\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)


def program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"none of {names} is installed"
    return found


class Reader:
    """Who types the page's commands into one shell after another."""

    def __init__(self, server: Server, folder: Path) -> None:
        (introduction,) = re.findall(
            r"^```sh\n(.*?)^```", PAGE.split("\n## ")[0], re.DOTALL | re.MULTILINE
        )
        self.beginning = introduction.replace("PORT=6379", f"PORT={server.port}")
        self.settings = {
            "BACKUP=/var/backups/redis": f"BACKUP={folder / 'backup'}",
            "NEW_DIR=/var/lib/redis-new": f"NEW_DIR={folder / 'new'}",
            "$((PORT + 1))": str(free_port()),
            "NEW_PORT=6380": f"NEW_PORT={free_port()}",
        }

    def types(self, *commands: str) -> str:
        """What the commands print."""
        script = "\n".join(["set -ex -o pipefail", self.beginning, *self.assignments(), *commands])
        for on_the_page, here in self.settings.items():
            script = script.replace(on_the_page, here)
        command = ["bash", "-c", script]
        try:
            done = subprocess.run(command, check=False, capture_output=True, timeout=WITHIN)
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"{script}\n{late.stdout!r}\n{late.stderr!r}")
        assert done.returncode == 0, f"{script}\n{done.stdout!r}\n{done.stderr!r}"
        return done.stdout.decode()

    def assignments(self) -> list[str]:
        return [f"OXBLOOM={Path(OXBLOOM).resolve()}", "BACKUP=/var/backups/redis"]


@pytest.fixture
def server() -> Iterator[Server]:
    with running(OXBLOOM, "--repl-diskless-sync-delay", "0") as server:
        server.client.execute_command("BF.RESERVE", "counts", "0.01", 100, "COUNTING")
        server.client.execute_command("BF.RESERVE", "full", "0.0001", 1, "NONSCALING")
        server.client.execute_command("BF.MADD", "seen", *range(1000))
        server.client.execute_command("BF.MADD", "counts", "a", "a", "b")
        yield server


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Reader:
    return Reader(server, tmp_path)


def figures(text: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text.splitlines() if line.startswith("bf_"))


def test_each_figure_is_explained_and_each_explained_one_is_there(reader):
    (command,) = blocks("What to watch")
    shown = figures(reader.types(command))
    assert shown["bf_filters"] == "3"
    section = PAGE[PAGE.index("## What to watch") : PAGE.index("When to wake someone")]
    explained = re.findall(r"^\| `(bf_\w+)` \|", section, re.MULTILINE)
    layouts = [name for name, value in shown.items() if "=" in value]
    assert sorted(explained) == sorted(shown.keys() - layouts)
    assert all(f"`{layout}`" in section for layout in layouts)
    # What is told of each layout is told of all as well.
    for layout in layouts:
        names = [figure.split("=")[0] for figure in shown[layout].split(",")]
        assert {f"bf_{name}" for name in names} <= set(explained)


def test_each_error_is_explained():
    source = (ROOT / "src/module/error.rs").read_text()
    errors = {
        text for text in re.findall(r'\bc"([^"]*)"', source) if not text.startswith("refused_")
    }
    section = PAGE[PAGE.index("## Errors") :]
    explained = {
        text
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for text in re.findall("`([^`]*)`", row)
    }
    assert explained == errors
    assert len(errors) > 40


def test_each_line_of_the_log_is_explained(reader):
    section = PAGE[PAGE.index("## The log") : PAGE.index("## Errors")]
    explained = " ".join(re.findall("`([^`]*)`", section))
    # The words that are in the sources as they are in the log.
    for source in (ROOT / "src/module").rglob("*.rs"):
        call = r"(?:log_warning|end_server)\(\s*&?(?:format!\(\s*)?\"([^\"]*)\""
        calls = re.findall(call, source.read_text())
        for line in calls:
            words = [part for part in re.split(r"\{[^}]*\}", line) if len(part) > 3]
            assert all(part.strip(" '(") in explained for part in words), line


def test_the_line_of_the_log_at_load_is_as_shown():
    (shown,) = blocks("The log", "text")
    with running(OXBLOOM, "--logfile", "log") as server:
        directory = server.client.config_get("dir")["dir"]
        log = (Path(directory) / "log").read_text()
    assert shown.splitlines()[0] in log


@contextmanager
def exporter(server: Server, script: Path) -> Iterator[str]:
    """The address at which an exporter tells the metrics."""
    listen = f"{HOST}:{free_port()}"
    address = f"redis://{HOST}:{server.port}"
    command = [program(*EXPORTERS), "-redis.addr", address, "-script", str(script)]
    process = subprocess.Popen([*command, "-web.listen-address", listen], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(f"http://{listen}/metrics"))
        yield f"http://{listen}/metrics"
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    try:
        return bool(get(address))
    except OSError:
        return False


def get(address: str) -> str:
    with urlopen(address, timeout=WITHIN) as reply:
        return reply.read().decode()


def test_the_exporter_reports_each_figure(server, reader, tmp_path):
    (script,) = blocks("Prometheus", "lua")
    (tmp_path / "oxbloom.lua").write_text(script)
    (command,) = blocks("Prometheus", "console")
    assert "-script oxbloom.lua" in command
    with exporter(server, tmp_path / "oxbloom.lua") as address:
        metrics = get(address)
    reported = dict(
        re.findall(r'^redis_script_values\{key="(\w+)"[^}]*\} (\S+)$', metrics, re.MULTILINE)
    )
    expected = {}
    for name, value in figures(reader.types("cli INFO bf")).items():
        if "=" in value:
            pairs = [figure.split("=") for figure in value.split(",")]
            expected |= {f"{name}_{figure}": number for figure, number in pairs}
        else:
            expected[name] = value
    assert reported.keys() == expected.keys()
    assert {name: float(value) for name, value in reported.items()} == {
        name: float(value) for name, value in expected.items()
    }
    assert float(reported["bf_counting_items"]) == 2


# For each alert: what the exporter reports, minute by minute, that makes it go off.
ALARMING = {
    "OxbloomInternalError": {"bf_internal_errors": "0x5 1x10"},
    "OxbloomOutOfMemory": {"bf_refused_memory": "3x5 4x10"},
    "OxbloomFilterFull": {"bf_refused_full": "0x5 20x10"},
    "OxbloomDataRefused": {"bf_refused_data": "1x5 2x10"},
    "OxbloomMemoryShort": {"bf_bytes": "81x15", "redis_memory_max_bytes": "100x15"},
    "OxbloomManyLayers": {"bf_layers": "19x75", "bf_filters": "2x75"},
}
CALM = {
    **{
        f"bf_{name}": "7x75"
        for name in ["internal_errors", "refused_memory", "refused_full", "refused_data"]
    },
    "bf_bytes": "79x75",
    "redis_memory_max_bytes": "100x75",
    "bf_layers": "16x75",
    "bf_filters": "2x75",
}


def series(values: dict[str, str]) -> list[dict[str, str]]:
    labels = {name: f'redis_script_values{{instance="one",key="{name}"}}' for name in values}
    labels |= {name: f'{name}{{instance="one"}}' for name in values if name.startswith("redis_")}
    return [{"series": labels[name], "values": numbers} for name, numbers in values.items()]


def test_each_alert_goes_off_when_it_should_and_not_before(tmp_path):
    (rules,) = blocks("Prometheus", "yaml")
    (tmp_path / "rules.yml").write_text(rules)
    summaries = dict(re.findall(r"alert: (\w+)\n.*?summary: \"(.*?)\"", rules, re.DOTALL))
    assert summaries.keys() == ALARMING.keys()

    def case(values: dict[str, str], minutes: int, alert: str, goes_off: bool) -> dict:
        # What compares two values has the labels that both have.
        keys = {"key": next(iter(values))} if len(values) == 1 else {}
        alerts = {
            "exp_labels": {"instance": "one", **keys},
            "exp_annotations": {
                "summary": summaries[alert].replace("{{ $labels.instance }}", "one")
            },
        }
        expected = [alerts] if goes_off else []
        told = {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}
        return {"interval": "1m", "input_series": series(values), "alert_rule_test": [told]}

    cases = [
        case(values, 75 if "Layers" in alert else 12, alert, True)
        for alert, values in ALARMING.items()
    ]
    cases += [case(CALM, 75, alert, False) for alert in summaries]
    # A server without a limit.
    cases.append(case({**CALM, "redis_memory_max_bytes": "0x75"}, 75, "OxbloomMemoryShort", False))
    # A file of JSON is one of YAML.
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    promtool = program("promtool")
    for arguments in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            [promtool, *arguments],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_backup_is_whole_and_shows_what_is_in_it(reader):
    whole, check, single = blocks("Backup")
    reader.types(whole)
    shown = reader.types(check)
    assert "RDB looks OK" in shown
    backup = figures(shown)
    assert (backup["bf_filters"], backup["bf_items"]) == (
        "3",
        figures(reader.types("cli INFO bf"))["bf_items"],
    )
    reader.types(single)
    assert reader.types("cli BF.MEXISTS seen-of-yesterday 0 999").split() == ["1", "1"]


def test_an_upgrade_by_a_replica_loses_nothing(reader, server):
    (commands,) = blocks("Upgrade")
    try:
        shown = reader.types(commands).splitlines()
        counts = [line for line in shown if line.startswith("bf_")]
        assert counts[:2] == counts[2:]
        assert counts[0] == "bf_filters:3"
        new = reader.types(
            "NEW_PORT=6380", 'redis-cli -p "$NEW_PORT" BF.MEXISTS seen 0 999'
        ).split()
        assert new == ["1", "1"]
        wait_until(server.ended)
    finally:
        reader.types("NEW_PORT=6380", 'redis-cli -p "$NEW_PORT" SHUTDOWN NOSAVE || true')
