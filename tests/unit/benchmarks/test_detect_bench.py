"""The pure parts of the detection bench: its series, its ceiling, its metrics."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from detect import ceiling, contestants, power, report, series, tcpd


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_ar1_has_its_sigma_and_its_autocorrelation_from_the_first_point_on(rho: float) -> None:
    """Over rows, so that a start outside the stationary state would show."""
    values = series.ar1(series.stream(1), 20_000, 6, rho, 0.02)
    assert values.shape == (20_000, 6)
    assert values.std(axis=0) == pytest.approx(np.full(6, 0.02), rel=0.03)
    for lag in (1, 2, 5):
        assert np.corrcoef(values[:, 0], values[:, lag])[0, 1] == pytest.approx(rho**lag, abs=0.03)


@pytest.mark.parametrize("kind", series.WITHOUT_CHANGE)
def test_series_without_a_change_stand_at_the_level_and_come_again(kind: str) -> None:
    generate = series.WITHOUT_CHANGE[kind]
    values = generate(series.stream(7, 1), 50, 500)
    assert values.shape == (50, 500)
    assert np.array_equal(values, generate(series.stream(7, 1), 50, 500))
    assert not np.array_equal(values, generate(series.stream(7, 2), 50, 500))
    assert np.median(values) == pytest.approx(series.LEVEL, abs=0.15)


def test_spikes_are_one_in_a_hundred_and_ten_sigma_high() -> None:
    values = series.spikes(series.stream(3), 100, 500)
    high = values > series.LEVEL + 6
    assert high.mean() == pytest.approx(0.01, abs=0.002)
    assert values[high].mean() == pytest.approx(series.LEVEL + 10, abs=0.2)


def test_the_sine_has_ten_periods_of_one_sigma() -> None:
    values = series.sine(series.stream(3), 200, 500) - series.LEVEL
    power_at_ten = np.abs(np.fft.rfft(values, axis=1)[:, 10]) / 250
    assert power_at_ten.mean() == pytest.approx(1.0, abs=0.02)


def test_a_step_is_as_large_as_it_should_be_and_three_shifts_are_three() -> None:
    values = series.step(series.stream(3), 4000, 130, 100, 0.05, 0.5, 0.02)
    assert values[:, :100].mean() == pytest.approx(1.0, abs=0.001)
    assert values[:, 100:].mean() == pytest.approx(1.05, abs=0.001)
    quiet = series.three_shifts(series.stream(3), 400, 0.05, 0.5, 0.0)
    assert np.flatnonzero(np.diff(quiet)).tolist() == [99, 199, 299]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_the_ceiling_is_generalised_least_squares_with_the_dense_covariance(rho: float) -> None:
    n, sigma = 12, 0.7
    values = series.step(series.stream(5), 3, n, 7, 0.9, rho, sigma)
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    weights = np.linalg.inv(sigma**2 * rho**distance)

    def misfit(row: series.Floats, design: series.Floats) -> float:
        coefficients = np.linalg.solve(design.T @ weights @ design, design.T @ weights @ row)
        residuals = row - design @ coefficients
        return float(residuals @ weights @ residuals)

    expected = np.array(
        [
            [
                misfit(row, np.ones((n, 1)))
                - misfit(row, np.column_stack([np.arange(n) < split, np.arange(n) >= split]).astype(float))
                for split in range(2, n - 1)
            ]
            for row in values
        ]
    )
    assert ceiling.likelihood_ratios(values, rho, sigma) == pytest.approx(expected)
    largest, indexes = ceiling.scan(values, rho, sigma)
    assert largest == pytest.approx(expected.max(axis=1))
    assert indexes.tolist() == (2 + expected.argmax(axis=1)).tolist()


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_whitened_noise_is_white(rho: float) -> None:
    white = ceiling.whiten(series.ar1(series.stream(6), 20_000, 5, rho), rho)
    assert np.cov(white.T) == pytest.approx((1 - rho**2) * np.eye(5), abs=0.03)


def test_the_threshold_lets_pass_what_it_should() -> None:
    threshold = ceiling.threshold(series.stream(8), 0.5, 4000, 200, 0.05)
    ratios, _ = ceiling.scan(series.ar1(series.stream(9), 4000, 200, 0.5, 0.02), 0.5, 0.02)
    assert (ratios > threshold).mean() == pytest.approx(0.05, abs=0.015)


def test_f1_of_the_paper_on_cases_made_by_hand() -> None:
    assert tcpd.f1([[]], []) == 1.0
    assert tcpd.f1([[50]], [50]) == 1.0
    assert tcpd.f1([[50]], [55]) == 1.0
    assert tcpd.f1([[50]], [56]) == 0.5  # half of the reported, half of the true, 0 being both
    assert tcpd.f1([[50], []], []) == pytest.approx(2 * 1 * 0.75 / 1.75)
    assert tcpd.f1([[50]], [50, 80]) == pytest.approx(2 * (2 / 3) * 1 / (5 / 3))
    assert tcpd.f1([[50]], [48, 52]) == pytest.approx(0.8)  # one true point, one found: the other is too much


def test_covering_of_the_paper_on_cases_made_by_hand() -> None:
    assert tcpd.covering([[]], [], 100) == 1.0
    assert tcpd.covering([[50]], [50], 100) == 1.0
    assert tcpd.covering([[50]], [], 100) == 0.5
    assert tcpd.covering([[50], []], [], 100) == 0.75
    assert tcpd.covering([[50]], [60], 100) == pytest.approx((50 * 50 / 60 + 50 * 40 / 50) / 100)


def test_each_found_point_matches_one_true_point() -> None:
    assert tcpd.matched([10, 12], [11]) == 1
    assert tcpd.matched([10, 12], [11, 13]) == 2
    assert tcpd.matched([10], [16]) == 0


def test_the_shared_series_give_the_known_scores_to_who_reports_nothing() -> None:
    """The reference: 0.618 and 0.516."""
    shared = Path(__file__).parents[4] / "shared" / "data" / "tcpd"
    every = tcpd.load(shared)
    if not every:
        pytest.skip("the annotated series are not there: shared/data/tcpd")
    scores = [(tcpd.f1(one.annotations, []), tcpd.covering(one.annotations, [], len(one.values))) for one in every]
    assert np.mean(scores, axis=0) == pytest.approx([0.618, 0.516], abs=0.0006)


def test_hits_and_points_elsewhere_are_counted_apart() -> None:
    found = power.judge([[100], [95, 20], [106], []])
    assert found.hit.tolist() == [True, True, False, False]
    assert found.elsewhere.tolist() == [False, True, True, False]
    assert str(found) == "50.0 % (50.0 %)"


def test_the_aim_of_power_tells_what_is_short_and_whether_chance_explains_it() -> None:
    def found(hits: int) -> power.Found:
        return power.Found(np.arange(1000) < hits, np.zeros(1000, dtype=bool))

    def aim(mine: int, best: int) -> str:
        return power.aim({"row": {contestants.OURS: found(mine), power.CEILING: found(best)}})

    assert power.shortfall(found(80).hit, found(100).hit)[0] == pytest.approx(10)
    assert aim(900, 1000).endswith("is met")
    assert aim(17, 20).endswith(
        "is met within the sampling error; short: row (17 of 20 hits, within two standard errors)"
    )
    assert aim(700, 1000).endswith("is NOT met; short: row (700 of 1000 hits)")


def test_sigma_by_differences_ignores_steps_and_survives_equal_neighbours() -> None:
    values = series.step(series.stream(4), 1, 2000, 1000, 5.0, 0.0, 0.02)[0]
    assert contestants.sigma_by_differences(values) == pytest.approx(0.02, rel=0.1)
    assert contestants.sigma_by_differences(np.repeat([1.0, 2.0], 20)) > 0


def test_who_is_not_installed_stays_in_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    entries = contestants.contestants()
    assert [entry.name for entry in entries] == list(contestants.NAMES)
    assert all(entry.find is None and contestants.NOT_INSTALLED in entry.version for entry in entries)
    (tmp_path / "data" / "tcpd").mkdir(parents=True)
    (tmp_path / "data" / "tcpd" / "one.json").write_text(
        json.dumps({"name": "one", "values": [1.0] * 20, "annotations": {"6": [], "7": [10]}})
    )
    text = "\n".join(report.lines(tcpd.table(report.Options(1, 0.1, slow=False, shared=tmp_path, contestants=entries))))
    assert all(name in text for name in contestants.NAMES)
    assert contestants.NOT_INSTALLED in text


def test_without_data_the_tables_say_so(tmp_path: Path) -> None:
    options = report.Options(1, 0.1, slow=False, shared=tmp_path, contestants=[])
    for table in (tcpd.table(options), tcpd.performance_table(options)):
        assert "NOT RUN: no data" in "\n".join(report.lines(table))
