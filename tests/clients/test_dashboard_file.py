"""Checks docs/grafana-dashboard.json with Grafana's Python package, which has a model of dashboards, and compares it
with docs/operating.md. `test_dashboard.py` tests its queries.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pages
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from servers import ROOT

DASHBOARD = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
PAGE = pages.page("operating.md")
GRAFANA = pages.section(PAGE, "Grafana")
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
ANNOTATIONS = DASHBOARD["annotations"]["list"]


def test_grafana_knows_all_that_is_in_the_file() -> None:
    """The model leaves out fields that it does not know."""
    plugins.register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))

    def missing(ours: Any, theirs: Any, path: str) -> Iterator[str]:
        if isinstance(ours, dict) and isinstance(theirs, dict):
            for name, value in ours.items():
                yield from missing(value, theirs.get(name, "missing"), f"{path}/{name}")
        elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            for number, pair in enumerate(zip(ours, theirs, strict=True)):
                yield from missing(*pair, f"{path}/{number}")
        elif ours != theirs:
            yield f"{path}: {ours}"

    assert list(missing(DASHBOARD, known, "")) == []


def test_the_file_can_be_imported_and_each_panel_says_what_it_shows_and_what_to_do() -> None:
    assert "id" not in DASHBOARD
    assert "__inputs" not in DASHBOARD
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(PANELS) == sum(panel["type"] != "row" for panel in panels)
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables = DASHBOARD["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["datasource", "instance", "primary"]
    assert all(one["datasource"] == source for one in [*variables[1:], *ANNOTATIONS])
    for title, panel in PANELS.items():
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["description"].endswith("."), title
        assert panel["datasource"] == source
        for target in panel["targets"]:
            assert target["datasource"] == source
            assert "$instance" in target["expr"] or "$primary" in target["expr"]
    # No panel overlaps another one.
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in panels)
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    tops = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in panels]
    assert all(first < second for first, second in pairwise(tops))


def test_the_page_lists_the_panels_and_the_variables() -> None:
    listed = re.findall(r"^\| \*\*(.*?)\*\* \| (.*) \|$", GRAFANA, re.MULTILINE)
    rows: dict[str, list[str]] = {}
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            rows[panel["title"]] = []
        else:
            rows[list(rows)[-1]].append(panel["title"])
    assert {row: titles.split("; ") for row, titles in listed} == rows
    for variable in DASHBOARD["templating"]["list"]:
        assert f"**{variable['label']}**" in GRAFANA


def test_each_figure_of_the_page_is_on_the_dashboard() -> None:
    table = PAGE[PAGE.index("## What to watch") : PAGE.index("When to wake someone")]
    rows = re.findall(r"^\| `(bf_\w+)` \| (.*) \|$", table, re.MULTILINE)
    # Only figures that are numbers, and no aliases of other figures.
    figures = {name for name, text in rows if not re.fullmatch(r"`bf_\w+`", text)}
    figures -= {"bf_version", "bf_last_rejection"}
    assert len(figures) > 20
    queries = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
    keys = re.findall(r'key=(~?)"(.*?)"', "\n".join(queries))
    for figure in figures:
        assert any(
            re.fullmatch(key, figure) if pattern else key == figure for pattern, key in keys
        ), figure
