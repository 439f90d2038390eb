"""Which candidate explains how much of a slowdown.

First what the graph knows to follow from another candidate is taken off it. Then those whose readings tell how much
time was lost get that time, as far as the parts of the cycle that they can lengthen became longer; then those whose
readings tell at most how much; and then, in the order of the graph, the first whose reading tells nothing of its size
gets what is left. What nobody gets is unexplained.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cyclewatch.config.causes import CausalGraph, Layer, Size, Way
from cyclewatch.detectors.attribution.candidates import Candidate
from cyclewatch.detectors.attribution.growth import Growth

_LEAST_LEFT = 0.2
"""Part of the slowdown that must be left for a candidate without a size to be given it."""


@dataclass(frozen=True)
class Explained:
    """A candidate with its part of the slowdown, 0 to 1; None where it explains nothing that can be told.

    `behind` is the kind that it follows from, "" for a root. `is_sized` tells that a reading gave the time: its own, or
    that of what follows from it.
    """

    candidate: Candidate
    share: float | None
    is_sized: bool
    behind: str = ""

    @property
    def kind(self) -> str:
        """Its kind's name."""
        return self.candidate.kind.kind


def explain(found: Sequence[Candidate], growth: Growth, graph: CausalGraph) -> tuple[Explained, ...]:
    """What each candidate explains; roots have shares that add up to at most 1."""
    claims = _with_time_of_effects(found, graph)
    rooms = _Rooms(growth)
    shares: dict[str, float] = {}
    sized = [(one, time_us) for one, time_us in claims.items() if time_us is not None]
    by_kind = {one.kind.kind: one for one in found}
    exact = sorted(((n, t) for n, t in sized if by_kind[n].exact), key=lambda claim: -claim[1])
    for name, time_us in exact:
        shares[name] = growth.share(rooms.take(by_kind[name], time_us))
    bounded = {name: time_us for name, time_us in sized if not by_kind[name].exact}
    for name, time_us in rooms.fairly(bounded, by_kind).items():
        shares[name] = growth.share(rooms.take(by_kind[name], time_us))
    unsized = [name for name in graph.kinds if name in claims and claims[name] is None]
    for name in unsized:
        if growth.share(rooms.left_us(by_kind[name])) >= _LEAST_LEFT:
            shares[name] = growth.share(rooms.take(by_kind[name], float("inf")))
    return tuple(
        _explained(one, shares, found, growth, graph, is_sized=claims.get(one.kind.kind) is not None) for one in found
    )


def _with_time_of_effects(found: Sequence[Candidate], graph: CausalGraph) -> dict[str, float | None]:
    """The time that each kind can have added by itself, None for one of unknown size.

    A kind whose reading tells no time has that of the kinds that follow from it; of several such the time is shared by
    how far their readings moved. What follows from a kind with a time of its own has what it shows beyond that.
    """
    by_kind = {one.kind.kind: one for one in found if one.kind.layer is not Layer.SYMPTOM}
    own = {name: _at_most_its_effects(one, by_kind) for name, one in by_kind.items()}
    times = dict(own)
    for name, time_us in own.items():
        if time_us is None:
            continue
        behind = [cause for cause in by_kind if graph.explains(cause, name)]
        drivers = _first([cause for cause in behind if own[cause] is None], graph)
        explained = {cause: _within(by_kind[name], by_kind[cause], own[cause] or 0.0) for cause in behind}
        # Of causes that follow from each other the time counts once.
        explained_us = max(sum(explained[cause] for cause in _first(behind, graph)), *explained.values(), 0.0)
        left_us = max(time_us - explained_us, 0.0)
        times[name] = 0.0 if drivers else left_us
        weights = sum(by_kind[cause].weight for cause in drivers)
        for cause in drivers:
            part = by_kind[cause].weight / weights if weights > 0 else 1 / len(drivers)
            times[cause] = (times[cause] or 0.0) + left_us * part
    return times


def _first(kinds: Sequence[str], graph: CausalGraph) -> list[str]:
    """Those of the kinds that do not follow from another of them."""
    return [kind for kind in kinds if not any(graph.explains(other, kind) for other in kinds)]


