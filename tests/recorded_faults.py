"""Evidence of real faults as files: what attribution was given, and what was done to the server.

`tests/fixtures/faults/README.md` says how they are made.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cyclewatch.detectors.attribution import Event, Evidence, RankCycles, StageMeans, Trace
from cyclewatch.detectors.phases import Floats

_MS = 10**6
_DIGITS = 4
_DEEP = 3
_KNOWN_COMMANDS = ("python", "sglang", "pytest", "kworker", "ksoftirqd")


@dataclass(frozen=True)
class RecordedFault:
    """One fault: `provenance` says of what, when and where, `expected` the kinds that may come first."""

    name: str
    provenance: Mapping[str, Any]
    expected: tuple[str, ...]
    evidence: Evidence


def load(path: Path) -> RecordedFault:
    """The fault in a file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    evidence = document["evidence"]
    start_ns = evidence["started_at_ns"]
    levels = evidence["levels"]
    return RecordedFault(
        name=path.stem,
        provenance=document["provenance"],
        expected=tuple(document["expected"]),
        evidence=Evidence(
            started_at_ns=start_ns,
            rank=evidence["rank"],
            before=_means_from(evidence["before"]),
            after=_means_from(evidence["after"]),
            synchronous=evidence["synchronous"],
            levels=None if levels is None else _trace_from(levels, start_ns),
            traces=[_trace_from(trace, start_ns) for trace in evidence["traces"]],
            events=[Event(start_ns + at_ms * _MS, *texts) for at_ms, *texts in evidence["events"]],
            ranks=[
                RankCycles(one["rank"], _means_from(one["before"]), _means_from(one["after"]))
                for one in evidence["ranks"]
            ],
        ),
    )


def save(path: Path, evidence: Evidence, expected: Sequence[str], provenance: Mapping[str, Any]) -> None:
    """Write a fault: one line a trace, times as milliseconds from its beginning, values with four digits.

    Where all values of a trace are the same, that one is written.
    """
    start_ns = evidence.started_at_ns
    document: dict[str, Any] = {
        "provenance": dict(provenance),
        "expected": list(expected),
        "evidence": {
            "started_at_ns": start_ns,
            "rank": evidence.rank,
            "synchronous": evidence.synchronous,
            "before": _means_to(evidence.before),
            "after": _means_to(evidence.after),
            "ranks": [
                {"rank": one.rank, "before": _means_to(one.before), "after": _means_to(one.after)}
                for one in evidence.ranks
            ],
            "events": [
                [(one.at_ns - start_ns) // _MS, one.kind, one.subject, one.before, one.after] for one in evidence.events
            ],
            "levels": None if evidence.levels is None else _trace_to(evidence.levels, start_ns),
            "traces": [_trace_to(trace, start_ns) for trace in _of_anybody(evidence.traces)],
        },
    }
    path.write_text(_lines(document) + "\n", encoding="utf-8")


def _lines(value: object, depth: int = 0) -> str:
    """JSON with a line for each member of the outer objects, and for each trace."""
    if depth == _DEEP or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    if isinstance(value, dict):
        members = [f"{json.dumps(key)}: {_lines(member, depth + 1)}" for key, member in value.items()]
        return "{\n" + ",\n".join(members) + "\n}"
    return "[\n" + ",\n".join(json.dumps(member) for member in value) + "\n]"


def _of_anybody(traces: Iterable[Trace]) -> list[Trace]:
    """Without readings of the daemon itself, and without the names of what else runs on the machine."""
    kept, numbers = [], dict[str, str]()
    for trace in traces:
        command = trace.labels.get("command", "")
        if command and not command.startswith(_KNOWN_COMMANDS):
            name = numbers.setdefault(command, f"other-{len(numbers) + 1}")
            kept.append(Trace(trace.name, {**trace.labels, "command": name}, trace.at_ns, trace.values))
        elif not trace.name.startswith("self."):
            kept.append(trace)
    return kept


def _trace_to(trace: Trace, start_ns: int) -> dict[str, Any]:
    values = _numbers(trace.values)
    return {
        "name": trace.name,
        "labels": dict(trace.labels),
        "at_ms": ((trace.at_ns - start_ns) // _MS).tolist(),
        "values": values if len(set(values)) > 1 else values[0],
    }


def _trace_from(document: Mapping[str, Any], start_ns: int) -> Trace:
    at_ns = np.array(document["at_ms"], np.int64) * _MS + start_ns
    stored = document["values"]
    values = [
        math.nan if one is None else one for one in (stored if isinstance(stored, list) else [stored] * len(at_ns))
    ]
    return Trace(document["name"], document["labels"], at_ns, np.array(values, np.float64))


def _means_to(means: Sequence[StageMeans]) -> list[list[Any]]:
    return [
        [one.bucket, one.count, [round(stage_ns) for stage_ns in one.stages_ns], *_numbers([one.on_cpu_ratio])]
        for one in means
    ]


def _means_from(rows: Iterable[Sequence[Any]]) -> list[StageMeans]:
    return [
        StageMeans(bucket, count, tuple(float(stage_ns) for stage_ns in stages_ns), math.nan if used is None else used)
        for bucket, count, stages_ns, used in rows
    ]


def _numbers(values: Floats | Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.{_DIGITS}g}") for value in values]
