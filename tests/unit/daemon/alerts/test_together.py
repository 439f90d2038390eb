"""Several messages told as one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from alert_messages import EVERY_MESSAGE, MESSAGE, NOW_NS
from cyclewatch.daemon.alerts.message import Message, Severity, State
from cyclewatch.daemon.alerts.text import TOLD_MAX, text_of
from cyclewatch.daemon.alerts.together import together


def of(incident: int, severity: Severity, state: State = State.OPENED, effect: float = 0.1) -> Message:
    return replace(MESSAGE, incident=str(incident), severity=severity, state=state, effect=effect, targets=1)


def test_what_is_open_comes_first_then_what_is_urgent_then_what_is_slow() -> None:
    """A digest may be cut at its end."""
    told = together(
        [
            of(1, Severity.WARNING, State.RESOLVED),
            of(2, Severity.INFO),
            of(3, Severity.WARNING, effect=0.1),
            of(4, Severity.WARNING, effect=0.2),
        ],
        NOW_NS,
    )
    assert [line.split(":")[0] for line in told.digest] == [f"incident {number}" for number in (4, 3, 2, 1)]
    assert told.severity is Severity.WARNING


def test_how_many_more_there_are_is_said() -> None:
    text = text_of(together([of(number, Severity.INFO) for number in range(512)], NOW_NS))
    assert text.title == "512 incidents told together"
    assert len(text.lines) == TOLD_MAX + 1
    assert str(text.lines[-1]) == "More: 502 others"


def test_each_is_told_in_its_state() -> None:
    states = (State.OPENED, State.RESOLVED, State.ACCEPTED, State.EXPECTED)
    lines = together([of(1, Severity.INFO, state) for state in states], NOW_NS).digest
    assert [line.partition("127.0.0.1:30000 ")[2].partition(" ")[0] for line in lines] == ["is", "was", "stays", "is"]
    assert "as announced" in lines[-1]


@given(messages=st.lists(st.sampled_from(list(EVERY_MESSAGE.values())), min_size=1, max_size=30))
def test_whatever_they_hold_they_can_be_told_together(messages: list[Message]) -> None:
    told = together(messages, NOW_NS)
    assert len(told.digest) == len(messages)
    assert text_of(told).lines
