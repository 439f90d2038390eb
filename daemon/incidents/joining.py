"""Which regressions are one incident: pure."""

from bisect import bisect_left, insort
from collections import defaultdict

from cyclewatch.daemon.alerts.message import FirstCause
from cyclewatch.daemon.incidents.incident import Finding, Incident, Series

UNEXPLAINED = "unexplained"
"""Kind of the cause of what nothing explains."""


def kind_of(cause: FirstCause | None) -> str:
    """Kind of a first cause, `UNEXPLAINED` where there is none."""
    return cause.kind if cause is not None and cause.kind else UNEXPLAINED


def known(cause: FirstCause | None) -> bool:
    """Whether something explains it."""
    return kind_of(cause) != UNEXPLAINED


class Homes:
    """Finds the incident that a regression belongs to, by the key of the incident, among those that were added.

    It is the one that has its series; else the nearest in time, within `join_ns`, of the same target; else the nearest
    of the same known cause, or, where the causes are unknown, of the same node. Regressions that come in together
    belong together in whatever order they are listed; over several passes the first that comes decides: one that is
    near to two incidents joins one, and does not make them one.
    """

    def __init__(self, join_ns: int) -> None:
        self._join_ns = join_ns
        self._of_series: dict[Series, str] = {}
        self._near: dict[tuple[str, ...], list[tuple[int, str]]] = defaultdict(list)

    def add(self, incident: Incident) -> None:
        """Take in an incident with its members."""
        for member in incident.members:
            self.take(incident.key, member.series, member.started_at_ns, incident.cause)

    def take(self, key: str, series: Series, began_ns: int, cause: FirstCause | None) -> None:
        """Take in one member of the incident `key`."""
        self._of_series.setdefault(series, key)
        for place in _places(series, cause):
            insort(self._near[place], (began_ns, key))

    def of_series(self, series: Series) -> str | None:
        """The incident that has this series."""
        return self._of_series.get(series)

    def near(self, finding: Finding, began_ns: int) -> str | None:
        """The incident that began about when `finding` did, at `began_ns`, and is of the same target or cause."""
        for place in _places(finding.series, finding.cause):
            starts = self._near.get(place, [])
            at = bisect_left(starts, (began_ns, ""))
            beside = starts[max(at - 1, 0) : at + 1]
            distance_ns, key = min(((abs(start - began_ns), key) for start, key in beside), default=(None, ""))
            if distance_ns is not None and distance_ns <= self._join_ns:
                return key
        return None


def _places(series: Series, cause: FirstCause | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where to look for incidents that are near in time, the surest first."""
    node, target = series[:2]
    return ("target", node, target), ("cause", kind_of(cause)) if known(cause) else ("node", node)
