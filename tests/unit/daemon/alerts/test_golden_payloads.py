"""What each service is sent in each state, to the letter. Read the files as a person on call would."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alert_messages import MESSAGE, NOW_NS, URLS, sender
from cyclewatch.daemon.alerts.message import Message, Severity, State, trial
from cyclewatch.daemon.alerts.text import text_of
from cyclewatch.daemon.alerts.together import together

GOLDEN = Path(__file__).parents[3] / "golden/alerts"


CHANGES: dict[State, dict[str, Any]] = {
    State.GROWN: {"severity": Severity.CRITICAL, "risen_from": Severity.WARNING, "effect": 0.31, "ci": (0.29, 0.33)},
    State.ACKNOWLEDGED: {"by": "ann: I am on it"},
    State.RESOLVED: {"at_ns": NOW_NS, "next_step": ""},
    State.ACCEPTED: {"by": "ann: the new model is larger", "next_step": ""},
    State.MERGED: {"by": "incident 11", "next_step": "go on with that one: cyclewatch incidents show 11"},
    State.EXPECTED: {"severity": Severity.INFO, "by": "bob: SGLang 0.5.23", "next_step": ""},
}


def message(state: State) -> Message:
    """What is told of the same incident in `state`."""
    if state is State.TEST:
        return trial("oncall", "gpu-node-7", NOW_NS)
    if state is State.DIGEST:
        other = replace(message(State.RESOLVED), incident="13", targets=1, cause=None)
        return together((other, MESSAGE), NOW_NS)
    return replace(MESSAGE, state=state, **CHANGES.get(state, {}))


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
