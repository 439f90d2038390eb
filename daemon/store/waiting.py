"""What waits on disk for the database, as far as it is asked for before the database has it.

A daemon that starts asks for baselines, runs, facts, and where to go on in the rings. The newest of them may lie in the
spool, and hours of measurements before them. So the newest alone are read, which takes seconds, and the daemon begins
to sample; the writer brings the rest to the database beside it, in order.
"""

import threading
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.json_text import as_stored
from cyclewatch.daemon.store.run_rows import run_after
from cyclewatch.daemon.store.unit import RingPosition, Run, StoredFact
from cyclewatch.daemon.store.unit_bytes import UnitHead, state_from_bytes


class WaitingState:
    """The newest of each in the units that wait; one thread notes, any may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._rings: dict[str, RingPosition] = {}
        self._facts: dict[tuple[str, str], StoredFact] = {}
        self._states: dict[str, bytes] = {}
        self._status: dict[str, tuple[int, Mapping[str, Any]]] = {}

    def note(self, unit: UnitHead) -> None:
        """A unit that comes after all that were noted."""
        with self._lock:
            for run in unit.runs:
                self._runs[run.key] = run_after(self._runs.get(run.key), run)
            self._rings.update({ring.key: ring for ring in unit.rings})
            self._facts.update({(fact.target, fact.subject): fact for fact in unit.facts})
            # As copies: each would hold the bytes of its whole unit.
            self._states.update({key: bytes(state) for key, state in unit.states.items()})
            self._status.update({name: (unit.at_ns, value) for name, value in unit.status.items()})

    def clear(self) -> None:
        """The database has all of it."""
        with self._lock:
            for known in (self._runs, self._rings, self._facts, self._states, self._status):
                known.clear()

    def runs(self) -> dict[str, Run]:
        """Runs by key."""
        with self._lock:
            return dict(self._runs)

    def rings(self) -> dict[str, RingPosition]:
        """Where reading goes on, by key of the ring."""
        with self._lock:
            return dict(self._rings)

    def facts(self) -> dict[tuple[str, str], StoredFact]:
        """Facts by target and subject."""
        with self._lock:
            return dict(self._facts)

    def status(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """What the daemon said of itself, and when (UTC nanoseconds)."""
        with self._lock:
            return {name: (at_ns, as_stored(value)) for name, (at_ns, value) in self._status.items()}

    def state(self, key: str) -> Mapping[str, Any] | None:
        """Saved state of a detector; None where none waits."""
        with self._lock:
            packed = self._states.get(key)
        return None if packed is None else as_stored(state_from_bytes(packed))


class WaitingHistory(StoreHistory):
    """The store of a daemon: the state of everything as it will be when the database has what waits.

    Measurements and what was found are the database's alone. What waits is asked for first: it is forgotten only when
    the database has it.
    """

    def __init__(self, engine: Engine, node: str, waiting: WaitingState) -> None:
        super().__init__(engine, node)
        self._waiting = waiting

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        waiting = self._waiting.runs()
        runs = {run.key: run for run in super().runs()}
        runs |= {key: run_after(runs.get(key), run) for key, run in waiting.items()}
        return sorted(runs.values(), key=lambda run: run.started_at_ns)

    def facts(self) -> list[StoredFact]:
        """What the node and its servers run on, as last told, in order."""
        waiting = self._waiting.facts()
        facts = {(fact.target, fact.subject): fact for fact in super().facts()} | waiting
        return [fact for _, fact in sorted(facts.items())]

    def detector_state(self, key: str) -> Mapping[str, Any] | None:
        """Saved state of a detector."""
        waiting = self._waiting.state(key)
        return super().detector_state(key) if waiting is None else waiting

    def ring_positions(self) -> dict[str, RingPosition]:
        """Where the reading of every known ring goes on."""
        waiting = self._waiting.rings()
        return super().ring_positions() | waiting

    def status(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """What the daemon last said of itself: by name, the time in UTC nanoseconds and the value."""
        waiting = self._waiting.status()
        return super().status() | waiting
