"""False alarms of the comparison of kernels, and what it finds, over noise of several kinds."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from cyclewatch.collectors.profiles.records import KernelUse
from cyclewatch.detectors.kernels.pairing import pairs
from cyclewatch.detectors.kernels.significance import Shift, shifts, welch
from made_profiles import use

Times = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, float], Times]
KERNELS = 30
COMPARISONS = 200

NOISES: dict[str, Noise] = {
    "normal": lambda rng, n, cv: np.maximum(1 + cv * rng.standard_normal(n), 0.1),
    "lognormal": lambda rng, n, cv: np.exp(cv * rng.standard_normal(n)),
    "heavy tails": lambda rng, n, cv: np.maximum(1 + cv * rng.standard_t(3, n), 0.1),
    "outliers": lambda rng, n, cv: np.exp(0.02 * rng.standard_normal(n)) * np.where(rng.random(n) < 0.005, 20, 1),
    "shapes": lambda rng, n, cv: np.resize([0.3, 1.0, 1.0, 3.0], n) * np.exp(0.02 * rng.standard_normal(n)),
}


def profile(rng: np.random.Generator, noise: Noise, means: Times, factor: float = 1.0) -> list[KernelUse]:
    """Kernels with 4 to 600 calls, whose spread is 1 to 50 % of their mean; `factor` is of the first."""
    calls = np.resize([180, 4, 12, 40, 64, 600], len(means))
    spread = np.resize(np.geomspace(0.01, 0.5, 7), len(means))
    slower = np.where(np.arange(len(means)) == 0, factor, 1.0)
    drawn = zip(means * slower, calls.tolist(), spread.tolist(), strict=True)
    return [use(f"kernel_{at}", mean * noise(rng, n, cv)) for at, (mean, n, cv) in enumerate(drawn)]


def compared(before: list[KernelUse], after: list[KernelUse]) -> dict[str, Shift]:
    found = pairs(before, after, by_phase=True, same_tool=True)
    both = [(pair.key, pair.before, pair.after) for pair in found if pair.before and pair.after]
    of_each = shifts([one for _, one, _ in both], [other for _, _, other in both], np.ones(len(both), bool))
    return {key: shift for (key, _, _), shift in zip(both, of_each, strict=True)}


def means(rng: np.random.Generator) -> Times:
    drawn: Times = 10 ** rng.uniform(3.3, 6, KERNELS)
    return drawn


@pytest.mark.slow
@pytest.mark.parametrize("kind", NOISES)
def test_at_most_one_comparison_in_a_hundred_names_a_kernel_without_reason(kind: str) -> None:
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(COMPARISONS):
        same = means(rng)
        found = compared(profile(rng, NOISES[kind], same), profile(rng, NOISES[kind], same))
        wrong += any(shift.sure for shift in found.values())
    print(f"{kind}: {wrong} of {COMPARISONS} comparisons of equal kernels named one")
    assert wrong <= COMPARISONS // 100


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("normal", 0.9), ("lognormal", 0.9), ("shapes", 0.7)])
def test_a_kernel_slower_by_five_percent_is_found(kind: str, least: float) -> None:
    rng = np.random.default_rng(8)
    found = 0
    for _ in range(50):
        same = means(rng)
        found += compared(profile(rng, NOISES[kind], same), profile(rng, NOISES[kind], same, 1.05))["kernel_0"].sure
    print(f"{kind}: found in {found} of 50")
    assert found >= 50 * least


def test_whole_microseconds_are_not_taken_for_a_change() -> None:
    before = [use(f"kernel_{at}", np.full(6, 5_000.0)) for at in range(4)]
    after = [use(f"kernel_{at}", np.full(6, 5_000.0 + 1_000 * (at == 0))) for at in range(4)]
    assert not any(shift.sure for shift in compared(before, after).values())


def test_a_single_call_shows_nothing_by_itself() -> None:
    found = compared([use("a", np.array([1e6]))], [use("a", np.array([1.5e6]))])
    assert not found["a"].sure
    assert found["a"].p_value is None


def test_without_a_spread_the_other_kernels_tell_what_is_usual() -> None:
    rng = np.random.default_rng(3)
    table = [
        [
            use(
                f"kernel_{at}",
                mean * NOISES["shapes"](rng, 200, 0.0),
                min_ns=None,
                max_ns=None,
                median_ns=None,
                std_ns=None,
            )
            for at, mean in enumerate(np.geomspace(1e4, 1e6, 20) * np.where(np.arange(20) == 3, factor, 1.0))
        ]
        for factor in (1.0, 1.15)
    ]
    found = compared(*table)
    assert [key for key, shift in found.items() if shift.sure] == ["kernel_3"]
    assert found["kernel_3"].p_value is None


def test_steps_are_compared_by_their_spread() -> None:
    rng = np.random.default_rng(5)
    steps = 1e7 * np.exp(0.02 * rng.standard_normal((2, 30)))
    longer = welch(steps[0].tolist(), (1.1 * steps[1]).tolist())
    same = welch(steps[0].tolist(), steps[1].tolist())
    assert longer is not None
    assert same is not None
    assert longer < 1e-4
    assert same > 0.05
    assert welch([1.0, 2.0], [3.0, 4.0, 5.0]) is None
