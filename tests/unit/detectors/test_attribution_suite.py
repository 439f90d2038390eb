"""The causes of simulated faults, one seed of each: the short form of `make bench-attribution`."""

import numpy as np
import pytest
from attribution.suite import HIDDEN, ONE, TWO, Answer, Task, answer, tasks

from cyclewatch.detectors.simulation.faults import FAULTS, PAIRS

SEEDS = (40,)


def _asked(*kinds: str) -> list[Answer]:
    """Answers to every case of some sets; seeds are printed of those that are not right."""
    found = [answer(task) for task in tasks(SEEDS) if task.kind in kinds]
    for one in found:
        if not one.right or one.near is False:
            print(f"{one.task.name}, seed {one.task.seed}, x{1 + one.slowdown:.2f}: {one.said}")
    return found


@pytest.mark.slow
def test_the_first_cause_is_right_and_its_share_near() -> None:
    """One cause or two at once: 90 % and 80 %, and far more than the furthest reading gets right."""
    found = _asked(ONE, TWO)
    assert np.mean([one.right for one in found]) >= 0.9
    assert np.mean([one.near for one in found if one.near is not None]) >= 0.8
    assert sum(one.right for one in found) > sum(one.naive_right for one in found)


@pytest.mark.slow
def test_a_hidden_cause_gets_no_wrong_name() -> None:
    assert np.mean([one.right for one in _asked(HIDDEN)]) >= 0.9


def test_the_suite_has_every_cause_alone_hidden_and_in_pairs() -> None:
    """At least 20 causes; `only` keeps what one of them is part of."""
    every = list(tasks(range(3)))
    assert len(FAULTS) >= 20
    assert {task.faults for task in every if task.kind == ONE} == {(kind,) for kind in FAULTS}
    assert {task.faults for task in every if task.kind == TWO} == set(PAIRS)
    assert {task.seed for task in every} == {0, 1, 2}
    assert set(tasks([7], ["straggler"])) == {Task(ONE, ("straggler",), 7)}
