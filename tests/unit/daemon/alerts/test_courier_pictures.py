"""A courier and its pictures: drawn for each attempt, and never in the way of a message."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from couriers import Lab, status
from cyclewatch.daemon.alerts.message import Message, Picture


@pytest.fixture(name="lab")
def _lab(tmp_path: Path) -> Iterator[Lab]:
    """A courier to Discord, whose pictures are numbered."""
    lab = Lab(tmp_path, "discord")
    made: list[int] = []

    def illustrate(_: Message, now_ns: int) -> Picture:
        made.append(now_ns)
        return Picture(f"picture {len(made)}".encode(), "a curve")

    lab.illustrate = illustrate
    lab.restart()
    yield lab
    lab.engine.dispose()


def pictures(lab: Lab) -> list[bytes]:
    """Which picture each request had; an empty one where it had none."""
    bodies = [request.body for _, request in lab.service.posted]
    return [body[found : found + 9] if (found := body.find(b"picture ")) >= 0 else b"" for body in bodies]


def test_each_attempt_has_a_picture_of_its_own(lab: Lab) -> None:
    answers = iter((status(503), status(503)))
    lab.service.answers = lambda _: next(answers, None)
    lab.put("1", 1)
    lab.turn_for(60)
    assert pictures(lab) == [b"picture 1", b"picture 2", b"picture 3"]
    assert lab.standings() == {"1:1:sink": "delivered"}


@pytest.mark.parametrize("number", [413, 503])
def test_what_does_not_arrive_with_its_picture_is_sent_without(lab: Lab, number: int) -> None:
    """Refused or not: each message for itself, and also where several wait."""
    lab.service.answers = lambda request: status(number) if b"picture" in request.body else None
    for incident in "12345":
        lab.put(incident, 1)
    lab.turn_for(600)
    assert set(lab.standings().values()) == {"delivered"}
    assert len(pictures(lab)) == 5 * 6
    assert pictures(lab).count(b"") == 5


def test_what_is_refused_without_its_picture_too_is_dead(lab: Lab) -> None:
    lab.service.answers = lambda _: status(404)
    lab.put("1", 1)
    lab.turn_for(600)
    assert lab.rows() == [("1:1:sink", "dead", "HTTP 404")]
    assert pictures(lab) == [*(f"picture {number}".encode() for number in range(1, 6)), b""]


def test_a_message_that_has_no_picture_goes_without(lab: Lab) -> None:
    lab.illustrate = lambda *_: None
    lab.restart()
    lab.put("1", 1)
    lab.turn_for(60)
    assert pictures(lab) == [b""]


def test_a_service_that_takes_none_has_none_drawn(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "slack")
    lab.illustrate = pytest.fail  # type: ignore[assignment]
    lab.restart()
    lab.put("1", 1)
    lab.turn_for(60)
    assert lab.standings() == {"1:1:sink": "delivered"}
    lab.engine.dispose()