def _at_most_its_effects(one: Candidate, by_kind: Mapping[str, Candidate]) -> float | None:
    """The time that a candidate's reading tells, and no more than what it acts through tells."""
    through = [by_kind[name].time_us or 0.0 for name in one.kind.through if name in by_kind]
    return min(one.time_us, sum(through)) if one.time_us is not None and through else one.time_us


def _within(effect: Candidate, cause: Candidate, time_us: float) -> float:
    """The time that a cause adds to what the effect shows: a clock slows all kernels down, not only the slower ones."""
    return min(effect.base_us * cause.longer, time_us) if math.isfinite(effect.base_us) and cause.longer else time_us


def _explained(
    one: Candidate,
    shares: Mapping[str, float],
    found: Iterable[Candidate],
    growth: Growth,
    graph: CausalGraph,
    *,
    is_sized: bool,
) -> Explained:
    name = one.kind.kind
    own = shares.get(name, 0.0)
    upstream = [other.kind.kind for other in found if graph.explains(other.kind.kind, name)]
    behind = max((root for root in upstream if shares.get(root, 0.0) > own), key=lambda root: shares[root], default="")
    if one.kind.layer is Layer.SYMPTOM or (behind and own < _LEAST_LEFT):
        return Explained(one, None if one.time_us is None else growth.share(one.time_us), is_sized, behind)
    return Explained(one, shares.get(name), is_sized)


class _Rooms:
    """By how much the parts of the cycle became longer, less what has been given to candidates."""

    def __init__(self, growth: Growth) -> None:
        self._growth = growth
        self._parts = {name: growth.room_us([name]) for name in growth.parts}
        self._ways = {way: growth.way_us(way) for way in (Way.BUSY, Way.BLOCKED)}

    def left_us(self, candidate: Candidate) -> float:
        """What this candidate could still be given.

        A reading that tells a time is believed over the thread's CPU time, which is sampled once in many cycles.
        """
        rooms = self._of(candidate)
        on_host = sum(room_us for name, room_us in rooms.items() if name in self._growth.host)
        elsewhere = sum(rooms.values()) - on_host
        way = candidate.kind.way if candidate.kind.size is Size.UNSIZED else Way.EITHER
        return elsewhere + (on_host if way is Way.EITHER else min(on_host, self._ways[way]))

    def _of(self, candidate: Candidate) -> dict[str, float]:
        """What is left of each part that this candidate can have lengthened."""
        limits, names = candidate.limits_us, self._growth.named(candidate.kind.lengthens)
        if limits is None:
            return {name: self._parts[name] for name in names}
        return {name: min(self._parts[name], limits.get(name, 0.0)) for name in names}

    def fairly(self, wanted: Mapping[str, float], by_kind: Mapping[str, Candidate]) -> dict[str, float]:
        """What those that want more than there is together would get, in proportion to what each could have alone."""
        could = {name: min(time_us, self.left_us(by_kind[name])) for name, time_us in wanted.items()}
        parts = {name: set(self._growth.named(by_kind[name].kind.lengthens)) for name in wanted}
        fair = {}
        for name, time_us in could.items():
            rivals_us = sum(could[other] for other in could if parts[other] & parts[name])
            left_us = self.left_us(by_kind[name])
            fair[name] = time_us * min(1.0, left_us / rivals_us) if rivals_us > 0 else 0.0
        return fair

    def take(self, candidate: Candidate, time_us: float) -> float:
        """Give the candidate as much of this as there is; what it got."""
        left_us = self.left_us(candidate)
        taken_us = min(time_us, left_us)
        if taken_us <= 0:
            return 0.0
        rest_us, on_host_us = taken_us, 0.0
        for name, room_us in self._of(candidate).items():
            given_us = min(rest_us, room_us)
            self._parts[name] -= given_us
            rest_us -= given_us
            on_host_us += given_us if name in self._growth.host else 0.0
        if candidate.kind.way is not Way.EITHER:
            self._ways[candidate.kind.way] = max(self._ways[candidate.kind.way] - on_host_us, 0.0)
        return taken_us
