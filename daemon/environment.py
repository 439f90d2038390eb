"""What the node and its servers run on: the facts that are known, and which of them changed."""

from collections.abc import Iterable

import structlog

from cyclewatch.collectors.records import NODE, Fact
from cyclewatch.daemon.store.unit import ChangeEvent, StoredFact

log = structlog.get_logger(__name__)

FACTS_MAX = 4096
_SUBJECT_MAX = 128
_VALUE_MAX = 200


class Environment:
    """Keeps the latest value of every fact, and tells a change from a repetition.

    A fact that is not told any more keeps its value: that a driver does not answer is no other driver. `known` is what
    the store remembers, so that a restart of the daemon is no change, and what changed while it was away is one.
    """

    def __init__(self, known: Iterable[StoredFact] = ()) -> None:
        self._facts = {(fact.target, fact.subject): fact for fact in known}
        self._full = False

    def note(self, fact: Fact, at_ns: int) -> tuple[StoredFact | None, ChangeEvent | None]:
        """What is to be stored of a fact told at `at_ns` (UTC), and the change that it means, if any."""
        subject, value = _printable(fact.subject, _SUBJECT_MAX), _printable(fact.value, _VALUE_MAX)
        before = self._facts.get((fact.target, subject))
        if not subject or not value or (before is not None and before.value == value):
            return None, None
        if before is None and len(self._facts) >= FACTS_MAX:
            if not self._full:
                log.error("facts beyond the first are left out", limit=FACTS_MAX, target=fact.target, subject=subject)
            self._full = True
            return None, None
        kept = self._facts[fact.target, subject] = StoredFact(fact.target, subject, value, at_ns)
        if before is None:
            return kept, None
        return kept, ChangeEvent(fact.target, at_ns, "environment", subject, before.value, value)

    def of(self, target: str) -> dict[str, str]:
        """Everything a server runs on, by subject: its own facts, and those of the node."""
        found = {fact.subject: fact.value for fact in self._facts.values() if fact.target == NODE}
        found.update({fact.subject: fact.value for fact in self._facts.values() if fact.target == target})
        return dict(sorted(found.items()))


def _printable(text: str, length: int) -> str:
    """What a database and a terminal take: no control characters, no broken ones."""
    return "".join(character for character in text if character.isprintable()).strip()[:length]
