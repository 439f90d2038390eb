"""That simulated faults are physics: what slows down, what follows, and what has nothing to do with it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cyclewatch.collectors.records import STAGES
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.detectors.attribution.evidence import Evidence, Trace
from cyclewatch.detectors.kernels.comparison import Verdict
from cyclewatch.detectors.simulation.faults import FAULTS, PAIRS, Case, draw, draw_hidden, draw_two
from cyclewatch.detectors.simulation.faults.cycles import cycles_in, mean_ns
from cyclewatch.detectors.simulation.faults.node import Node, draw_cpu_node, draw_gpu_node
from cyclewatch.detectors.simulation.faults.state import Gpu, Host, Service
from cyclewatch.detectors.simulation.faults.traces import Level, Levels, S, Stretch, traces
from cyclewatch.detectors.simulation.traffic import DECODE, Load, LoadSource

_WAIT, _LAUNCH = STAGES.index("wait"), STAGES.index("launch")


def _load(node: Node) -> Load:
    return LoadSource(node.traffic, np.random.default_rng(3)).block(20)


def _gpu_node(*, ranks: int = 1, host_bound: bool = False) -> Node:
    return draw_gpu_node(np.random.default_rng(5), ranks=ranks, host_bound=host_bound)


def _slower(node: Node, host: Host) -> float:
    load = _load(node)
    state = replace(node.healthy, host=host)
    decodes = load.phase == DECODE
    return mean_ns(node, state, load, decodes) / mean_ns(node, node.healthy, load, decodes)


def _side(evidence: Evidence, name: str, *, late: bool, **labels: str) -> float:
    """Mean of a reading well before or well after the change."""
    found = [
        trace.values[(trace.at_ns >= evidence.started_at_ns) == late]
        for trace in evidence.traces
        if trace.name == name and labels.items() <= trace.labels.items()
    ]
    return float(np.mean(np.concatenate(found)))


def test_a_slow_host_hides_behind_a_busy_device_and_shows_where_the_device_waits() -> None:
    """The device has enough to do meanwhile in one of them."""
    host = Host(frequency=0.35)
    assert 1 < _slower(_gpu_node(), host) < 1.1
    assert _slower(_gpu_node(host_bound=True), host) > 1.2


def test_on_a_cpu_a_lower_frequency_slows_what_computes_and_not_what_waits_for_memory() -> None:
    node = draw_cpu_node(np.random.default_rng(5))
    halved = [_slower(replace(node, memory=memory), Host(frequency=0.5)) for memory in (0.0, 0.5, 0.9)]
    assert halved == sorted(halved, reverse=True)
    assert halved[0] == pytest.approx(2, rel=0.1)


def test_losses_multiply_what_is_left() -> None:
    node = draw_cpu_node(np.random.default_rng(5))
    assert _slower(node, Host(stolen=0.5)) == pytest.approx(2)
    assert _slower(node, Host(held_back=0.5)) == pytest.approx(2)
    assert _slower(node, Host(stolen=0.5, held_back=0.5)) == pytest.approx(4)


def test_a_collection_is_not_hidden_by_the_device() -> None:
    assert _slower(_gpu_node(), Host(collecting=0.2)) == pytest.approx(1 / 0.8)


def test_all_ranks_wait_for_the_slowest_gpu() -> None:
    node = _gpu_node(ranks=4)
    state = node.healthy.with_gpu(node.own[2], Gpu(sm_clock=0.5))
    ranks = cycles_in(node, state, _load(node))
    assert all(np.allclose(rank.total_ns, ranks[0].total_ns) for rank in ranks)
    assert ranks[0].total_ns.mean() > cycles_in(node, node.healthy, _load(node))[0].total_ns.mean()


def test_a_gpu_of_another_server_slows_nobody_here() -> None:
    node = replace(_gpu_node(ranks=2), gpus=8, own=(0, 1))
    state, load = node.healthy.with_gpu(5, Gpu(sm_clock=0.3, taken=0.5)), _load(node)
    before, after = (cycles_in(node, one, load)[0].total_ns for one in (node.healthy, state))
    assert np.array_equal(before, after)


def test_of_a_straggler_the_launch_grows_and_of_the_others_the_wait() -> None:
    node = _gpu_node(ranks=4, host_bound=True)
    state = replace(node.healthy, slow_rank=1, slow_rank_slowness=2.0)
    before, after = (cycles_in(node, one, _load(node)) for one in (node.healthy, state))
    assert after[1].stages_ns[_LAUNCH].mean() == pytest.approx(2 * before[1].stages_ns[_LAUNCH].mean())
    for rank in (0, 2, 3):
        assert after[rank].stages_ns[_LAUNCH].mean() == pytest.approx(before[rank].stages_ns[_LAUNCH].mean())
        assert after[rank].stages_ns[_WAIT].mean() > 1.2 * before[rank].stages_ns[_WAIT].mean()


def test_without_graphs_launching_takes_longer() -> None:
    node = _gpu_node()
    state = replace(node.healthy, service=Service(graphs=0.0))
    load = _load(node)
    launches = [
        cycles_in(node, one, load)[0].stages_ns[_LAUNCH][load.phase == DECODE].mean() for one in (node.healthy, state)
    ]
    assert launches[1] > 5 * launches[0]


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_slows_down_and_comes_again(kind: str) -> None:
    """As much as its truth says, within its noise; equal seeds give equal cases."""
    case, again = draw(kind, 11), draw(kind, 11)
    assert case.truth == again.truth
    assert _values(case.evidence.traces) == _values(again.evidence.traces)
    assert 0.03 <= case.truth.slowdown <= 3.3
    assert len(case.truth.bystanders) >= 3
    assert sum(part.share for part in case.truth.parts) == pytest.approx(1)
    assert _measured(case) == pytest.approx(case.truth.slowdown, rel=0.35, abs=0.12)


def _values(found: Sequence[Trace]) -> list[tuple[str, list[float]]]:
    return [(trace.name, trace.values.tolist()) for trace in found]


def _measured(case: Case) -> float:
    assert case.evidence.levels is not None
    late = case.evidence.levels.at_ns >= case.evidence.started_at_ns
    assert late.any()
    assert not late.all()
    common = {mean.bucket for mean in case.evidence.before} & {mean.bucket for mean in case.evidence.after}
    assert common
    weights = {mean.bucket: mean.count for mean in case.evidence.after if mean.bucket in common}
    sides = [
        sum(weights[mean.bucket] * sum(mean.stages_ns) for mean in side if mean.bucket in common)
        for side in (case.evidence.before, case.evidence.after)
    ]
    return sides[1] / sides[0] - 1


@pytest.mark.parametrize("kind", FAULTS)
def test_readings_are_those_of_the_collectors(kind: str) -> None:
    """Names and labels, and values that could be."""
    labels = {name: set(quantity.labels) for name, quantity in known_quantities().items()}
    for trace in draw(kind, 12).evidence.traces:
        assert trace.labels.keys() <= labels[trace.name], trace.name
        assert np.all(np.diff(trace.at_ns) > 0)
        assert np.all(np.isfinite(trace.values) & (trace.values >= 0)), trace.name


def test_a_faulty_kernel_shows_in_profiles() -> None:
    """The slower one is slower a call, the replaced one is another, the others stay as they are."""
    verdicts = {
        "kernel_slower": Verdict.SLOWER,
        "kernel_substituted": Verdict.NEW,
        "kernel_more_calls": Verdict.MORE_CALLS,
        "kernel_new": Verdict.NEW,
    }
    for kind, verdict in verdicts.items():
        kernels = draw(kind, 5).evidence.kernels
        assert kernels is not None
        assert kernels.comparable, kernels.reasons
        assert kernels.kernels[0].verdict in {verdict, Verdict.GONE}, kind


def test_a_lower_clock_makes_all_kernels_slower() -> None:
    compared = [
        case
        for case in (draw("gpu_hardware_slowdown", seed) for seed in range(12))
        if case.evidence.kernels is not None and case.truth.slowdown > 0.3 and len(case.node.own) == 1
    ]
    assert compared
    for case in compared:
        assert case.evidence.kernels is not None
        assert case.evidence.kernels.uniform is not None
        assert case.evidence.kernels.uniform.factor > 1.1


@pytest.mark.parametrize("kind", [kind for kind, fault in FAULTS.items() if fault.can_be_hidden])
def test_nothing_shows_a_hidden_cause(kind: str) -> None:
    evidence = draw_hidden(kind, 13).evidence
    assert not [trace.name for trace in evidence.traces if trace.name.startswith(FAULTS[kind].shown_by or ("-",))]
    assert all(event.subject.startswith("gpu") for event in evidence.events)
    assert evidence.kernels is None


@pytest.mark.parametrize("kinds", PAIRS)
def test_two_faults_share_the_slowdown(kinds: tuple[str, str]) -> None:
    truth = draw_two(kinds, 14).truth
    assert {part.kind for part in truth.parts} == set(kinds)
    assert sum(part.share for part in truth.parts) == pytest.approx(1)
    assert truth.parts[0].share >= truth.parts[1].share > 0


def test_power_falls_with_the_clock_and_heat_comes_late() -> None:
    """Consequences of a GPU that is held down: less power, and the whole server's rate."""
    case = draw("gpu_clock", 3)
    gpu = case.truth.parts[0].device.removeprefix("gpu")
    for name in ("gpu.power_watts", "gpu.sm_clock_hertz"):
        assert _side(case.evidence, name, late=True, gpu=gpu) < _side(case.evidence, name, late=False, gpu=gpu)


def test_a_level_goes_over_at_its_own_pace() -> None:
    """A mean over the time since the last reading is mixed once, a temperature takes its time, a new series begins."""
    stretch = Stretch(0, 100 * S, 400 * S)
    before: Levels = {("a", ()): Level(1.0, 10, 0, varied=0), ("b", ()): Level(0.0, 10, 0, varied=0, lag_s=50)}
    after: Levels = {
        ("a", ()): Level(3.0, 10, 0, varied=0),
        ("b", ()): Level(1.0, 10, 0, varied=0, lag_s=50),
        ("c", ()): Level(1.0, 10, 0, varied=0),
    }
    mixed, slow, new = traces(np.random.default_rng(1), before, after, stretch)
    assert set(mixed.values[mixed.at_ns < 100 * S]) == {1.0}
    assert set(mixed.values[mixed.at_ns >= 110 * S]) == {3.0}
    assert 0.5 < np.interp(150 * S, slow.at_ns, slow.values) < 0.75
    assert new.at_ns.min() >= 100 * S
