"""The last windows of a series, held against a plain list."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.detectors.watching.recent import Recent

MAXLEN = 5
ACTIONS = st.lists(st.one_of(st.none(), st.integers(1, MAXLEN + 2)), max_size=60)
"""None appends a window, a number drops so many."""


def filled(windows: int, doubts: int = 2, maxlen: int = MAXLEN) -> Recent:
    recent = Recent(maxlen)
    for number in range(windows):
        recent.append(10**18 + number, number / 3, tuple(float(number + k) for k in range(doubts)))
    return recent


def restored(recent: Recent, maxlen: int = MAXLEN) -> Recent:
    other = Recent(maxlen)
    other.restore(json.loads(json.dumps(recent.state())))
    return other


def same(one: Recent, other: Recent) -> bool:
    pairs = ((one.at_ns, other.at_ns), (one.values, other.values), (one.doubts, other.doubts))
    return all(np.array_equal(ours, theirs) for ours, theirs in pairs)


@given(ACTIONS)
def test_it_holds_what_a_list_would(actions: list[int | None]) -> None:
    recent, model = Recent(MAXLEN), list[tuple[int, float]]()
    for number, action in enumerate(actions):
        if action is None:
            recent.append(number, number / 7, (float(number),))
            model = [*model, (number, number / 7)][-MAXLEN:]
        else:
            recent.drop(action)
            model = model[action:]
        assert len(recent) == len(model)
        assert list(zip(recent.at_ns.tolist(), recent.values.tolist(), strict=True)) == model
        assert recent.doubts[:, 0].tolist() == [float(at_ns) for at_ns, _ in model] if model else True


@pytest.mark.parametrize("windows", [0, 1, 4, 5, 13])
@pytest.mark.parametrize("doubts", [0, 1, 3])
def test_a_saved_state_is_the_same_and_goes_on_the_same(windows: int, doubts: int) -> None:
    recent = filled(windows, doubts)
    other = restored(recent)
    assert same(recent, other)
    for one in (recent, other):
        one.append(2 * 10**18, 1.0, (1.0,) * doubts)
    assert same(recent, other)


@given(st.lists(st.one_of(st.integers(-200, -1), st.integers(1, 400)), max_size=12), st.integers(1, 500))
def test_a_state_is_the_same_however_often_it_was_saved_before(steps: list[int], maxlen: int) -> None:
    """What was packed for an earlier saving is used again: negative numbers drop windows, others append them."""
    saved_each_time, saved_once, number = Recent(maxlen), Recent(maxlen), 0
    for step in steps:
        for one in (saved_each_time, saved_once):
            one.drop(-step)
            for window in range(number, number + step):
                one.append(10**18 + 7 * window, window / 3, (float(window),))
        number += max(step, 0)
        saved_each_time.state()
    assert saved_each_time.state() == saved_once.state()
    for one in (saved_each_time, saved_once):
        other = restored(one, maxlen)
        assert same(other, one) if len(one) else not len(other)
        assert other.state() == one.state()


def test_a_shorter_history_keeps_the_last_windows() -> None:
    """After its length was set anew."""
    assert restored(filled(5), maxlen=3).values.tolist() == [2 / 3, 3 / 3, 4 / 3]


def test_two_hours_of_windows_fit_into_a_few_ten_kilobytes() -> None:
    """Times take next to nothing, as windows follow one another."""
    recent = Recent(1440)
    random = np.random.default_rng(1)
    for number in range(1440):
        recent.append(10**18 + number * 5 * 10**9, random.normal(), tuple(random.normal(size=3)))
    assert len(json.dumps(recent.state())) < 45_000


TIMES, VALUES, DOUBTS = filled(2).state()["chunks"][0]


@pytest.mark.parametrize(
    "damage",
    [
        {"chunks": [[TIMES, "!", DOUBTS]]},
        {"chunks": [[TIMES, "AAAA", DOUBTS]]},
        {"chunks": [[TIMES, VALUES]]},
        {"chunks": [[TIMES, VALUES, filled(1, 3).state()["chunks"][0][2]]]},
        {"chunks": []},
        {"windows": 3},
        {"windows": -1},
    ],
)
def test_a_damaged_state_is_a_value_error(damage: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Recent(MAXLEN).restore({**filled(2).state(), **damage})
