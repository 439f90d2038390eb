"""The prober does the fixed work of the CPU for real; its clock is moved by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.probe.programs import ProbeError, StuckError
from cyclewatch.collectors.records import NODE, Reading
from cyclewatch.config.settings import Probe
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.probing import taking
from cyclewatch.daemon.probing.prober import Prober, Surroundings
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.probes import KEPT_NS, ProbeHistory
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredSample, Unit
from cyclewatch.detectors.attribution import Trace
from watched import SECOND, WALL_NS

FREE_GPU = [
    Reading(NODE, "gpu.memory_total_bytes", 80e9, (("gpu", "0"),)),
    Reading(NODE, "gpu.memory_used_bytes", 60e9, (("gpu", "0"),)),
    Reading(NODE, "gpu.sm_ratio", 0.1, (("gpu", "0"),)),
]
GPU_TIMES = tuple(
    Reading(NODE, name, 1e-3, (("gpu", "0"), ("software", "torch 9")))
    for name in ("probe.gpu_matmul_seconds", "probe.gpu_copy_seconds")
)


class Lab:
    """A prober whose readings go straight into a store, and everything that it asks of the daemon."""

    def __init__(self, engine: Engine, **settings: Any) -> None:
        self.at_ns = 0
        self.readings: list[Reading] = []
        self.suspected = False
        self.held = False
        self.taken: list[Reading] = []
        self.metrics = Metrics()
        self._writer = Transactions(engine, "node")
        surroundings = Surroundings(lambda: self.readings, lambda _: self.suspected, self)
        history = ProbeHistory(engine)
        self.prober = Prober(Probe(**settings), history, surroundings, self.take, self.metrics, self.now)

    def hold(self) -> bool:
        if self.held:
            return False
        self.held = True
        return True

    def release(self) -> None:
        assert self.held
        self.held = False

    def now(self) -> Now:
        return Now(self.at_ns, WALL_NS + self.at_ns)

    def take(self, reading: Reading) -> None:
        self.taken.append(reading)
        sample = StoredSample(reading.target, reading.name, reading.labels, WALL_NS + self.at_ns, reading.value)
        self._writer.write(Unit(WALL_NS + self.at_ns, samples=[sample]))

    def probes(self, until_s: int, every_s: int = 10) -> list[int]:
        """When a probe was taken, in seconds, until then."""
        times = []
        while self.at_ns < until_s * SECOND:
            self.at_ns += every_s * SECOND
            before = len(self.taken)
            self.prober.tick()
            if len(self.taken) > before:
                times.append(self.at_ns // SECOND)
        return times

    def count(self, reason: str, verdict: str = "not known") -> float | None:
        labels = {"reason": reason, "verdict": verdict}
        return self.metrics.registry.get_sample_value("cyclewatch_probes_total", labels)


@pytest.fixture(name="engine")
def _engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'probes.db'}", create=True)
    yield engine
    engine.dispose()


@pytest.fixture(name="times")
def _times(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how long the work of the CPU takes from now on, instead of doing it."""

    def takes(seconds: float) -> None:
        readings = tuple(
            Reading(NODE, name, seconds, (("kind", kind), ("software", "python 3")))
            for name in ("probe.cpu_loop_seconds", "probe.memory_scan_seconds")
            for kind in ("cpu", "wall")
        )
        monkeypatch.setattr(taking, "probe_cpu", lambda _: readings)

    takes(0.01)
    return takes


def gpus(monkeypatch: pytest.MonkeyPatch, answer: tuple[Reading, ...] | ProbeError) -> list[list[str]]:
    """Plays the GPUs' program; gives which GPUs it was asked for."""
    asked: list[list[str]] = []

    def probe_gpus(python: str, numbers: list[str], _: object) -> tuple[Reading, ...]:
        asked.append(numbers)
        if isinstance(answer, ProbeError):
            raise answer
        return answer

    monkeypatch.setattr(taking, "probe_gpus", probe_gpus)
    return asked


