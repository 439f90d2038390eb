"""A message in the outbox is the message again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alert_messages import EVERY_MESSAGE
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.alerts.message_json import message_document, message_of


def stored(message: Message) -> Message:
    """As a database keeps it: JSON without numbers that JSON lacks."""
    return message_of(json.loads(json.dumps(message_document(message), allow_nan=False)))


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_whatever_a_message_holds_it_comes_back(name: str) -> None:
    """By its repr, in which no number is a number too."""
    assert repr(stored(EVERY_MESSAGE[name])) == repr(EVERY_MESSAGE[name])


@given(message=st.builds(Message))
def test_any_message_comes_back(message: Message) -> None:
    assert repr(stored(message)) == repr(message)


@pytest.mark.parametrize(
    "document", [{}, {"incident": "1"}, {**message_document(EVERY_MESSAGE["good opened"]), "state": "x"}]
)
def test_what_is_no_message_is_an_error(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"missing|Invalid"):
        message_of(document)


def test_a_field_of_a_later_release_is_left_out() -> None:
    document = {**message_document(EVERY_MESSAGE["good opened"]), "later": 1}
    assert message_of(document) == EVERY_MESSAGE["good opened"]
