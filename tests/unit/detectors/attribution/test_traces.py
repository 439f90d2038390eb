"""When a reading changed, and how surely."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_scenes import BEGAN_NS, trace
from cyclewatch.detectors.attribution import Trace
from cyclewatch.detectors.attribution.traces import SLACK_NS, begun, change_of, slack_ns

SECOND_NS = 10**9


def test_a_step_at_the_beginning_is_one() -> None:
    """With its levels, within the noise."""
    change = change_of(trace("host.cpu_frequency_hertz", 3e9, 1.5e9, noise=0.02), BEGAN_NS)
    assert change is not None
    assert change.sure
    assert change.at_start
    assert change.before == pytest.approx(3e9, rel=0.01)
    assert change.factor == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("at_s", [-300.0, -180.0, 300.0])
def test_a_step_at_another_time_is_none_of_this_change(at_s: float) -> None:
    """It moved, but not when the cycle did."""
    change = change_of(trace("host.load", 1.0, 2.0, noise=0.05, at_s=at_s, after_s=600.0), BEGAN_NS)
    assert change is not None
    assert not change.at_start


def test_noise_is_hardly_ever_a_step() -> None:
    """Of 300 readings that only wander, at most three."""
    random = np.random.default_rng(7)
    times = BEGAN_NS + np.arange(-120, 24) * 5 * SECOND_NS
    sure = 0
    for _ in range(300):
        noise = random.standard_normal(len(times))
        for at in range(1, len(noise)):
            noise[at] += 0.5 * noise[at - 1]
        change = change_of(Trace("host.load", {}, times, 10 + noise), BEGAN_NS)
        sure += change is not None and change.sure and change.at_start
    assert sure <= 3


def test_a_single_spike_is_no_level() -> None:
    """However far it goes."""
    reading = trace("host.major_faults_per_s", 1.0, 1.0, noise=0.1, after_s=60.0)
    reading.values[-3] = 1e6
    change = change_of(reading, BEGAN_NS)
    assert change is not None
    assert not change.sure


def test_one_side_alone_is_no_change() -> None:
    """What was not seen is missing."""
    late = Trace("host.load", {}, np.array([BEGAN_NS]), np.array([1.0]))
    assert change_of(late, BEGAN_NS) is None
    assert change_of(late, BEGAN_NS + 1) is None


def test_a_silent_reading_began_at_nothing() -> None:
    """Of a counter that is told only while it goes up."""
    errors = Trace("gpu.ecc_errors_per_s", {}, BEGAN_NS + np.arange(3) * SECOND_NS, np.array([2.0, 4.0, 6.0]))
    change = begun(errors, BEGAN_NS)
    assert change is not None
    assert (change.before, change.after, change.sure, change.at_start) == (0.0, 4.0, True, True)
    assert begun(errors, BEGAN_NS + 1) is None


def test_a_clear_step_leaves_little_doubt_of_its_time() -> None:
    """Where the cycles step far, readings must have moved close by; of cycles that are not at hand nothing is known."""
    clear = slack_ns(trace("cycles.log_ratio", 1.0, 1.5, noise=0.02), BEGAN_NS)
    unclear = slack_ns(trace("cycles.log_ratio", 1.0, 1.01, noise=0.1), BEGAN_NS)
    assert 10 * SECOND_NS <= clear < 60 * SECOND_NS < unclear <= 120 * SECOND_NS
    assert slack_ns(None, BEGAN_NS) == SLACK_NS


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=30),
    spread=st.integers(min_value=0, max_value=10**12),
)
def test_any_values_are_taken(values: list[float], spread: int) -> None:
    """NaN, infinities, huge ones, none at all, all at one moment: an answer, or that there is none."""
    times = BEGAN_NS + np.arange(len(values)) * spread // 10 - spread
    reading = Trace("host.load", {}, times, np.array(values, np.float64))
    change = change_of(reading, BEGAN_NS)
    begun(reading, BEGAN_NS)
    slack_ns(reading, BEGAN_NS)
    assert change is None or (np.isfinite(change.difference) and change.error >= 0 and change.factor >= 1)
