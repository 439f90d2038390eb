"""A pipeline with a real store, fed with simulated cycles by a hand-moved clock; it can be killed at any moment."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, select

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.records import CycleBatch, Records, RingCounters, RingIdentity, Sample
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.config.settings import Detection, Settings
from cyclewatch.daemon.environment import Environment
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.pipeline import Pipeline
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.runs import RunRegistry
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.models import Base
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import Unit

SECOND = 10**9
LOOKS_NS = 3 * SECOND
"""How far behind the present it is known that all records have been read."""

WALL_NS = 1_800_000_000 * SECOND
"""UTC when the monotonic clock was 0."""

QUICK = Settings(detection=Detection(reference_s=100, warmup_s=0, min_effect=0.05))


def ring_identity(key: str = "1-100-7", **changes: Any) -> RingIdentity:
    """A scheduler that began at second 0."""
    values: dict[str, Any] = {
        "pid": 100,
        "parent_pid": 99,
        "parent_start_ticks": 5,
        "tp_rank": 0,
        "pp_rank": None,
        "dp_rank": None,
        "synchronous": True,
        "sglang_version": "0.5.23",
        "plugin_version": "0.1.0",
        "hooks_missing": (),
        "monotonic_ns": 0,
        "wall_ns": WALL_NS,
        "server": {"model_path": "tiny", "page_size": 1},
        **changes,
    }
    return RingIdentity(key=key, **values)


class AtOnce(Executor):
    """Does what it is given before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Watched:
    """One daemon without its threads. `lag` units are not yet written when it is killed."""

    def __init__(self, directory: Path, settings: Settings = QUICK, address: str | None = None) -> None:
        self.engine: Engine = open_database(address or f"sqlite:///{directory / 'watched.db'}", create=True)
        self.history = StoreHistory(self.engine)
        self.settings = settings
        self.executor: Executor = AtOnce()
        self.jitter_ns = 0
        self.units: list[Unit] = []
        self.start()

    def start(self) -> None:
        """Begin as a new process does, with what the store remembers."""
        self.metrics = Metrics()
        self.metrics.state.quantities = known_quantities()
        self.writer = Transactions(self.engine, "node")
        self.units = []
        self.batches: dict[str, CycleBatch] = {}
        self.lag = 0
        self.positions = self.history.ring_positions()
        self.board = Board()
        self.pipeline = Pipeline(
            self.settings,
            self.metrics,
            RunRegistry("node", "boot", self.history.runs()),
            Environment(self.history.facts()),
            self.board,
            self.history,
            self.positions,
            self.units.append,
            self.executor,
        )

    def now(self, at_ns: int) -> Now:
        """Both clocks; their distance is never quite the same in two processes."""
        return Now(at_ns, WALL_NS + at_ns + self.jitter_ns)

    def take(self, sample: Sample, at_ns: int) -> None:
        if isinstance(sample, CycleBatch):
            self.batches[sample.ring.key] = replace(sample, records=sample.records[:0], lost=0, torn=0)
        self.pipeline.take(sample, self.now(at_ns))

    def look_again(self, at_ns: int) -> None:
        """Find nothing new in any ring, twice: by then all that ended some time ago has been read."""
        for one in self.batches.values():
            self.pipeline.take(replace(one, complete_ns=at_ns - LOOKS_NS, over=not one.alive), self.now(at_ns))

    def turn(self, at_ns: int) -> None:
        """One turn after the rings were looked at; what it leaves is written, but for the last `lag` units."""
        self.look_again(at_ns)
        self.pipeline.turn(self.now(at_ns))
        self.write()

    def write(self) -> None:
        while len(self.units) > self.lag:
            self.writer.write(self.units.pop(0))

    def stop(self, at_ns: int) -> None:
        """Drain, as at the end of a daemon that is asked to stop."""
        self.look_again(at_ns)
        self.pipeline.turn(self.now(at_ns))
        self.pipeline.flush(self.now(at_ns), checkpoint=True)
        self.lag = 0
        self.write()

    def rows(self, model: type[Base]) -> Sequence[Any]:
        """All rows of a table."""
        with self.engine.connect() as connection:
            return connection.execute(select(model.__table__)).all()

    def close(self) -> None:
        self.engine.dispose()


def batch(
    records: Records, ring: RingIdentity | None = None, *, target: str = "server", alive: bool = True, **changes: Any
) -> CycleBatch:
    """What the collector gives for these records."""
    values: dict[str, Any] = {
        "target": target,
        "ring": ring or ring_identity(),
        "counters": RingCounters(written=len(records)),
        "records": records,
        "next_sequence": int(records["sequence"].max(initial=0)) + 1,
        "lost": 0,
        "torn": 0,
        "alive": alive,
        "complete_ns": 0,
        **changes,
    }
    return CycleBatch(**values)


class Replay:
    """A recorded ring that is read second by second, by daemons that come and go."""

    def __init__(
        self, watched: Watched, windows: Iterable[tuple[int, Records]], ring: RingIdentity | None = None
    ) -> None:
        self.watched = watched
        self.ring = ring or ring_identity()
        self.records = np.concatenate([records for _, records in windows])
        self.at_ns = 0
        self.next_sequence = int(self.records["sequence"][0])

    @property
    def end_ns(self) -> int:
        return int(self.records["end_ns"].max())

    def run(self, until_ns: int | None = None) -> None:
        """Go on to an instant; without one, until all is read and judged."""
        end_ns = self.end_ns + 20 * SECOND if until_ns is None else until_ns
        while self.at_ns < end_ns:
            self.at_ns += SECOND
            self.look()

    def look(self) -> None:
        """Read what is new, and turn."""
        sequence, end = self.records["sequence"], self.records["end_ns"]
        new = self.records[(sequence >= self.next_sequence) & (end <= self.at_ns)]
        if len(new):
            self.next_sequence = int(new["sequence"].max()) + 1
        self.watched.take(batch(new, self.ring, next_sequence=self.next_sequence), self.at_ns)
        self.watched.turn(self.at_ns)

    def kill(self, chance: random.Random) -> None:
        """The process ends without a word, its last units unwritten; another one begins."""
        self.watched.jitter_ns = chance.randint(-500_000, 500_000)
        self.watched.start()
        self.watched.lag = chance.choice((0, 0, 1, 2))
        saved: Mapping[str, Any] = self.watched.positions
        position = saved.get(self.ring.key)
        self.next_sequence = position.next_sequence if position else int(self.records["sequence"][0])
