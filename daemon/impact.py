"""The built-in A/B on a running server: its cycles while the daemon samples, against those while it pauses.

The rings are read by the asking process itself, whether the daemon samples or not.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.records import RECORD, Records, joined
from cyclewatch.collectors.ring import RingError, RingReader
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.control import asked
from cyclewatch.detectors.costs.impact import Impact, Pair, Stretch, impacts

_SETTLE_PART = 0.2
"""Of a stretch, from its beginning: the daemon stops, or catches up."""

_OVERDUE_S = 2.0
"""How much longer than its stretch a pause may last, should this process not come to end it."""


class ImpactError(Exception):
    """Nothing can be measured; one sentence."""


@dataclass(frozen=True)
class RankImpact:
    """What sampling does to the cycles of one rank, by phase; empty where there were too few cycles."""

    target: str
    rank: str
    phases: tuple[Impact, ...]


def measure(settings: Settings, pairs: int, seconds: float, told: Callable[[str], None]) -> list[RankImpact]:
    """Measure in that many pairs of stretches of `seconds` each; `told` hears what goes on.

    Raises:
        ImpactError: there is no ring.
        ControlError: the daemon does not run, or refuses.
    """
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(reader)) for reader in _rings(settings.rings.directory)]
        if not readers:
            raise ImpactError(f"no ring in {settings.rings.directory}: `cyclewatch doctor` says why")
        records: list[list[Records]] = [[] for _ in readers]
        measured = []
        for number in range(pairs):
            told(f"pair {number + 1} of {pairs}, {2 * seconds:g} s")
            stretches = {}
            # Turned round from pair to pair, so that what drifts is in both alike.
            for sampling in (True, False) if number % 2 == 0 else (False, True):
                stretches[sampling] = _stretch(settings.state_dir, seconds, sampling=sampling)
                for reader, parts in zip(readers, records, strict=True):
                    parts.append(_new(reader))
            measured.append(Pair(sampled=stretches[True], paused=stretches[False]))
        discovery = Discovery(settings.targets)
        return [
            RankImpact(
                discovery.note(reader.identity),
                reader.identity.rank,
                tuple(impacts(joined(parts), measured)),
            )
            for reader, parts in zip(readers, records, strict=True)
        ]


def _stretch(state_dir: Path, seconds: float, *, sampling: bool) -> Stretch:
    """Let a stretch pass; gives the part of it that counts."""
    question = {"do": "pause", "seconds": seconds + _OVERDUE_S}
    with nullcontext() if sampling else asked(state_dir, question):
        began_ns = time.monotonic_ns()
        time.sleep(seconds)
        return Stretch(began_ns + int(seconds * _SETTLE_PART * 1e9), time.monotonic_ns())


def _rings(directory: Path) -> Iterator[RingReader]:
    """All rings that can be read, each from its end on."""
    for path in sorted(directory.glob("*.ring")):
        try:
            reader = RingReader(path)
        except (RingError, OSError):
            continue  # `doctor` without this option tells of it
        _new(reader)
        yield reader


def _new(reader: RingReader) -> Records:
    """What was written since the last look; nothing where the ring cannot be read any more."""
    try:
        return reader.read().records
    except OSError:
        return np.empty(0, RECORD)
