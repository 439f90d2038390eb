"""What each service is sent in each state, to the letter. Read the files as a person on call would."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from alert_messages import MESSAGE, NOW_NS, URLS, sender
from cyclewatch.daemon.alerts.message import Message, State, trial
from cyclewatch.daemon.alerts.text import text_of

GOLDEN = Path(__file__).parents[3] / "golden/alerts"


def message(state: State) -> Message:
    """What is told of the same incident in `state`."""
    if state is State.TEST:
        return trial("oncall", "gpu-node-7", NOW_NS)
    if state is State.RESOLVED:
        return replace(MESSAGE, state=state, at_ns=NOW_NS, next_step="")
    return replace(MESSAGE, state=state)


def payloads(kind: str) -> str:
    documents = {}
    for state in State:
        request = sender(kind).payload(message(state), NOW_NS)
        documents[state.value] = {"headers": dict(request.headers), "body": json.loads(request.body)}
    return json.dumps(documents, indent=2, ensure_ascii=False) + "\n"


def texts() -> str:
    parts = []
    for state in State:
        text = text_of(message(state))
        links = [f"{name}: {address}" for name, address in text.links]
        parts.append("\n".join([text.title, *map(str, text.lines), text.where, *links]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("kind", URLS)
def test_the_payloads_are_the_golden_ones(kind: str) -> None:
    assert payloads(kind) == (GOLDEN / f"{kind}.json").read_text()


def test_the_texts_are_the_golden_ones() -> None:
    assert texts() == (GOLDEN / "texts.txt").read_text()
