"""What was changed right before an incident, in words: pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from cyclewatch.collectors.records import NODE
from cyclewatch.daemon.alerts.shorten import shortened

BEFORE_NS = 30 * 60 * 10**9
"""How long before a slowdown a change may lie: what comes of one shows with the next traffic."""

AFTER_NS = 60 * 10**9
"""How much later than the slowdown it may be noticed: server arguments are asked for every so often."""

_VALUE_MAX = 60
_CHANGES_MAX = 3
CHANGE_KINDS = ("version", "model", "argument", "environment")
"""Kinds of change events that tell what became another, in the order in which they are told."""


@dataclass(frozen=True)
class Change:
    """A version, a model, an argument or a fact of the environment that became another."""

    node: str
    target: str
    at_ns: int
    kind: str
    subject: str
    before: str
    after: str


def change_before(changes: Iterable[Change], node: str, target: str, began_ns: int) -> str:
    """The changes of a target, or of its node, around `began_ns`: "SGLang 0.5.22 to 0.5.23"; empty without any."""
    near = [
        change
        for change in changes
        if change.node == node
        and change.target in {target, NODE}
        and change.kind in CHANGE_KINDS
        and began_ns - BEFORE_NS <= change.at_ns <= began_ns + AFTER_NS
    ]
    near.sort(key=lambda change: (CHANGE_KINDS.index(change.kind), change.subject, -change.at_ns))
    words = list(dict.fromkeys(_words(change) for change in near))
    more = f" and {len(words) - _CHANGES_MAX} more" if len(words) > _CHANGES_MAX else ""
    return "; ".join(words[:_CHANGES_MAX]) + more


def _words(change: Change) -> str:
    subject = {"version": "SGLang", "model": "model"}.get(change.kind, change.subject)
    before, after = (shortened(value, _VALUE_MAX) for value in (change.before, change.after))
    return f"{shortened(subject, _VALUE_MAX)} {before or 'nothing'} to {after or 'nothing'}"
