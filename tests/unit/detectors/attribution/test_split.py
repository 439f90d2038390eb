"""The split of a cycle, by stages and by kernels."""

from dataclasses import replace

import pytest

from attribution_scenes import CPU_SERVER, GPU_SERVER, slower
from cyclewatch.detectors.attribution import Evidence, SplitPart, StageMeans, split, split_of
from cyclewatch.detectors.kernels.changes import PhaseSplit
from cyclewatch.detectors.kernels.comparison import ProfileComparison, Unit


def _comparison(*parts: tuple[str, float, float], unit: Unit = Unit.STEP) -> ProfileComparison:
    split_parts = tuple(SplitPart(*part) for part in parts)
    before_ns, after_ns = (sum(times) * 1e3 for times in zip(*(part[1:] for part in parts), strict=True))
    phase = PhaseSplit("decode", 10, 10, before_ns, after_ns, split_parts, None)
    return ProfileComparison(
        comparable=True,
        reasons=(),
        warnings=(),
        unit=unit,
        kernels=(),
        families=(),
        substitutions=(),
        phases=(phase,),
        uniform=None,
    )


ON_GPU = _comparison(("gemm", 6000.0, 9000.0), ("communication", 2000.0, 2000.0), ("waiting_for_host", 2000.0, 2000.0))


def _sums(parts: tuple[SplitPart, ...]) -> list[float]:
    return [sum(part.before_us for part in parts), sum(part.after_us for part in parts)]


def _by_name(evidence: Evidence) -> dict[str, SplitPart]:
    return {part.part: part for part in split_of(evidence).parts}


def test_kernels_and_host_stages_sum_to_the_cycle() -> None:
    """What the kernels leave of the cycle goes to the host stages, in which the GPU waits."""
    evidence = replace(slower(GPU_SERVER, {3: 3e6}), kernels=ON_GPU)
    whole = split_of(evidence)
    assert whole.made_of == "cycle records and kernel profiles"
    assert _sums(whole.parts) == pytest.approx([10_000, 13_000])
    parts = _by_name(evidence)
    assert parts["gemm"].delta_us == pytest.approx(3000)
    assert parts["launch"].before_us == pytest.approx(1000)
    assert "wait" not in parts


def test_what_kernels_and_stages_leave_is_unexplained() -> None:
    """Kernels and host stages that are shorter than the cycle together."""
    little = _comparison(("gemm", 5000.0, 6500.0), ("gpu_idle", 5000.0, 6500.0))
    evidence = replace(slower(GPU_SERVER, {3: 3e6}), kernels=little)
    open_part = _by_name(evidence)["unexplained"]
    assert [open_part.before_us, open_part.after_us] == pytest.approx([2000, 3500])
    assert _sums(split_of(evidence).parts) == pytest.approx([10_000, 13_000])


def test_on_a_cpu_kernels_run_within_launch() -> None:
    """Only that stage is parted."""
    on_cpu = _comparison(("gemm", 3500.0, 4500.0), ("gpu_idle", 500.0, 500.0))
    evidence = replace(slower(CPU_SERVER, {2: 1e6}), kernels=on_cpu)
    parts = _by_name(evidence)
    assert parts["gemm"].delta_us == pytest.approx(1000)
    assert parts["schedule"].before_us == pytest.approx(100)
    assert _sums(split_of(evidence).parts) == pytest.approx([4500, 5500])


@pytest.mark.parametrize(
    "kernels",
    [
        _comparison(("gemm", 100.0, 100.0)),
        _comparison(("gemm", 10_000.0, 10_000.0), unit=Unit.SECOND),
        replace(ON_GPU, comparable=False),
        None,
    ],
    ids=["of other steps", "of seconds", "not comparable", "none"],
)
def test_profiles_that_do_not_fit_are_left_out(kernels: ProfileComparison | None) -> None:
    """Then the stages are all that is known."""
    whole = split_of(replace(slower(GPU_SERVER, {3: 3e6}), kernels=kernels))
    assert whole.made_of == "cycle records"
    assert [part.part for part in whole.parts] == ["schedule", "input", "launch", "wait", "result", "rest"]


def test_profiles_alone_are_a_split_too() -> None:
    """Of their own step."""
    whole = split_of(replace(slower(GPU_SERVER, {}), before=(), after=(), kernels=ON_GPU))
    assert whole.made_of == "kernel profiles"
    assert whole.parts == ON_GPU.parts


def test_damaged_means_are_left_out() -> None:
    """NaN, and buckets of no cycle."""
    good = StageMeans(8, 10, (1e3,) * 6, 1.0)
    assert split([good, StageMeans(4, 0, (1e3,) * 6, 1.0)], [good, replace(good, stages_ns=(float("nan"),) * 6)])
    assert split([replace(good, count=0)], [good]) == ()
