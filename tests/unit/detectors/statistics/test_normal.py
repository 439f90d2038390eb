"""The normal distribution against the standard library's."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from cyclewatch.detectors.statistics.normal import normal_quantile, normal_scores, normal_tail, overshoot_factor

NORMAL = NormalDist()


@pytest.mark.parametrize("score", [-3.0, 0.0, 1.96, 5.0, 12.0])
def test_tail(score: float) -> None:
    # The standard library has no upper tail of its own; below 1e-16 the integral's asymptote tells.
    expected = 1 - NORMAL.cdf(score) if score < 5 else math.exp(-score * score / 2) / score / math.sqrt(2 * math.pi)
    assert normal_tail(score) == pytest.approx(expected, rel=1e-9 if score < 5 else 1 / score**2)


def test_quantile_over_the_whole_range() -> None:
    probability = np.concatenate(
        [np.linspace(0.001, 0.999, 999), 10.0 ** -np.arange(3, 8), 1 - 10.0 ** -np.arange(3, 8)]
    )
    expected = np.array([NORMAL.inv_cdf(one) for one in probability])
    np.testing.assert_allclose(normal_quantile(probability), expected, rtol=2e-6, atol=1e-9)


def test_quantile_of_a_half_is_zero_and_the_shape_stays() -> None:
    quantile = normal_quantile(np.array([[0.5, 0.1], [0.9, 0.5]]))
    assert quantile.shape == (2, 2)
    assert quantile[0, 0] == quantile[1, 1] == 0
    assert quantile[0, 1] == pytest.approx(-quantile[1, 0])


def test_scores_keep_the_ranks_and_are_standard_normal() -> None:
    values = np.random.default_rng(1).standard_cauchy(1000)
    scores = normal_scores(values)
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(values))
    assert scores.mean() == pytest.approx(0, abs=1e-9)
    assert scores.std() == pytest.approx(1, abs=0.01)


def test_scores_of_equal_values_are_equal() -> None:
    scores = normal_scores(np.array([3.0, 1.0, 3.0, 2.0, 3.0, 1.0]))
    assert scores[0] == scores[2] == scores[4]
    assert scores[1] == scores[5] < scores[3] < scores[0]
    assert scores[1] == pytest.approx(NORMAL.inv_cdf(1 / 6))
    np.testing.assert_array_equal(normal_scores(np.full(5, 7.0)), np.zeros(5))


def test_scores_do_not_care_for_scale() -> None:
    values = np.random.default_rng(2).normal(size=100)
    for other in (values * 1e300, values * 1e-300, np.exp(values)):
        np.testing.assert_array_equal(normal_scores(other), normal_scores(values))


def test_scores_of_nothing_and_of_one() -> None:
    assert normal_scores(np.zeros(0)).shape == (0,)
    assert normal_scores(np.array([4.0])).tolist() == [0.0]


def test_overshoot_factor_by_its_formula() -> None:
    apart = np.geomspace(1e-3, 30, 200)
    half = apart / 2
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in half])
    density = np.exp(-half * half / 2) / math.sqrt(2 * math.pi)
    expected = (below - 0.5) / half / (half * below + density)
    np.testing.assert_allclose(overshoot_factor(apart), expected, rtol=1e-3)
    np.testing.assert_allclose(overshoot_factor(apart[apart > 0.1]), expected[apart > 0.1], rtol=1e-5)


def test_overshoot_factor_goes_from_one_to_nothing() -> None:
    factor = overshoot_factor(np.array([0.0, 1e-9, 0.01]))
    np.testing.assert_allclose(factor, 1.0, atol=0.06)
    far = np.array([20.0, 100.0, 1000.0])
    np.testing.assert_allclose(overshoot_factor(far), 2 / far**2, rtol=1e-6)
    falling = overshoot_factor(np.linspace(0.05, 50, 1000))
    assert (np.diff(falling) < 0).all()
