import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.suspicion_report import read_suspicion_report
from cyclewatch.detectors.statistics.two_samples import incomplete_beta, mann_whitney_p_value, welch_p_value
from cyclewatch.detectors.suspicion.scores import change_of, recomputed_score, suspicion_row
from shared_data import seed

BEFORE = np.array([1.0, 2.0, 3.0, 4.0, 7.0])
AFTER = np.array([2.0, 5.0, 8.0, 9.0, 9.0, 12.0])
numbers = st.lists(st.floats(-1e6, 1e6).map(lambda one: round(one, 3)), min_size=2, max_size=20).map(np.array)


def test_welch_and_mann_whitney_are_those_of_scipy() -> None:
    """Values of scipy 1.17 for the same samples (the U test by its normal approximation)."""
    assert welch_p_value(BEFORE, AFTER) == pytest.approx(0.04630845644706629, rel=1e-9)
    assert mann_whitney_p_value(BEFORE, AFTER) == pytest.approx(0.06663949279045295, rel=1e-9)


def test_the_incomplete_beta_function_where_it_is_known() -> None:
    """I_x(1, 1) = x, I_x(2, 1) = x^2, and I_1/2(a, a) = 1/2."""
    for x in (0.0, 0.1, 0.5, 0.9, 1.0):
        assert incomplete_beta(1, 1, x) == pytest.approx(x)
        assert incomplete_beta(2, 1, x) == pytest.approx(x * x)
    assert incomplete_beta(40.5, 40.5, 0.5) == pytest.approx(0.5)


@given(numbers, numbers)
def test_tests_do_not_mind_the_order_of_the_samples(one: np.ndarray, other: np.ndarray) -> None:
    for test in (welch_p_value, mann_whitney_p_value):
        assert test(one, other) == pytest.approx(test(other, one), abs=1e-9)
        assert 0 <= test(one, other) <= 1


def test_a_row_by_its_formulas() -> None:
    beta = np.array([10.0, 12.0, 14.0]), np.array([6.0, 8.0])
    mu = np.array([0.0, 1.0, 3.0]), np.array([7.0, 7.0])
    row = suspicion_row("f", "m", "gpu0", beta, mu)
    assert (row.beta.before, row.beta.after, row.beta.delta) == (12.0, 7.0, -5.0)
    assert row.beta.z == pytest.approx(-5.0 / 2.0)
    logs = np.log1p(mu[0])
    assert row.log_z == pytest.approx((math.log(8) - logs.mean()) / logs.std(ddof=1))
    assert row.score == pytest.approx(5.0 * (2.5 + row.log_z))
    assert recomputed_score(row) == row.score


def test_what_cannot_be_told_is_not_a_number() -> None:
    alone = change_of(np.array([1.0]), np.array([2.0, np.nan]))
    assert (alone.before, alone.after, alone.delta) == (1.0, 2.0, 1.0)
    assert math.isnan(alone.z)
    assert math.isnan(change_of(np.array([np.nan]), BEFORE).delta)
    assert change_of(np.ones(3), np.ones(3)).z == 0.0


def test_the_source_document_s_scores_are_recomputed() -> None:
    """All 264 rows, each within what the rounding of the printed columns leaves open."""
    rows = read_suspicion_report(seed("001")).rows
    assert len(rows) == 264
    exact = 0
    for row in rows:
        delta, z_sum = abs(row.beta.delta), abs(row.beta.z) + abs(row.log_z)
        room = 0.00501 * z_sum + 0.0101 * delta + 0.0001
        assert recomputed_score(row) == pytest.approx(row.score, abs=room)
        exact += delta > 0 or row.score < 0.0001
    print(f"{exact} of {len(rows)} rows with a printed difference")
