from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from cyclewatch.detectors.attribution import Event, Evidence, StageMeans, Trace, causes, split

BEGAN_NS = 10**18
STAGES_BEFORE = (100e3, 10e3, 4000e3, 0.0, 300e3, 90e3)


def _means(bucket: int, launch_ns: float, on_cpu_ratio: float = float("nan"), count: int = 100) -> StageMeans:
    stages = (*STAGES_BEFORE[:2], launch_ns, *STAGES_BEFORE[3:])
    return StageMeans(bucket, count, stages, on_cpu_ratio)


def _evidence(
    launch_ns: float,
    used: tuple[float, float] = (float("nan"), float("nan")),
    readings: Mapping[str, tuple[float, float]] | None = None,
    events: tuple[Event, ...] = (),
) -> Evidence:
    return Evidence(
        BEGAN_NS,
        "tp0",
        before=[_means(8, 4000e3, used[0])],
        after=[_means(8, launch_ns, used[1])],
        synchronous=True,
        traces=[
            Trace(name, {}, np.array([BEGAN_NS - 1, BEGAN_NS]), np.array(values))
            for name, values in (readings or {}).items()
        ],
        events=events,
    )


def test_the_parts_sum_to_the_mean_cycle() -> None:
    """Before and after, over the load buckets that both have."""
    parts = split([_means(8, 4000e3), _means(4, 3000e3)], [_means(8, 5000e3), _means(16, 9000e3)])
    assert sum(part.before_us for part in parts) == pytest.approx(4500)
    assert sum(part.after_us for part in parts) == pytest.approx(5500)


def test_a_load_change_is_not_in_the_split() -> None:
    """More large batches after than before: each bucket is weighted alike on both sides."""
    before = [_means(4, 3000e3, count=90), _means(8, 5000e3, count=10)]
    after = [_means(4, 3000e3, count=10), _means(8, 5000e3, count=90)]
    assert sum(part.delta_us for part in split(before, after)) == pytest.approx(0)


def test_no_common_load_is_no_split() -> None:
    """Nothing is compared with something else."""
    assert split([_means(4, 3000e3)], [_means(8, 3000e3)]) == ()


def _ranked(evidence: Evidence) -> list[str]:
    return [cause.kind for cause in causes(evidence, split(evidence.before, evidence.after))]


def test_a_sleep_in_run_batch_is_off_the_cpu() -> None:
    """1 ms longer, none of it computing."""
    assert _ranked(_evidence(5000e3, used=(1.0, 4.5 / 5.5))) == ["stage_launch_blocked"]


def test_a_slower_computation_is_on_the_cpu() -> None:
    """1 ms longer, all of it computing: that tells where, not why."""
    assert _ranked(_evidence(5000e3, used=(1.0, 1.0))) == ["unexplained", "stage_launch_busy"]


def test_both_get_their_share() -> None:
    """Half and half: two causes whose shares sum to the stage's."""
    evidence = _evidence(5000e3, used=(1.0, 5.0 / 5.5))
    found = causes(evidence, split(evidence.before, evidence.after))
    shares = {cause.kind: cause.share for cause in found}
    assert shares == {name: pytest.approx(0.5) for name in ("stage_launch_blocked", "stage_launch_busy", "unexplained")}


def test_a_measured_cause_on_the_host_ranks_above_the_stage_it_falls_into() -> None:
    """The thread waits for a CPU for 1 ms of a 5.5 ms cycle: the stage is the consequence."""
    readings = {"host.run_queue_wait_ratio": (0.0, 1 / 5.5)}
    assert _ranked(_evidence(5000e3, (1.0, 4.5 / 5.5), readings)) == ["run_queue_wait", "stage_launch_blocked"]


def test_one_that_explains_the_smaller_part_ranks_by_it() -> None:
    """A quarter of the slowdown is waiting for a CPU, the rest is a sleep: the sleep comes first."""
    readings = {"host.run_queue_wait_ratio": (0.0, 0.25 / 5.5)}
    assert _ranked(_evidence(5000e3, (1.0, 4.5 / 5.5), readings)) == ["stage_launch_blocked", "run_queue_wait"]


def test_throttling_is_named() -> None:
    """So is a quota that is used up."""
    assert _ranked(_evidence(5000e3, readings={"host.cgroup_throttled_ratio": (0.0, 0.15)}))[0] == "cgroup_throttling"


def test_a_change_of_the_server_is_a_candidate() -> None:
    """Inferred from its time alone."""
    evidence = _evidence(5000e3, events=(Event(BEGAN_NS, "restart", "server", "", ""),))
    assert _ranked(evidence)[0] == "deployment"


def test_what_nothing_explains_is_said_to_be_unexplained() -> None:
    """Every stage a little longer, none standing out."""
    slower = tuple(stage * 1.2 for stage in (100e3,) * 6)
    evidence = Evidence(
        BEGAN_NS,
        "tp0",
        before=[StageMeans(8, 10, (100e3,) * 6, float("nan"))],
        after=[StageMeans(8, 10, slower, float("nan"))],
        synchronous=True,
    )
    assert _ranked(evidence) == ["unexplained"]


@pytest.mark.parametrize("labels", [{"rank": "tp1"}, {"process": "main"}, {"thread": "others"}])
def test_readings_count_of_the_schedulers_main_thread_only(labels: dict[str, str]) -> None:
    """Not of another rank, process or thread; labels that a series does not have do not matter."""
    waits = {"host.run_queue_wait_ratio": (0.0, 1 / 5.5)}
    evidence = _evidence(5000e3, (1.0, 4.5 / 5.5), waits)
    other = replace(evidence, traces=[replace(trace, labels=labels) for trace in evidence.traces])
    assert _ranked(evidence)[0] == "run_queue_wait"
    assert _ranked(other) == ["stage_launch_blocked"]


def test_a_reading_known_on_one_side_only_is_no_evidence() -> None:
    late = Trace("host.run_queue_wait_ratio", {}, np.array([BEGAN_NS]), np.array([1 / 5.5]))
    evidence = replace(_evidence(5000e3, (1.0, 4.5 / 5.5)), traces=[late])
    assert _ranked(evidence) == ["stage_launch_blocked"]


def test_getting_faster_has_no_causes() -> None:
    """Only slowdowns are explained."""
    assert _ranked(_evidence(3000e3)) == []
