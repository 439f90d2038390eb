"""What holds for every detector, whatever it does inside.

A new detector is one line in `OFFLINE` or `ONLINE`.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest

from cyclewatch.config.settings import Detection, Windows
from cyclewatch.detectors.change_points.offline import detect
from cyclewatch.detectors.change_points.segmentation import segment
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.shift_watch import ShiftWatch, Step

PARAMETERS = Parameters.of(Detection(), Windows())
STEP_NS = PARAMETERS.window_ns


class Watch(Protocol):
    """An online detector: one value at a time, all of its memory in a state of plain values."""

    def update(self, at_ns: int, value: float) -> Any:
        """Take one value; the reply is compared as it is."""

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


@dataclass(frozen=True)
class Offline:
    """A function of a whole series to the indices of its changes; `any_value`: also of NaN and infinite values."""

    name: str
    find: Callable[[Floats], list[int]]
    any_value: bool
    scales = True

    def __str__(self) -> str:
        """Name of the test case."""
        return self.name


@dataclass(frozen=True)
class Online:
    """A watch, made anew for every series, and when the change began that a reply confirms, if it does.

    `scales` is False for a watch of logs, whose minimum effect is a difference.
    """

    name: str
    make: Callable[[], Watch]
    began_ns: Callable[[Any], int | None]
    scales: bool

    def __str__(self) -> str:
        """Name of the test case."""
        return self.name

    any_value = True

    def find(self, values: Floats) -> list[int]:
        """Indices of the changes that are confirmed while `values` come in one by one."""
        watch = self.make()
        began = [self.began_ns(reply) for reply in feed(watch, values)]
        return [round(at_ns / STEP_NS) - 1 for at_ns in began if at_ns is not None]


def began_of(step: Step) -> int | None:
    """When the change of a step began; what is only measured again is no other change."""
    return None if step.change is None or step.change.measured_again else step.change.started_at_ns


OFFLINE = [
    Offline("segment", lambda values: [shift.position for shift in segment(values, 5, 0.012)], any_value=False),
    Offline("detect", lambda values: [point.index for point in detect(values).change_points], any_value=True),
]
# The CUSUM is no detector of its own: it suspects at every window, and takes NaN and order as its owner hands them.
ONLINE = [Online("watch", lambda: ShiftWatch(PARAMETERS), began_of, scales=False)]

DETECTORS: list[Offline | Online] = [*OFFLINE, *ONLINE]
every = pytest.mark.parametrize("detector", DETECTORS, ids=str)
taking_any_value = pytest.mark.parametrize("detector", [one for one in DETECTORS if one.any_value], ids=str)
scaling = pytest.mark.parametrize("detector", [one for one in DETECTORS if one.scales], ids=str)
online = pytest.mark.parametrize("detector", ONLINE, ids=str)


def feed(watch: Watch, values: Floats, first: int = 0) -> list[Any]:
    """Replies to `values`, of which the first is that of window number `first`."""
    return [watch.update((first + number + 1) * STEP_NS, float(value)) for number, value in enumerate(values)]


def plain(reply: Any) -> str:
    """A reply as text, so that NaN is equal to NaN."""
    return repr(reply)


def noise(n: int, seed: int, phi: float = 0.0) -> Floats:
    errors = np.random.default_rng(seed).normal(size=n + 300) * math.sqrt(1 - phi * phi)
    values: Floats = np.convolve(errors, phi ** np.arange(300.0))[300 : n + 300]
    return values


def slowed(n: int = 400, at: int = 250, seed: int = 0, phi: float = 0.5) -> Floats:
    """Noise of 2 % around 1, and 20 % more from `at` on."""
    values: Floats = 1 + 0.02 * noise(n, seed, phi) + 0.2 * (np.arange(n) >= at)
    return values


def near(found: list[int], at: int, within: int = 2) -> bool:
    return len(found) == 1 and abs(found[0] - at) <= within


@every
@pytest.mark.parametrize("seed", range(5))
def test_a_plain_slowdown_is_found(detector: Offline | Online, seed: int) -> None:
    """What the other tests change is only worth something where this holds."""
    assert near(detector.find(slowed(seed=seed)), 250)
    assert detector.find(slowed(seed=seed, at=400)) == []


@every
@pytest.mark.parametrize("n", [0, 1, 2, 9, 10, 400])
@pytest.mark.parametrize("value", [0.0, 1.0, -1e-300, 1e300])
def test_a_series_that_never_moves(detector: Offline | Online, n: int, value: float) -> None:
    assert detector.find(np.full(n, value)) == []


@every
def test_a_step_without_noise(detector: Offline | Online) -> None:
    assert near(detector.find(np.repeat([1.0, 1.2], [250, 150])), 250, within=0)


@every
@pytest.mark.parametrize("n", range(1, 12))
def test_a_few_values(detector: Offline | Online, n: int) -> None:
    assert detector.find(slowed(n, at=400)) == []


@scaling
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 7.0, 1e6])
@pytest.mark.parametrize("seed", range(3))
def test_scaling_moves_nothing(detector: Offline | Online, scale: float, seed: int) -> None:
    assert detector.find(slowed(seed=seed) * scale) == detector.find(slowed(seed=seed))


@every
@pytest.mark.parametrize("offset", [-1.0, 5.0, 1000.0, -1e5])
@pytest.mark.parametrize("seed", range(3))
def test_shifting_moves_nothing(detector: Offline | Online, offset: float, seed: int) -> None:
    assert detector.find(slowed(seed=seed) + offset) == detector.find(slowed(seed=seed))


@every
def test_asked_twice_it_says_the_same(detector: Offline | Online) -> None:
    assert detector.find(slowed()) == detector.find(slowed())


@every
def test_a_single_spike_is_no_change_and_hides_none(detector: Offline | Online) -> None:
    for at in (50, 249, 251, 390):
        still, values = slowed(at=400), slowed()
        still[at] *= 10
        values[at] *= 10
        assert detector.find(still) == []
        assert near(detector.find(values), 250)


@taking_any_value
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_passed_over(detector: Offline | Online, bad: float) -> None:
    values = slowed()
    values[[0, 3, 100, 101, 102, 249, 300, 399]] = bad
    assert near(detector.find(values), 250)
    still = slowed(at=400)
    still[[0, 3, 100, 101, 102, 249, 300, 399]] = bad
    assert detector.find(still) == []


@taking_any_value
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("n", [1, 5, 400])
def test_nothing_but_what_is_no_number(detector: Offline | Online, bad: float, n: int) -> None:
    assert detector.find(np.full(n, bad)) == []


@taking_any_value
def test_a_gap_is_no_change_and_hides_none(detector: Offline | Online) -> None:
    values, still = slowed(), slowed(at=400)
    values[120:180] = still[120:180] = math.nan
    assert near(detector.find(values), 250)
    assert detector.find(still) == []


@online
def test_missing_windows_are_passed_over(detector: Online) -> None:
    values, kept = slowed(), np.delete(np.arange(400), np.r_[60:90, 130, 300:310])
    watch = detector.make()
    replies = [watch.update((int(number) + 1) * STEP_NS, float(values[number])) for number in kept]
    began = [at_ns for at_ns in map(detector.began_ns, replies) if at_ns is not None]
    assert len(began) == 1
    assert abs(began[0] / STEP_NS - 1 - 250) <= 2


@online
@pytest.mark.parametrize("behind", [0, 1, 50])
def test_windows_that_came_before_change_nothing(detector: Online, behind: int) -> None:
    """A window seen already (0 behind), or one that comes too late, whatever it holds."""
    values, disturbed, straight = slowed(), detector.make(), detector.make()
    for number, value in enumerate(values):
        at_ns = (number + 1) * STEP_NS
        expected = straight.update(at_ns, float(value))
        assert plain(disturbed.update(at_ns, float(value))) == plain(expected)
        for stray in (99.0, float(value), math.nan):
            assert detector.began_ns(disturbed.update(max(at_ns - behind * STEP_NS, 0), stray)) is None
    assert disturbed.state() == straight.state()


@online
@pytest.mark.parametrize("cut", [0, 1, 7, 40, 249, 251, 255, 262, 300])
def test_a_restart_in_mid_stream_changes_nothing(detector: Online, cut: int) -> None:
    values, straight, stopped = slowed(), detector.make(), detector.make()
    expected = [plain(reply) for reply in feed(straight, values)]
    replies = feed(stopped, values[:cut])
    going_on = detector.make()
    going_on.restore(json.loads(json.dumps(stopped.state())))
    replies += feed(going_on, values[cut:], first=cut)
    assert [plain(reply) for reply in replies] == expected
    assert json.dumps(going_on.state()) == json.dumps(straight.state())


@online
@pytest.mark.parametrize("size", [1, 3, 50])
def test_batches_say_the_same_as_one_by_one(detector: Online, size: int) -> None:
    """A batch is what is fed between two times that the state is saved and taken up by a new watch."""
    values, straight, state = slowed(), detector.make(), detector.make().state()
    expected = [plain(reply) for reply in feed(straight, values)]
    replies: list[str] = []
    for first in range(0, len(values), size):
        watch = detector.make()
        watch.restore(json.loads(json.dumps(state)))
        replies += [plain(reply) for reply in feed(watch, values[first : first + size], first)]
        state = watch.state()
    assert replies == expected


@online
def test_the_state_does_not_grow_for_ever(detector: Online) -> None:
    watch = detector.make()
    feed(watch, slowed(2000, at=2000))
    size = len(json.dumps(watch.state()))
    feed(watch, slowed(2000, at=2000, seed=1), first=2000)
    assert len(json.dumps(watch.state())) <= 1.2 * size
