"""What is named for evidence that a field engineer would know what to make of."""

from dataclasses import replace

import numpy as np
import pytest

from attribution_scenes import BEGAN_NS, CPU_SERVER, GPU_SERVER, kinds, named, slower, trace
from cyclewatch.detectors.attribution import Cause, Event, Evidence, RankCycles, Status, Trace, causes

CLOCK_FELL = trace("gpu.sm_clock_hertz", 1.98e9, 1.4e9, noise=0.01, pace_s=2, gpu="0")
CAPPED = trace("gpu.event_reason_ratio", 0.05, 0.9, noise=0.1, pace_s=15, gpu="0", reason="sw_power_cap")
BYSTANDERS = (
    trace("host.disk_write_bytes_per_s", 1e6, 9e6, noise=0.1, disk="sda"),
    trace("gpu.temperature_celsius", 60, 50, noise=0.02, gpu="0"),
    trace("host.other_command_ratio", 0.1, 0.4, noise=0.1, command="backup"),
)
"""They move at the same moment and cannot be it."""


def _scheduler(name: str, before: float, after: float, rank: str = "tp0") -> Trace:
    return trace(name, before, after, noise=0.02, process="scheduler", rank=rank, thread="main")


def _first(evidence: Evidence) -> Cause:
    return named(evidence)[0]


def test_a_power_cap_stands_above_the_clock_that_it_holds_down() -> None:
    """With the clock's share, and the clock as its consequence."""
    cap, clock, *rest = named(slower(GPU_SERVER, {3: 3e6}, [CLOCK_FELL, CAPPED, *BYSTANDERS]))
    assert (cap.kind, cap.device, cap.status) == ("gpu_power_cap", "gpu0", Status.MEASURED)
    assert cap.share == pytest.approx(1)
    assert clock.kind == "gpu_clock"
    assert clock.evidence[-1] == "a consequence of gpu_power_cap"
    assert [cause.kind for cause in rest] == ["stage_wait"]


def test_a_clock_that_nothing_holds_down_is_the_cause_itself() -> None:
    """Set by hand, or by an application."""
    assert _first(slower(GPU_SERVER, {3: 3e6}, [CLOCK_FELL, *BYSTANDERS])).kind == "gpu_clock"


def test_a_power_cap_without_a_lower_clock_did_nothing() -> None:
    """At full load a GPU is often at its limit."""
    steady = trace("gpu.sm_clock_hertz", 1.98e9, 1.98e9, noise=0.01, pace_s=2, gpu="0")
    assert "gpu_power_cap" not in kinds(slower(GPU_SERVER, {3: 3e6}, [steady, CAPPED]))


def test_a_clock_that_is_not_read_leaves_the_power_cap_inferred() -> None:
    """Missing is not unmoved."""
    first = _first(slower(GPU_SERVER, {3: 3e6}, [CAPPED]))
    assert (first.kind, first.status) == ("gpu_power_cap", Status.INFERRED)


def test_what_is_hidden_is_unexplained() -> None:
    """Whatever else moved at the moment."""
    assert kinds(slower(GPU_SERVER, {3: 3e6}, BYSTANDERS)) == ["unexplained", "stage_wait"]


def test_the_probe_tells_software_from_the_machine() -> None:
    """The same fixed work takes as long as before, or longer by as much as the host stages do."""
    twice = dict(enumerate(CPU_SERVER))
    same = trace("probe.cpu_loop_seconds", 0.012, 0.012, noise=0.01, pace_s=60, kind="cpu")
    longer = trace("probe.cpu_loop_seconds", 0.012, 0.024, noise=0.01, pace_s=60, kind="cpu")
    assert _first(slower(CPU_SERVER, twice, [same])).evidence[-1].endswith("it is software or load")
    assert _first(slower(CPU_SERVER, twice, [longer])).kind == "cpu_slower"


def test_a_clock_that_fell_minutes_before_is_not_it() -> None:
    """The right sign and size at the wrong time."""
    earlier = trace("gpu.sm_clock_hertz", 1.98e9, 1.4e9, noise=0.01, pace_s=2, at_s=-200, gpu="0")
    assert kinds(slower(GPU_SERVER, {3: 3e6}, [earlier])) == ["unexplained", "stage_wait"]


def test_a_clock_that_fell_too_little_is_not_it() -> None:
    """2 % of the clock cannot make a cycle 30 % longer."""
    little = trace("gpu.sm_clock_hertz", 1.98e9, 1.94e9, noise=0.001, pace_s=2, gpu="0")
    assert _first(slower(GPU_SERVER, {3: 3e6}, [little])).kind == "unexplained"


