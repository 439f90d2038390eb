"""Which incidents have turned out to be one: pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from cyclewatch.daemon.incidents.incident import ENDED, Incident
from cyclewatch.daemon.incidents.joining import kind_of, known


def merged(incidents: Iterable[Incident], join_ns: int) -> Iterator[tuple[Incident, Incident]]:
    """Each incident that is one with an older one, and the oldest of those.

    They are when both are slow now, of the same known kind of first cause, and began within `join_ns` of each other: by
    these rules they would have been one from the beginning, had the cause been known then. The beginning of an incident
    never changes, and what was merged stays so, whatever the causes become: nothing can flap.
    """
    kept = defaultdict[str, list[Incident]](list)
    for one in sorted(filter(_may_merge, incidents), key=lambda one: one.number or 0):
        others = kept[kind_of(one.cause)]
        older = next((other for other in others if abs(other.started_at_ns - one.started_at_ns) <= join_ns), None)
        if older is None:
            others.append(one)
        else:
            yield one, older


def _may_merge(incident: Incident) -> bool:
    """Not one that was announced, that is quiet, or that this pass has made."""
    is_slow = incident.state not in ENDED and incident.quiet_since_ns is None
    return is_slow and incident.number is not None and incident.expectation is None and known(incident.cause)
