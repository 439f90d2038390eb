"""Dashboards of Grafana 11 and later, from a list of panels: the classic JSON model, as provisioning reads it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""Whichever the reader picks above the dashboard."""
_SCHEMA_VERSION = 39  # that of Grafana 11.0; later versions bring it up to date as they load it
_COLUMNS = 24


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are called; `dashed` sets apart what is expected or allowed from what is."""

    expr: str
    legend: str
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """`unit` is one of Grafana's; `kind` is timeseries, stat or state-timeline; `width` is of 24 columns.

    `warn` and `bad` are the values from which it turns orange and red.
    """

    title: str
    help: str
    unit: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    width: int = 12
    stacked: bool = False
    warn: float | None = None
    bad: float | None = None


@dataclass(frozen=True)
class Row:
    """A heading, and the panels below it."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """Something to choose above the dashboard, from the values of a label; with `several`, all of them at first."""

    name: str
    label: str
    values: str
    several: bool = False


@dataclass(frozen=True)
class Annotation:
    """Marks on the time axis, where `expr` gives instants as milliseconds since 1970."""

    name: str
    expr: str
    title: str
    text: str


@dataclass(frozen=True)
class Dashboard:
    """A page; `uid` is its address and stays."""

    uid: str
    title: str
    help: str
    variables: Sequence[Variable]
    annotations: Sequence[Annotation]
    rows: Sequence[Row]


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana's JSON."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.help,
        "tags": ["cyclewatch"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one crosshair on all panels
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "links": [
            {
                "title": "cyclewatch",
                "type": "dashboards",
                "tags": ["cyclewatch"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_datasource_variable(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": [_annotation(one) for one in dashboard.annotations]},
        "panels": list(_laid_out(dashboard.rows)),
    }


def _laid_out(rows: Iterable[Row]) -> Iterable[dict[str, Any]]:
    """Rows one below the other, panels from left to right as they fit."""
    number, y = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1},
        }
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            number += 1
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            height = 4 if panel.kind == "stat" else 8
            yield {"id": number, **_panel(panel), "gridPos": {"x": x, "y": y, "w": panel.width, "h": height}}
            x += panel.width
        y += height


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "targets": [_target(number, query, panel) for number, query in enumerate(panel.queries)],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "thresholds": {"mode": "absolute", "steps": _steps(panel)},
                **_look(panel),
            },
            "overrides": [_dashed(number) for number, query in enumerate(panel.queries) if query.dashed],
        },
        "options": _OPTIONS[panel.kind],
    }


def _target(number: int, query: Query, panel: Panel) -> dict[str, Any]:
    instant = panel.kind == "stat"
    return {
        "refId": _letter(number),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "instant": instant,
        "range": not instant,
    }


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _steps(panel: Panel) -> list[dict[str, Any]]:
    """Green from the start, and what the panel says."""
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": "orange", "value": panel.warn}] if panel.warn is not None else []
    steps += [{"color": "red", "value": panel.bad}] if panel.bad is not None else []
    return steps


def _look(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"color": {"mode": "thresholds"}}
    if panel.kind == "state-timeline":
        return {
            "color": {"mode": "thresholds"},
            "mappings": [{"type": "value", "options": {"0": {"text": "as usual"}, "1": {"text": "slower"}}}],
        }
    marked = panel.warn is not None or panel.bad is not None
    return {
        "color": {"mode": "palette-classic"},
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if marked else "off"},
        },
    }


_LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True}
_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "state-timeline": {"legend": _LEGEND, "mergeValues": True, "showValue": "never", "tooltip": {"mode": "single"}},
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    },
}


def _dashed(number: int) -> dict[str, Any]:
    return {
        "matcher": {"id": "byFrameRefID", "options": _letter(number)},
        "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [6, 6]}}],
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.values,
        "query": {"query": variable.values, "refId": "Variable"},
        "refresh": 2,  # with the range of time: targets come and go
        "sort": 1,
        "multi": variable.several,
        "includeAll": variable.several,
        "current": {"text": ["All"], "value": ["$__all"]} if variable.several else {},
    }


def _annotation(annotation: Annotation) -> dict[str, Any]:
    return {
        "name": annotation.name,
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "datasource": DATASOURCE,
        "expr": annotation.expr,
        "target": {"refId": "Annotation", "expr": annotation.expr, "range": True, "instant": False},
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
        "useValueForTime": True,
    }