def test_another_servers_gpu_is_not_it() -> None:
    """Where it is read which GPUs the server's processes use."""
    own = trace("gpu.process_sm_ratio", 0.9, 0.9, noise=0.01, pace_s=30, gpu="1", process="scheduler", rank="tp0")
    events = (Event(BEGAN_NS, "xid", "gpu0", "", "XID 79"),)
    assert _first(slower(GPU_SERVER, {3: 3e6}, [CLOCK_FELL, own], events)).kind == "unexplained"


def test_a_gpu_that_idles_for_a_slow_host_is_a_consequence() -> None:
    """The host doubles, the wait shrinks for it, the GPU is used less."""
    twice = {0: 3e5, 1: 5e4, 2: 15e5, 3: -1.5e6, 4: 9e5, 5: 2.5e5}
    frequency = _scheduler("host.cpu_frequency_hertz", 3e9, 1.5e9)
    first, *rest = named(slower(GPU_SERVER, twice, [frequency, trace("gpu.sm_ratio", 0.9, 0.7, 0.02, gpu="0")]))
    assert first.kind == "cpu_frequency"
    assert first.share == pytest.approx(1, abs=0.05)
    assert {cause.evidence[-1] for cause in rest} == {"a consequence of cpu_frequency"}
    assert "gpu_utilization" in [cause.kind for cause in rest]


def test_two_causes_have_their_shares() -> None:
    """Both read as times."""
    waits = _scheduler("host.run_queue_wait_ratio", 0.0, 0.12)
    collects = trace("cycles.collected_ratio", 0.0, 0.06, noise=0.02, rank="tp0")
    shares = {one.kind: one.share for one in named(slower(CPU_SERVER, {2: 1e6}, [waits, collects]))}
    assert shares["run_queue_wait"] == pytest.approx(0.66, abs=0.03)
    assert shares["garbage_collection"] == pytest.approx(0.33, abs=0.03)


def test_time_that_shows_in_two_readings_counts_once() -> None:
    """A throttled thread waits in the run queue."""
    waits = _scheduler("host.run_queue_wait_ratio", 0.0, 0.18)
    held_back = _scheduler("host.cgroup_throttled_ratio", 0.0, 0.18)
    found = {one.kind: one for one in named(slower(CPU_SERVER, {2: 1e6}, [waits, held_back]))}
    assert next(iter(found)) == "cgroup_throttling"
    assert found["cgroup_throttling"].share == pytest.approx(1, abs=0.05)
    assert found["run_queue_wait"].evidence[-1] == "a consequence of cgroup_throttling"


def test_a_report_without_cycles_has_its_cause() -> None:
    """A step became 3.8 times as long, the frequency fell by as much, and the GPU is used less: two values each."""

    def pair(name: str, before: float, after: float, **labels: str) -> Trace:
        return Trace(name, labels, np.array([BEGAN_NS - 1, BEGAN_NS]), np.array([before, after]))

    readings = (
        pair("gpu.utilization_ratio", 0.45, 0.12, gpu="0"),
        pair("host.cpu_frequency_ratio", 0.857, 0.225),
        pair("host.disk_usage_ratio", 0.01, 0.4, disk="sda"),
    )
    evidence = Evidence(BEGAN_NS, "", before=(), after=(), synchronous=False, traces=readings, slower=3.8)
    first, second = causes(evidence, ())
    assert first.kind == "cpu_frequency"
    assert first.share == pytest.approx(1)
    assert (second.kind, second.evidence[-1]) == ("gpu_utilization", "a consequence of cpu_frequency")


def _of_three_ranks(*traces: Trace) -> Evidence:
    waits, slow = slower(GPU_SERVER, {3: 2e6}, traces), slower(GPU_SERVER, {0: 6e5, 2: 1.4e6})
    others = [RankCycles("tp1", waits.before, waits.after), RankCycles("tp2", slow.before, slow.after)]
    return replace(waits, ranks=others)


def test_the_rank_that_makes_the_others_wait_is_named() -> None:
    """Seen from one that waits."""
    first = _first(_of_three_ranks())
    assert (first.kind, first.device) == ("straggler", "tp2")
    assert first.evidence == (
        "tp2 waits 7.000 ms a cycle before, 7.000 ms after",
        "tp0, tp1 wait 7.000 ms a cycle before, 9.000 ms after",
    )


