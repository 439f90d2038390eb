"""The mean cycle against the shortest that the GPU allows for its load."""

from dataclasses import replace
from typing import Any

import pytest

from attribution_scenes import CPU_SERVER, GPU_SERVER, slower
from cyclewatch.detectors.attribution import BoundSplit, Evidence, SplitPart, StageMeans, bound_split, split_of
from cyclewatch.detectors.load.physical_bound import Hardware, Load
from cyclewatch.detectors.load.speed_of_light import ServedModel
from served_models import LLAMA_ON_H200

DECODE = Load(batch_size=1, new_tokens=1, kv_tokens=1)
LEAST_US = 3127
"""Of such a decode of Llama-3-8B on an H200."""


H200 = LLAMA_ON_H200
HALF_AS_FAST = replace(H200, gpu_name="slow", gpu=Hardware(peak_flops=989e12, bandwidth=2.4e12))


def loaded(evidence: Evidence, load: Load | None = DECODE) -> Evidence:
    """The same cycles, with this load."""
    before, after = ([replace(mean, load=load) for mean in side] for side in (evidence.before, evidence.after))
    return replace(evidence, before=before, after=after)


SLOWED = loaded(slower(GPU_SERVER, {3: 3e6}))
"""Cycles of 10 ms that became 13 ms, as the device takes longer."""


def bound(evidence: Evidence, *served: ServedModel | None) -> BoundSplit | None:
    before, after = served or (H200, H200)
    return bound_split(evidence, split_of(evidence).parts, before, after)


def test_the_least_stays_and_what_is_above_it_grows() -> None:
    found = bound(SLOWED)
    assert found is not None
    assert [found.before.at_least_us, found.after.at_least_us] == pytest.approx([LEAST_US] * 2, rel=1e-3)
    assert [found.before.above_us, found.after.above_us] == pytest.approx(
        [10_000 - LEAST_US, 13_000 - LEAST_US], rel=1e-3
    )
    assert [found.before.ratio, found.after.ratio] == pytest.approx([LEAST_US / 10_000, LEAST_US / 13_000], rel=1e-3)
    assert (found.before.gpu, found.before.bound_by) == ("H200", "memory")
    assert found.above == ()


def test_each_side_has_its_own_model_and_gpu() -> None:
    """As of two configurations, or two machines."""
    found = bound(SLOWED, H200, HALF_AS_FAST)
    assert found is not None
    assert found.after.at_least_us == pytest.approx(2 * found.before.at_least_us)
    assert (found.before.gpu, found.after.gpu) == ("H200", "slow")


def test_with_profiles_the_parts_above_sum_to_it() -> None:
    """Kernels less the bound, the host, and what is neither."""
    parts = (
        SplitPart("gemm", 6000.0, 8500.0),
        SplitPart("overlap", -500.0, -500.0),
        SplitPart("between_kernels", 1500.0, 1500.0),
        SplitPart("launch", 2000.0, 2500.0),
        SplitPart("result", 1000.0, 1000.0),
    )
    found = bound_split(SLOWED, parts, H200, H200)
    assert found is not None
    by_name = {part.part: part for part in found.above}
    assert set(by_name) == {"kernels", "host", "between_kernels"}
    assert by_name["kernels"].before_us == pytest.approx(5500 - LEAST_US, rel=1e-3)
    assert by_name["host"].after_us == pytest.approx(3500)
    assert sum(part.before_us for part in found.above) == pytest.approx(found.before.above_us)
    assert sum(part.after_us for part in found.above) == pytest.approx(found.after.above_us)


def test_load_buckets_count_as_in_the_split() -> None:
    """By the cycles after the change, on both sides; a bucket that one side lacks does not count."""

    def means(bucket: int, count: int, cycle_ns: float) -> StageMeans:
        return StageMeans(bucket, count, (0.0, 0.0, 0.0, cycle_ns, 0.0, 0.0), 1.0, Load(bucket, bucket, 100 * bucket))

    evidence = replace(
        SLOWED,
        before=[means(1, 90, 5e6), means(64, 5, 9e6), means(64, 5, 9e6), means(128, 10, 9e6)],
        after=[means(1, 30, 6e6), means(64, 10, 12e6)],
    )
    found = bound(evidence)
    assert found is not None
    one, many = (H200.bound(Load(size, size, 100 * size)).seconds * 1e6 for size in (1, 64))
    assert found.before.at_least_us == found.after.at_least_us == pytest.approx(0.75 * one + 0.25 * many)
    assert found.before.took_us == pytest.approx(0.75 * 5000 + 0.25 * 9000)


def test_a_long_prefill_is_bound_by_compute() -> None:
    load = Load(batch_size=1, new_tokens=2048, kv_tokens=2048)
    evidence = loaded(slower(GPU_SERVER, {3: 90e6}), load)
    evidence = replace(evidence, before=evidence.after)
    found = bound(evidence)
    assert found is not None
    assert found.after.bound_by == "compute"


@pytest.mark.parametrize(
    ("evidence", "served"),
    [
        (SLOWED, (None, H200)),
        (SLOWED, (H200, None)),
        (loaded(SLOWED, None), (H200, H200)),
        (loaded(slower(CPU_SERVER, {2: 1e6})), (H200, H200)),
        (replace(SLOWED, before=()), (H200, H200)),
        (loaded(SLOWED, Load(1, 1, float("nan"))), (H200, H200)),
        (loaded(SLOWED, Load(1, 1, 1e12)), (H200, H200)),
    ],
    ids=["before unknown", "after unknown", "no load", "on a CPU", "other load", "no number", "faster than light"],
)
def test_what_is_not_known_is_not_there(evidence: Evidence, served: tuple[Any, Any]) -> None:
    assert bound(evidence, *served) is None
