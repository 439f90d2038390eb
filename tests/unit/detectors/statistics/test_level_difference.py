from dataclasses import dataclass

import numpy as np
import pytest

from cyclewatch.detectors.statistics.level_difference import level_difference


@dataclass
class Cell:
    bucket: int
    count: int
    mean_ns: float


def windows(number: int, factor: float, *, seed: int, buckets: tuple[int, ...] = (1, 8)) -> list[list[Cell]]:
    """Windows whose mean is 1 ms a bucket, times the factor, times 2 % of noise."""
    noise = np.random.default_rng(seed).normal(0, 0.02, number)
    return [[Cell(bucket, 50, 1e6 * bucket * factor * float(np.exp(one))) for bucket in buckets] for one in noise]


def test_a_slowdown_is_measured_at_the_same_load() -> None:
    """More of the large batches afterwards is no slowdown."""
    before = windows(40, 1.0, seed=1)
    after = windows(40, 1.2, seed=2, buckets=(8,))
    found = level_difference(before, after)
    assert found is not None
    assert found.effect == pytest.approx(0.2, abs=0.03)
    assert found.ci[0] < 0.2 < found.ci[1]
    assert found.is_sure


def test_equal_stretches_are_seldom_told_apart() -> None:
    found = [level_difference(windows(30, 1.0, seed=seed), windows(30, 1.0, seed=1000 + seed)) for seed in range(100)]
    sure = sum(one is not None and one.is_sure for one in found)
    print(f"{sure} of 100 equal pairs were told apart")
    assert sure <= 15


def test_too_few_windows_or_no_common_load_tell_nothing() -> None:
    assert level_difference(windows(3, 1.0, seed=1), windows(40, 1.0, seed=2)) is None
    assert level_difference(windows(40, 1.0, seed=1, buckets=(1,)), windows(40, 1.0, seed=2, buckets=(8,))) is None
    assert level_difference([], []) is None
