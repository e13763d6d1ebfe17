"""Follows docs/operating.md. Its commands run in a shell, and its script runs in the exporter. Its alerts fire when
they should, but not when clients send wrong commands. Its tables have every figure and every error.

Only the settings that readers choose are different, such as ports and folders.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
import redis
from monitoring import exporter, figures, get, info_text, numbers, program
from pasting import Shell
from servers import (
    OXBLOOM,
    REDISBLOOM,
    ROOT,
    SERVER,
    WITHIN,
    Server,
    free_port,
    running,
    skip_without_redisbloom,
    wait_until,
)

PAGE = pages.page("operating.md")


def blocks(heading: str, language: str = "sh") -> list[str]:
    """Returns the code in a language below a heading."""
    return pages.blocks(pages.section(PAGE, heading), language)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(OXBLOOM, "--repl-diskless-sync-delay", "0") as server:
        server.client.execute_command("BF.RESERVE", "counts", "0.01", 100, "COUNTING")
        server.client.execute_command("BF.RESERVE", "full", "0.0001", 1, "NONSCALING")
        server.client.execute_command("BF.MADD", "seen", *range(1000))
        server.client.execute_command("BF.MADD", "counts", "a", "a", "b")
        rejects(server, "BF.INFO", "key")
        yield server


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Iterator[Shell]:
    """Starts a shell with the first commands of the page, which all others need."""
    new, check = free_port(), free_port()
    settings = {
        "PORT=6379": f"PORT={server.port}",
        "OXBLOOM=/usr/local/lib/redis/modules/liboxbloom.so": f"OXBLOOM={Path(OXBLOOM).resolve()}",
        "BACKUP=/var/backups/redis": f"BACKUP={tmp_path / 'backup'}",
        "NEW_DIR=/var/lib/redis-new": f"NEW_DIR={tmp_path / 'new'}",
        "NEW_PORT=6380": f"NEW_PORT={new}",
        "CHECK_PORT=6390": f"CHECK_PORT={check}",
    }
    with Shell(tmp_path, PAGE, settings, serves=[server.port, new, check]) as shell:
        shell.paste(*pages.blocks(shell.page.split("\n## ")[0]))
        yield shell


def rejects(server: Server, *command: str) -> None:
    """Sends a command that fails."""
    with pytest.raises(redis.ResponseError):
        server.client.execute_command(*command)


def figures_of(server: Server) -> dict[str, str]:
    return figures(info_text(server, "bf"))


def test_the_page_explains_all_figures_that_the_server_reports_and_no_others(reader):
    (command,) = blocks("What to watch")
    shown = figures(reader.text(command))
    assert shown["bf_filters"] == "3"
    section = PAGE[PAGE.index("## What to watch") : PAGE.index("When to wake someone")]
    explained = re.findall(r"^\| `(bf_\w+)` \|", section, re.MULTILINE)
    assert len(explained) == len(set(explained))
    layouts = [name for name, value in shown.items() if "=" in value]
    assert sorted(explained) == sorted(shown.keys() - layouts)
    assert all(f"`{layout}`" in section for layout in layouts)
    # Figures of a layout are also reported for all layouts together.
    for layout in layouts:
        names = [figure.split("=")[0] for figure in shown[layout].split(",")]
        assert {f"bf_{name}" for name in names} <= set(explained)


def test_the_version_and_the_last_rejection_are_as_shown(server):
    shown = figures_of(server)
    listed = {module[b"name"]: module[b"ver"] for module in server.client.module_list()}
    assert f"`ver {listed[b'bf']}`" in PAGE
    assert f"oxbloom {shown['bf_version']} loaded" in PAGE
    (example,) = figures("\n".join(blocks("What to watch", "text"))).values()

    def stable(line: str) -> str:
        return re.sub(r"^\d+|127\.0\.0\.1:\d+", "", line)

    assert stable(shown["bf_last_rejection"]) == stable(example)
    rejects(server, "BF.INFO", "a=b")
    assert "'a~b'" in figures_of(server)["bf_last_rejection"]


def errors_for_lack_of_memory(source: str) -> set[str]:
    """Returns the errors for lack of memory: each text with each limit. The text of `NoMemory` only gets the limits
    that the sources use with it."""
    texts = dict(re.findall(r'(\w+)\(limit: Limit\) => no_memory!\("([^"]*)", limit\)', source))
    limits = dict(
        re.findall(r'Limit::(\w+) => (?:\{\s*)?c_str\(concat!\(\$words, "([^"]*?)\\0"', source)
    )
    assert (len(texts), len(limits)) == (3, 4)
    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.rs"))
    without_purpose = set(re.findall(r"NoMemory\(Limit::(\w+)\)", sources))
    # BF.CHANGES asks for memory that can always be addressed.
    assert sources.count("NoMemory(admission.limit())") == 1
    without_purpose |= limits.keys() - {"Address"}
    return {
        text + because
        for name, text in texts.items()
        for limit, because in limits.items()
        if name != "NoMemory" or limit in without_purpose
    }


def test_each_error_is_explained():
    source = (ROOT / "src/reply_error.rs").read_text()
    errors = {
        text for text in re.findall(r'\bc"([^"]*)"', source) if not text.startswith("rejected_")
    }
    errors |= errors_for_lack_of_memory(source)
    (before, after), *_ = re.findall(r'concat!\(\s*"([^"]*)",\s*\$what,\s*"([^"]*)\\0"', source)
    errors |= {before + what + after for what in re.findall(r'differ!\("([^"]*)"', source)}
    section = PAGE[PAGE.index("## Errors") :]
    explained = {
        text
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for text in re.findall("`([^`]*)`", row)
    }
    assert explained == errors
    assert len(errors) > 50


def test_each_line_of_the_log_is_explained(reader):
    section = PAGE[PAGE.index("## The log") : PAGE.index("## Errors")]
    explained = " ".join(re.findall("`([^`]*)`", section))
    # For each log line in the sources, the page must have the parts between its placeholders.
    for source in (ROOT / "src").rglob("*.rs"):
        call = r"(?:log_warning|log_and_exit)\(\s*&?(?:format!\(\s*)?\"([^\"]*)\""
        # A backslash at the end of a line joins it to the next.
        calls = re.findall(call, re.sub(r"\\\n\s*", "", source.read_text()))
        for line in calls:
            words = [part for part in re.split(r"\{[^}]*\}", line) if len(part) > 3]
            assert all(part.strip(" '(") in explained for part in words), line


def test_the_line_of_the_log_at_load_is_as_shown(server):
    at_load, _ = blocks("The log", "text")
    assert at_load.splitlines()[0] in server.log.read_text()


def test_the_lines_of_the_log_about_rejected_commands_are_as_shown(server):
    _, shown = blocks("The log", "text")
    ending = re.search(r"The next one ends with `( \(.*?\))`", PAGE, re.DOTALL)
    assert ending
    for _ in range(3):
        rejects(server, "BF.INFO", "key")
    time.sleep(1.1)
    rejects(server, "BF.INFO", "key")
    filled = {
        "<command>": "BF.INFO",
        "<key>": "key",
        "<name>": "default",
        "<error>": "ERR not found",
    }
    expected = shown.strip()
    for name, value in filled.items():
        expected = expected.replace(name, value)
    lines = [line for line in server.log.read_text().splitlines() if " rejected " in line]
    first, last = (re.sub(r"127\.0\.0\.1:\d+", "<address>", line) for line in lines)
    assert first.endswith(expected)
    assert last.endswith(expected + ending[1].replace("\n", " ").replace("N", "3"))


def log_of_two(*modules: str) -> str:
    """Returns the log of a server that does not start because it loads two modules."""
    skip_without_redisbloom(*modules)
    command = [SERVER, "--port", str(free_port()), "--save", ""]
    for module in modules:
        command += ["--loadmodule", str(Path(module).resolve())]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WITHIN)
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize("modules", [(REDISBLOOM, OXBLOOM), (OXBLOOM, REDISBLOOM)])
def test_of_two_modules_the_last_line_of_the_log_names_the_second(modules):
    second, first = blocks("Servers that bring their own module", "text")
    shown = (second if modules[1] == OXBLOOM else first).splitlines()
    folder = "/usr/local/lib/redis/modules/"
    here = f"{Path(modules[1]).resolve().parent}/"
    log = log_of_two(*modules)
    for line in shown:
        assert line.replace(folder, here) in log
    assert log.rstrip().endswith(shown[-1].replace(folder, here))
    assert ("loaded as 'bf', so RedisBloom" in log) == (modules[0] == OXBLOOM)


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
    expected = numbers(reader.text("cli INFO bf"))
    assert reported.keys() == expected.keys()
    assert {name: float(value) for name, value in reported.items()} == expected
    assert float(reported["bf_counting_items"]) == 2


# For each alert, metrics that make it fire: their values in each minute, in the notation of promtool.
ALARMING = {
    "OxbloomInternalError": {"bf_internal_errors": "0x5 1x10"},
    "OxbloomReplicationRejected": {"bf_rejected_replicated": "0x5 1x10"},
    "OxbloomOutOfMemory": {
        "bf_rejected_memory": "3x5 4x10",
        "redis_memory_used_bytes": "91x15",
        "redis_memory_max_bytes": "100x15",
    },
    "OxbloomMemoryShort": {"bf_bytes": "81x15", "redis_memory_max_bytes": "100x15"},
}
CALM = {
    **{f"bf_{name}": "7x75" for name in ["internal_errors", "rejected_replicated"]},
    # Neither rejections nor a full memory alone mean a lack of memory.
    "bf_rejected_memory": "3x5 4x70",
    "bf_bytes": "79x75",
    "redis_memory_used_bytes": "89x75",
    "redis_memory_max_bytes": "100x75",
}
FULL = {**CALM, "bf_rejected_memory": "3x75", "redis_memory_used_bytes": "99x75"}
UNLIMITED = {**CALM, "redis_memory_max_bytes": "0x75"}


def series(values: dict[str, str]) -> list[dict[str, str]]:
    labels = {name: f'redis_script_values{{instance="one",key="{name}"}}' for name in values}
    labels |= {name: f'{name}{{instance="one"}}' for name in values if name.startswith("redis_")}
    return [{"series": labels[name], "values": numbers} for name, numbers in values.items()]


def test_each_alert_goes_off_when_it_should_and_not_before(tmp_path):
    (rules,) = blocks("Prometheus", "yaml")
    summaries = dict(re.findall(r"alert: (\w+)\n.*?summary: \"(.*?)\"", rules, re.DOTALL))
    assert summaries.keys() == ALARMING.keys()

    def case(values: dict[str, str], minutes: int, alert: str, goes_off: bool) -> dict:
        # The result of a comparison has the labels of both sides; that of `and` has those of the left side.
        key = next(iter(values))
        keys = {} if alert == "OxbloomMemoryShort" else {"key": key}
        alerts = {
            "exp_labels": {"instance": "one", **keys},
            "exp_annotations": {
                "summary": summaries[alert].replace("{{ $labels.instance }}", "one")
            },
        }
        expected = [alerts] if goes_off else []
        check = {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}
        return {"interval": "1m", "input_series": series(values), "alert_rule_test": [check]}

    cases = [case(values, 12, alert, True) for alert, values in ALARMING.items()]
    for values in (CALM, FULL, UNLIMITED):
        cases += [
            case(values, minutes, alert, False) for alert in summaries for minutes in (12, 75)
        ]
    (tmp_path / "rules.yml").write_text(rules)
    # JSON is valid YAML.
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    promtool = program("promtool")
    for arguments in (["check", "rules", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(
            [promtool, *arguments], check=False, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_can_be_pasted_from_top_to_bottom(reader, server):
    shown = [reader.text(block) for block in pages.blocks(reader.page)]
    backup = next(text for text in shown if "RDB looks OK" in text)
    assert figures(backup)["bf_filters"] == "3"
    counts = [line.strip() for line in shown[-2].splitlines() if line.startswith("bf_")]
    assert counts[:2] == counts[2:]
    # The page restores the fourth filter from a backup.
    assert counts[0] == "bf_filters:4"
    for key in ("seen", "seen-of-yesterday"):
        for cli in ("new_cli", "cli"):
            assert reader.text(f"{cli} BF.MEXISTS {key} 0 999").split() == ["1", "1"]
    wait_until(server.ended)
    assert reader.text("cli ROLE | head -n 1") == "slave"


def test_a_wait_that_takes_too_long_is_given_up_and_no_later_command_runs(reader, server):
    """The clock runs fast here. The new server does not start, so it does not take over, and the old one continues."""
    commands, _ = blocks("Upgrade")
    quick = "date() { echo $((SECONDS * 500)); }"
    reader.text(f"OXBLOOM=/nowhere.so\n{quick}\n{{\n{commands}}} || echo gave up")
    assert "gave up waiting for: new_cli PING" in reader.errors.read_text()
    assert server.answers()