def test_it_gathers_a_history_and_then_goes_on_once_an_hour(engine: Engine, times: Callable[[float], None]) -> None:
    """Not in its first minute, when it knows nothing of the node."""
    lab = Lab(engine)
    assert lab.probes(3600 * 3) == [60, 360, 660, 960, 1260, 1560, 1860, 2160, 5760, 9360]
    assert lab.count("baseline") == 8
    assert lab.count("baseline", "not the machine") == 2
    assert not lab.held


def test_another_daemon_goes_on_where_the_one_before_stopped(engine: Engine, times: Callable[[float], None]) -> None:
    before = Lab(engine)
    before.probes(3000)
    after = Lab(engine)
    after.at_ns = 4000 * SECOND
    after.prober._begin_ns = after.at_ns
    assert after.probes(6000) == [5760]


def test_one_that_is_asked_for_at_once_does_not_hide_the_history(
    engine: Engine, times: Callable[[float], None]
) -> None:
    """The daemon before has gathered enough: there is no hurry."""
    Lab(engine).probes(3000)
    after = Lab(engine)
    after.at_ns = 4000 * SECOND
    after.prober._begin_ns = after.at_ns
    after.prober.answer({"do": "probe", "gpu": False})
    assert after.probes(8000) == [7600]


def test_a_suspicion_asks_the_machine(engine: Engine, times: Callable[[float], None]) -> None:
    """And it says so when the fixed work takes longer too."""
    lab = Lab(engine)
    lab.probes(3000)
    lab.suspected = True
    times(0.013)
    with capture_logs() as logs:
        assert lab.probes(3400, every_s=100) == [3100, 3400]
    assert lab.count("suspicion", "machine") == 2
    assert logs[0]["slower"]["probe.cpu_loop_seconds cpu"] == "1.30"


def test_nothing_is_probed_beside_a_profile(engine: Engine, times: Callable[[float], None]) -> None:
    lab = Lab(engine)
    lab.held = True
    assert lab.probes(1000) == []
    answer = lab.prober.answer({"do": "probe", "gpu": False})
    assert answer == {"error": "a kernel profile, a probe or a pause is under way: try again in some seconds"}
    lab.held = False
    assert lab.probes(1010) == [1010]


def test_a_busy_node_is_left_alone_until_something_is_suspected(engine: Engine, times: Callable[[float], None]) -> None:
    lab = Lab(engine)
    lab.readings = [Reading(NODE, "host.pressure_ratio", 0.5, (("resource", "cpu"), ("kind", "some")))]
    assert lab.probes(1000) == []
    lab.suspected = True
    assert lab.probes(1010) == [1010]


def test_whoever_asks_gets_an_answer_at_once(engine: Engine) -> None:
    """With the work really done."""
    lab = Lab(engine, enabled=False)
    answer = lab.prober.answer({"do": "probe", "gpu": False})
    assert answer is not None
    assert answer["probe"]["verdict"] == "not known"
    assert [(work["name"], work["labels"]["kind"], work["history"]) for work in answer["probe"]["works"]] == [
        ("probe.cpu_loop_seconds", "cpu", 0),
        ("probe.cpu_loop_seconds", "wall", 0),
        ("probe.memory_scan_seconds", "cpu", 0),
        ("probe.memory_scan_seconds", "wall", 0),
    ]
    assert len(lab.taken) == 4
    assert not lab.held


@pytest.mark.parametrize("question", [{}, {"do": "profile"}, {"do": "probe"}, {"do": "probe", "gpu": 1}])
def test_other_questions_are_not_for_it(engine: Engine, question: dict[str, object]) -> None:
    assert Lab(engine).prober.answer(question) is None


