"""What is kept of each ring, and what is shown of it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cyclewatch.collectors.records import CycleBatch
from cyclewatch.daemon.metrics_state import RingState, StateCollector
from cyclewatch.daemon.store.unit import Run
from cyclewatch.daemon.watch import SeriesWatch
from cyclewatch.detectors.windows import Window, WindowCutter


@dataclass
class RingTrack:
    """What the pipeline keeps of one ring."""

    run: Run
    rank: str
    synchronous: bool
    cutter: WindowCutter
    next_sequence: int
    batch: CycleBatch
    read: int = 0
    lost: int = 0
    torn: int = 0
    newest_ns: int = 0
    watches: dict[str, SeriesWatch] = field(default_factory=dict)

    def close(self) -> Iterator[Window]:
        """Windows of which every record has been read, oldest first; when nothing more comes, all of them.

        By the reader's own account and not by the clock: rings that could not be read for a while, be it that sampling
        was paused, lose nothing.
        """
        yield from self.cutter.close_all() if self.batch.over else self.cutter.close_until(self.batch.complete_ns)

    def place(self, *phase: str) -> str:
        """Where in the metrics: unique by their labels."""
        return "|".join((self.run.target, self.rank, *phase))


def ring_states(tracks: Iterable[RingTrack], now_ns: int) -> dict[str, RingState]:
    """What the metrics show of each ring. Of a restarted server there are two for a while: the later one is shown."""
    return {
        track.place(): RingState(
            target=track.run.target,
            rank=track.rank,
            counters=track.batch.counters,
            read=track.read,
            lost=track.lost,
            torn=track.torn,
            alive=track.batch.alive,
            heartbeat_age_s=max(0.0, (now_ns - track.batch.counters.heartbeat_ns) / 1e9),
            behind=max(0, track.batch.counters.written + 1 - track.next_sequence),
            newest_ns=track.newest_ns,
        )
        for track in sorted(tracks, key=lambda track: track.batch.ring.wall_ns)
    }


def targets_status(state: StateCollector) -> Mapping[str, Any]:
    """What `cyclewatch status` shows, by target."""
    targets: dict[str, dict[str, Any]] = {}
    for ring in state.rings.values():
        entry = targets.setdefault(ring.target, {"ranks": [], "phases": []})
        entry["ranks"].append(
            {
                "rank": ring.rank,
                "alive": ring.alive,
                "disabled": ring.counters.disabled,
                "heartbeat_age_s": round(ring.heartbeat_age_s, 1),
                "read": ring.read,
                "lost": ring.lost,
                "torn": ring.torn,
            }
        )
    for phase in state.phases.values():
        if phase.target in targets:
            row = {name: value for name, value in vars(phase).items() if name != "target"}
            targets[phase.target]["phases"].append(row)
    return targets
