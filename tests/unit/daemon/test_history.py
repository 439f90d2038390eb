import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.records import NODE
from cyclewatch.daemon.store.unit import ChangeEvent, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.attribution import Event, Evidence
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.windows import cells_of
from simulated import cycles
from units import REGRESSION, RUN, SECOND
from watched import Watched

BEGAN_NS = 1000 * SECOND
FOUND = replace(REGRESSION, started_at_ns=BEGAN_NS, detected_at_ns=BEGAN_NS + 40 * SECOND)


class Past:
    """A store in which things have been noted, and the evidence it gives."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched

    def note(self, **parts: Any) -> None:
        runs = parts.pop("runs", [RUN])
        self._watched.writer.write(Unit(0, runs=runs, **parts))

    def evidence(self, **changes: Any) -> Evidence:
        place: dict[str, Any] = {"rank": "tp0", "phase": "decode", "regression": FOUND, "synchronous": False, **changes}
        return self._watched.history.evidence(RUN, **place)


@pytest.fixture(name="past")
def _past(tmp_path: Path) -> Iterator[Past]:
    watched = Watched(tmp_path)
    yield Past(watched)
    watched.close()


def window(at_s: int, *, run: str = RUN.key, rank: str = "tp0", count: int = 10) -> StoredWindow:
    (cell,) = cells_of(Phase.DECODE, cycles(count))
    return StoredWindow(run, rank, at_s * SECOND, 5 * SECOND, cell)


def sample(at_s: int, value: float, name: str = "host.run_queue_wait_ratio", **labels: str) -> StoredSample:
    return StoredSample("server", name, tuple(labels.items()), at_s * SECOND, value)


def test_windows_are_told_apart_by_the_beginning_of_the_change(past: Past) -> None:
    """Ten minutes before it, and from it to the detection."""
    past.note(windows=[window(at_s, count=at_s) for at_s in (399, 400, 999, 1000, 1040, 1041)])
    evidence = past.evidence()
    assert [one.count for one in evidence.before] == [400 + 999]
    assert [one.count for one in evidence.after] == [1000 + 1040]
    assert evidence.before[0].stages_ns == (0, 0, 5_000_000, 0, 0, 0)
    assert math.isnan(evidence.before[0].on_cpu_ratio)


def test_evidence_is_of_this_rank_phase_and_configuration(past: Past) -> None:
    """Back over a restart with the same settings, not over one with others."""
    same, other = replace(RUN, key="k1"), replace(RUN, key="k2", fingerprint="beef")
    windows = [window(990), window(990, run="k1"), window(990, run="k2"), window(990, rank="tp1")]
    past.note(runs=[RUN, same, other], windows=windows)
    assert [one.count for one in past.evidence().before] == [20]
    assert past.evidence(phase="extend").before == []
    assert [one.count for one in past.evidence(rank="tp1").before] == [10]


def test_readings_are_all_of_the_server_and_its_node_in_both_stretches(past: Past) -> None:
    """One trace a series, in order of time; nothing of another server, nor from before or after."""
    of_node = replace(sample(950, 0.5, "host.cpu_usage_ratio"), target=NODE)
    of_another = replace(sample(950, 0.5), target="another")
    samples = [sample(at_s, at_s / 1e4, rank="tp0") for at_s in (399, 1040, 400, 1041)]
    past.note(samples=[*samples, sample(950, 0.3, rank="tp1"), of_node, of_another])
    traces = past.evidence().traces
    assert [(trace.name, trace.labels, trace.values.tolist()) for trace in traces] == [
        ("host.run_queue_wait_ratio", {"rank": "tp0"}, [0.04, 0.104]),
        ("host.run_queue_wait_ratio", {"rank": "tp1"}, [0.3]),
        ("host.cpu_usage_ratio", {}, [0.5]),
    ]
    assert traces[0].at_ns.tolist() == [400 * SECOND, 1040 * SECOND]


def test_events_within_two_minutes_of_the_beginning_are_told(past: Past) -> None:
    """Of this target only."""
    events = [ChangeEvent("server", at_s * SECOND, "argument", f"a{at_s}", "1", "2") for at_s in (879, 880, 1120, 1121)]
    past.note(events=[*events, ChangeEvent("another", BEGAN_NS, "restart", "server", "", "")])
    assert [event.subject for event in past.evidence().events] == ["a880", "a1120"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (("restart", "server", "", ""), "the server was restarted"),
        (("version", "sglang", "0.5.4", "0.5.23"), "sglang changed from 0.5.4 to 0.5.23"),
        (("argument", "page_size", "", "16"), "page_size changed from nothing to 16"),
    ],
)
def test_events_read_as_sentences(event: tuple[str, str, str, str], text: str) -> None:
    assert Event(BEGAN_NS, *event).text == text
