"""Candidates for what is behind a change: kinds of the causal graph whose readings or events are there.

A candidate has the right sign and moved when the cycle did. How much of the slowdown it may explain is for the ranking
to say; here its reading becomes the time that it can have added to a cycle.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from cyclewatch.config.causes import CausalGraph, CauseKind, Direction, EventSign, Sign, Size
from cyclewatch.detectors.attribution.evidence import Event, Evidence, Trace
from cyclewatch.detectors.attribution.growth import Growth
from cyclewatch.detectors.attribution.readings import Readings
from cyclewatch.detectors.attribution.sentences import changed, happened
from cyclewatch.detectors.attribution.split import COMMUNICATION, WAIT
from cyclewatch.detectors.attribution.traces import SLACK_NS, Change

_DEVICE_LABELS = ("gpu", "disk", "interface", "device", "package")
_USAGE = "host.cpu_usage_ratio"


@dataclass(frozen=True)
class Candidate:
    """A kind of cause that was seen, of one device.

    `time_us` is what it can have added to a cycle, None where its reading does not tell; `exact` that it is just that,
    not at most that. `weight` is how far its reading moved, to share between candidates that act through the same.
    Where it governs parts by a factor, `longer` is that less 1, and `limits_us` what it can have added to each part.
    `base_us` is what kernels that became slower took before.
    """

    kind: CauseKind
    device: str
    time_us: float | None
    exact: bool
    weight: float
    proof: tuple[str, ...]
    longer: float = 0.0
    limits_us: Mapping[str, float] | None = None
    base_us: float = math.inf
    subject: str = ""
    """What it is, where that is said better than by its kind."""


def candidates(evidence: Evidence, readings: Readings, growth: Growth, graph: CausalGraph) -> tuple[Candidate, ...]:
    """All candidates of the graph that readings or events show."""
    found: dict[str, list[Candidate]] = {}
    still: set[str] = set()
    """Kinds whose reading was read, and did not move."""
    for kind in graph.kinds.values():
        seen, was_read = _from_readings(kind, readings, growth)
        found[kind.kind] = list(_by_device(seen))
        if was_read and not seen:
            still.add(kind.kind)
    for kind, events in _events_of(evidence, readings, graph):
        proof = tuple(happened(event, evidence.started_at_ns) for event in events)
        found[kind.kind].append(Candidate(kind, "", None, exact=False, weight=1.0, proof=proof, subject=events[0].text))
    return tuple(
        candidate
        for name, ones in found.items()
        for candidate in _merged(ones)
        if not _acts_through_nothing(graph.kinds[name], found, still)
    )


def _acts_through_nothing(kind: CauseKind, found: Mapping[str, Sequence[Candidate]], still: set[str]) -> bool:
    """Whether none of what this kind acts through moved, though it was read, or must be seen for this kind."""
    unseen = not any(found[name] for name in kind.through)
    return bool(kind.through) and unseen and (kind.needs_effect or set(kind.through) & still != set())


def _from_readings(kind: CauseKind, readings: Readings, growth: Growth) -> tuple[list[Candidate], bool]:
    """Candidates of this kind, of every device; and whether its readings were read at all."""
    moved = readings.moved
    if (
        any(moved(name) is not None for name in kind.unless)
        or any(moved(name) for name in kind.yields_to)
        or any(moved(name) is False for name in kind.refuted_by)
    ):
        return [], False
    found: list[Candidate] = []
    was_read = False
    for sign in kind.sign:
        of_sign = list(readings.of(sign.reading, sign.labels, silent=sign.silent))
        was_read = was_read or bool(of_sign)
        found += [
            _candidate(kind, trace, change, readings, growth) for trace, change in of_sign if _shows(sign, change)
        ]
        if found:
            break
    return found, was_read


def _shows(sign: Sign, change: Change) -> bool:
    """Whether a reading moved as the sign says, by enough, when the cycle did."""
    right_way = (change.difference > 0) == (sign.direction is Direction.UP)
    enough = abs(change.difference) >= sign.least and change.factor >= sign.least_factor
    reached = sign.level is None or (change.after >= sign.level) == (sign.direction is Direction.UP)
    return right_way and enough and reached and change.sure and change.at_start


def _candidate(kind: CauseKind, trace: Trace, change: Change, readings: Readings, growth: Growth) -> Candidate:
    longer = change.factor - 1.0 if kind.size is Size.FACTOR and math.isfinite(change.factor) else 0.0
    limits_us = _limits_us(kind, longer, growth) if kind.size is Size.FACTOR else None
    return Candidate(
        kind,
        _device(trace.labels),
        sum(limits_us.values()) if limits_us is not None else _time_us(kind, change, readings, growth),
        exact=kind.size is Size.LOST,
        weight=abs(change.difference),
        proof=(changed(trace, change),),
        longer=longer,
        limits_us=limits_us,
    )


def _device(labels: Mapping[str, str]) -> str:
    for name in _DEVICE_LABELS:
        if labels.get(name):
            return f"gpu{labels[name]}" if name == "gpu" else labels[name]
    return ""


def _time_us(kind: CauseKind, change: Change, readings: Readings, growth: Growth) -> float | None:
    """What the reading can have added to a cycle, in microseconds; None where it does not tell."""
    before_us, after_us = growth.before_us, growth.after_us
    match kind.size:
        case Size.LOST | Size.LOST_AT_MOST:
            return max(change.after * after_us - change.before * before_us, 0.0)
        case Size.LOST_OF_NODE:
            usage = next((used for _, used in readings.of(_USAGE)), None)
            old, new = (max(usage.before, 1e-3), max(usage.after, 1e-3)) if usage is not None else (1.0, 1.0)
            lost_after, lost_before = min(change.after / new, 1.0), min(change.before / old, 1.0)
            return max(lost_after * after_us - lost_before * before_us, 0.0)
        case Size.PER_EVENT:
            return max(change.after * after_us - change.before * before_us, 0.0) * kind.event_s
        case Size.UNSIZED | Size.FACTOR:
            return None


def _limits_us(kind: CauseKind, longer: float, growth: Growth) -> dict[str, float]:
    """What a factor can have added to each part that it governs, as far as that became longer.

    The device works while the host does: what it does in the wait is only the end of it. What kernels of communication
    wait is another rank's work, and that can have become longer by as much as all of a cycle's.
    """
    most_us = growth.before_us * longer
    limits: dict[str, float] = {}
    for name in sorted(growth.named(kind.lengthens), key=lambda name: name == COMMUNICATION):
        of_all = name in {WAIT, COMMUNICATION}
        own_us = most_us - sum(limits.values()) if of_all else growth.parts[name].before_us * longer
        limits[name] = min(max(own_us, 0.0), growth.room_us([name]))
    return limits


def _by_device(seen: Iterable[Candidate]) -> Iterator[Candidate]:
    """The one of each device whose reading moved most."""
    best: dict[str, Candidate] = {}
    for candidate in seen:
        known = best.get(candidate.device)
        if known is None or _reach(candidate) > _reach(known):
            best[candidate.device] = candidate
    yield from best.values()


def _reach(candidate: Candidate) -> tuple[float, float]:
    return (candidate.time_us or 0.0, candidate.weight)


def _merged(ones: Sequence[Candidate]) -> Iterator[Candidate]:
    """One candidate of a kind: of several devices the one that reaches farthest, the others named beside it.

    The ranks of a server wait for the slowest of them, so that their times are no sum.
    """
    if not ones:
        return
    first, *others = sorted(ones, key=_reach, reverse=True)
    devices = sorted({one.device for one in ones if one.device})
    proof = first.proof + tuple(sentence for other in others for sentence in other.proof)
    yield replace(first, device=", ".join(devices), proof=proof)


def _events_of(evidence: Evidence, readings: Readings, graph: CausalGraph) -> Iterator[tuple[CauseKind, list[Event]]]:
    """Events that had happened when the change began, each under the first kind that it fits."""
    by_kind: dict[str, list[Event]] = {}
    alone: dict[str, list[Event]] = {}
    for event in evidence.events:
        if event.at_ns > evidence.started_at_ns + SLACK_NS or readings.is_of_another_gpu(event.subject):
            continue
        for kind in graph.kinds.values():
            sign = next((one for one in kind.event if _fits(event, one)), None)
            if sign is not None:
                (alone if sign.alone else by_kind).setdefault(kind.kind, []).append(event)
                break
    for name, events in (by_kind or alone).items():
        yield graph.kinds[name], events


def _fits(event: Event, sign: EventSign) -> bool:
    return fnmatchcase(event.kind, sign.kind) and fnmatchcase(event.subject, sign.subject)
