"""deploy/grafana/: as its source says, and as Grafana documents it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "deploy/grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
KINDS = {"row", "timeseries", "stat", "state-timeline"}
UNITS = {"none", "short", "s", "percentunit", "hertz", "watt", "celsius", "Bps", "decbytes"}
BUILT_IN = {"__rate_interval"}
READ_BY_THE_PLUGIN = {
    ".annotations.list.expr",
    *(f".annotations.list.target.{key}" for key in ("refId", "expr", "range", "instant")),
    *(f".annotations.list.{key}" for key in ("titleFormat", "textFormat", "useValueForTime")),
    ".templating.list.definition",
}
"""What Grafana's types do not name: its Prometheus data source reads it (annotations.ts, variables in its exports)."""

each_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def panels(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    return found


def expressions(path: Path) -> Iterator[str]:
    document = json.loads(path.read_text())
    for panel in document["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one["expr"] for one in document["annotations"]["list"])
    yield from (one["definition"] for one in document["templating"]["list"] if one["type"] == "query")


def test_the_json_is_what_its_source_makes(tmp_path: Path) -> None:
    """Nobody edits what is generated: `.venv/bin/python deploy/grafana/build.py` makes it."""
    subprocess.run([sys.executable, "-B", str(GRAFANA / "build.py"), str(tmp_path)], check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in DASHBOARDS}


@each_dashboard
def test_the_model_is_that_of_grafana_11(path: Path) -> None:
    """An address that stays, and no number of one Grafana's own database."""
    document = json.loads(path.read_text())
    assert re.fullmatch(r"[a-z-]{1,40}", document["uid"])
    assert document["schemaVersion"] == 39
    assert "id" not in document
    assert document["title"].startswith("cyclewatch: ")


@each_dashboard
def test_grafana_knows_every_key(path: Path) -> None:
    """Grafana's own types, of its SDK, read the dashboard and write it again: what they do not know is gone then."""
    plugins.register_default_plugins()
    ours = json.loads(path.read_text())
    theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    assert set(_lost(ours, theirs)) - READ_BY_THE_PLUGIN == set()


def _lost(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """Places of what is not the same on the other side; a null may be left out."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from _lost(value, theirs.get(key), f"{place}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _lost(one, other, place)
    elif ours is not None and ours != theirs:
        yield place


@each_dashboard
def test_panels_are_whole_and_do_not_overlap(path: Path) -> None:
    """Numbers of their own, kinds and units that Grafana has, places on a grid of 24 columns."""
    taken: set[tuple[int, int]] = set()
    found = panels(path)
    assert len({panel["id"] for panel in found}) == len(found) > 10
    for panel in found:
        assert panel["type"] in KINDS
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            assert panel["title"]
            assert panel["description"].endswith(".")
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
            assert all(target["legendFormat"] for target in panel["targets"])


@each_dashboard
def test_everything_asks_the_source_that_the_reader_chose(path: Path) -> None:
    """No uid of a data source is written down: each Grafana has its own."""
    sources = re.findall(r'"datasource": \{\s*"type": "(\w+)",\s*"uid": "(.+?)"', path.read_text())
    assert set(sources) == {("prometheus", "${datasource}")}
    assert json.loads(path.read_text())["templating"]["list"][0]["name"] == "datasource"


@each_dashboard
def test_variables_are_defined_before_they_are_used(path: Path) -> None:
    known = {one["name"] for one in json.loads(path.read_text())["templating"]["list"]}
    used = {name for expr in expressions(path) for name in re.findall(r"\$(\w+)", expr)}
    assert used - known - BUILT_IN == set()


@each_dashboard
def test_queries_name_metrics_that_there_are(path: Path) -> None:
    """tests/integration/test_prometheus.py runs them; this holds where no Prometheus is installed."""
    page = (ROOT / "docs/metrics.md").read_text()
    known = set(re.findall(r"^\| `(cyclewatch_\w+)`", page, flags=re.MULTILINE))
    used = {name for expr in expressions(path) for name in re.findall(r"\bcyclewatch_\w+", expr)}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} - known == set()


def test_the_page_installs_them_where_the_provider_looks(tmp_path: Path) -> None:
    """Its commands, below another root: provisioning files where Grafana reads them, dashboards where these say."""
    text = (ROOT / "docs/prometheus.md").read_text()
    commands = re.findall(r"^    (install -D .+)$", text, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        subprocess.run(re.sub(r"(?<=-t )/", f"{tmp_path}/", command).split(), cwd=ROOT, check=True)
    provisioning = tmp_path / "etc/grafana/provisioning"
    for path in (provisioning / "dashboards/cyclewatch.yaml", provisioning / "datasources/cyclewatch.yaml"):
        assert "\napiVersion: 1\n" in path.read_text()
    (folder,) = re.findall(r"path: /(.+)", (provisioning / "dashboards/cyclewatch.yaml").read_text())
    assert {path.name for path in (tmp_path / folder).iterdir()} == {path.name for path in DASHBOARDS}