def test_what_makes_that_rank_slow_stands_above_it() -> None:
    """By its own readings, not those of the rank that waits."""
    on_tp2 = _scheduler("host.run_queue_wait_ratio", 0.0, 0.17, rank="tp2")
    found = {one.kind: one for one in named(_of_three_ranks(on_tp2))}
    assert next(iter(found)) == "run_queue_wait"
    assert found["run_queue_wait"].device == "tp2"
    assert found["straggler"].evidence[-1] == "a consequence of run_queue_wait"


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([("version", "sglang", "0.5.4", "0.5.23")], "deployment"),
        ([("restart", "server", "", "")], "deployment"),
        ([("restart", "server", "", ""), ("environment", "driver", "570", "580")], "driver"),
        ([("environment", "gpu0.power_limit_w", "700", "400")], "gpu_power_cap"),
        ([("xid", "gpu0", "", "XID 79")], "gpu_xid"),
        ([("profile", "server", "", "a profile was taken")], "profiling"),
    ],
)
def test_events_are_candidates(events: list[tuple[str, str, str, str]], kind: str) -> None:
    """By their kinds; a restart tells nothing beside what changed with it."""
    happened = [Event(BEGAN_NS - 10**9, *event) for event in events]
    first = _first(slower(GPU_SERVER, {3: 3e6}, events=happened))
    assert (first.kind, first.status) == (kind, Status.INFERRED)


def test_an_event_after_the_beginning_is_no_cause() -> None:
    """A minute too late."""
    late = Event(BEGAN_NS + 60 * 10**9, "version", "sglang", "0.5.4", "0.5.23")
    assert "deployment" not in kinds(slower(GPU_SERVER, {3: 3e6}, events=(late,)))


def test_a_process_that_is_stopped_is_off_the_cpu_in_all_stages() -> None:
    """Run queue, faults, pressure and steal were read, and did not move."""
    still = (
        _scheduler("host.run_queue_wait_ratio", 0.01, 0.01),
        _scheduler("host.major_faults_per_s", 0.1, 0.1),
        trace("host.pressure_ratio", 0.01, 0.01, noise=0.1, resource="io", kind="some"),
        trace("host.cpu_mode_ratio", 0.0, 0.0, mode="steal"),
    )
    alike = {place: 0.3 * time for place, time in enumerate(CPU_SERVER)}
    on_cpu = (1.0, 1 / 1.3)
    assert kinds(slower(CPU_SERVER, alike, still, on_cpu=on_cpu))[0] == "stopped"
    assert kinds(slower(CPU_SERVER, {2: 1.3e6}, still, on_cpu=on_cpu))[0] == "stage_launch_blocked"
    assert kinds(slower(CPU_SERVER, alike, still[:1], on_cpu=on_cpu))[0] == "stage_launch_blocked"


def test_a_wait_for_a_cpu_that_is_not_sure_is_no_stop_either() -> None:
    """What ended right before the change had made the thread wait too; only the stage is known then."""
    at_ns = BEGAN_NS + np.arange(-5, 24) * 2 * 10**9
    readings = (
        replace(
            _scheduler("host.run_queue_wait_ratio", 0, 0),
            at_ns=at_ns,
            values=np.array([0.6, 0.6, *[0.01] * 3, *[0.66] * 24]),
        ),
        _scheduler("host.major_faults_per_s", 0.1, 0.1),
        trace("host.pressure_ratio", 0.01, 0.01, noise=0.1, resource="io", kind="some"),
        trace("host.cpu_mode_ratio", 0.0, 0.0, mode="steal"),
    )
    alike = {place: 2.0 * time for place, time in enumerate(CPU_SERVER)}
    assert kinds(slower(CPU_SERVER, alike, readings, on_cpu=(1.0, 1 / 3))) == ["stage_launch_blocked"]


def test_a_stop_beside_a_wait_for_a_cpu_has_what_the_wait_leaves() -> None:
    """The run queue tells its part exactly; the pressure on CPUs is the same wait once more."""
    readings = (
        _scheduler("host.run_queue_wait_ratio", 0.01, 0.07),
        _scheduler("host.major_faults_per_s", 0.1, 0.1),
        trace("host.pressure_ratio", 0.01, 0.01, noise=0.1, resource="io", kind="some"),
        trace("host.pressure_ratio", 0.01, 0.1, noise=0.1, resource="cpu", kind="some"),
        trace("host.cpu_mode_ratio", 0.0, 0.0, mode="steal"),
    )
    alike = {place: 0.3 * time for place, time in enumerate(CPU_SERVER)}
    first, second, *_ = named(slower(CPU_SERVER, alike, readings, on_cpu=(1.0, 1 / 1.3)))
    assert (first.kind, second.kind) == ("stopped", "run_queue_wait")
    assert first.share == pytest.approx(0.73, abs=0.02)
    assert second.share == pytest.approx(0.27, abs=0.02)