def test_gpus_are_probed_where_that_is_switched_on(
    engine: Engine, times: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = gpus(monkeypatch, GPU_TIMES)
    lab = Lab(engine, gpu=True, gpu_python="/opt/sglang/bin/python")
    lab.readings = [*FREE_GPU, Reading(NODE, "gpu.sm_ratio", 0.9, (("gpu", "1"),))]
    assert lab.probes(60) == [60]
    assert asked == [["0"]]
    assert [one.name for one in lab.taken[4:]] == ["probe.gpu_matmul_seconds", "probe.gpu_copy_seconds"]


@pytest.mark.parametrize(
    ("readings", "python", "note"),
    [
        ([], "/bin/python", "no GPU was probed: none is read; see `cyclewatch doctor`"),
        (FREE_GPU, "", "no GPU was probed: probe.gpu_python is not set: name a Python that has torch, SGLang's own"),
        (FREE_GPU[:1], "/bin/python", "GPU 0 was left alone: its memory or its load is not known"),
    ],
)
def test_why_a_gpu_is_not_probed_is_said(
    engine: Engine,
    times: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
    readings: list[Reading],
    python: str,
    note: str,
) -> None:
    """Even to somebody who asks for it."""
    asked = gpus(monkeypatch, GPU_TIMES)
    lab = Lab(engine, gpu_python=python)
    lab.readings = readings
    answer = lab.prober.answer({"do": "probe", "gpu": True})
    assert answer is not None
    assert answer["probe"]["notes"] == [note]
    assert asked == []


def test_after_a_program_that_cannot_be_ended_no_gpu_is_touched_any_more(
    engine: Engine, times: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs in the driver; the CPU is probed all the same."""
    asked = gpus(monkeypatch, StuckError("it does not end even when killed"))
    lab = Lab(engine, gpu=True, gpu_python="/bin/python")
    lab.readings = FREE_GPU
    assert len(lab.probes(1000)) == 4
    assert len(asked) == 1


def test_a_probe_that_fails_is_tried_again_later(
    engine: Engine, times: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> tuple[Reading, ...]:
        raise ProbeError("the probe was ended")

    lab = Lab(engine)
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(taking, "probe_cpu", fails)
        assert lab.probes(200) == []
        assert lab.prober.answer({"do": "probe", "gpu": False}) == {"error": "the probe was ended"}
    assert [entry["event"] for entry in logs] == ["no probe"]
    assert not lab.held
    assert lab.probes(600) == [500]


def test_without_the_store_it_still_probes(
    engine: Engine, times: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object, at_ns: int) -> list[Trace]:
        raise OperationalError("select", {}, Exception("the database is away"))

    monkeypatch.setattr(ProbeHistory, "before", away)
    lab = Lab(engine)
    with capture_logs() as logs:
        assert lab.probes(60) == [60]
    assert [entry["event"] for entry in logs] == ["the probe's history cannot be read", "probe"]
    assert logs[1]["notes"] == ["there is nothing to compare with: the database is away"]


def test_it_looks_back_a_week(engine: Engine, times: Callable[[float], None]) -> None:
    """Each work by its labels, in order of time."""
    lab = Lab(engine)
    lab.probes(3000)
    at_ns = WALL_NS + 3000 * SECOND
    traces = ProbeHistory(engine).before(at_ns)
    assert {(trace.name, trace.labels["kind"]) for trace in traces} == {
        (name, kind) for name in ("probe.cpu_loop_seconds", "probe.memory_scan_seconds") for kind in ("cpu", "wall")
    }
    assert all(len(trace.values) == 8 and (trace.at_ns[1:] > trace.at_ns[:-1]).all() for trace in traces)
    assert ProbeHistory(engine).before(at_ns + KEPT_NS) == []


def test_it_starts_and_stops(engine: Engine) -> None:
    """Also where it is switched off."""
    for enabled in (True, False):
        prober = Lab(engine, enabled=enabled).prober
        prober.start()
        prober.stop()
        assert not prober._thread.is_alive()
