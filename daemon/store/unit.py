"""What one turn of the pipeline leaves to be stored, in one transaction.

A unit holds results together with the state that led to them and the places in the rings where reading goes
on. They are stored together or not at all, so that after a crash the same records lead to the same results,
once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cyclewatch.daemon.store.profile_records import StoredProfile
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.watching.tracking import Regression
from cyclewatch.detectors.windows import CellWindow

Series = tuple[str, str, tuple[tuple[str, str], ...]]
"""Target, name and labels of a plain series."""


@dataclass(frozen=True)
class Run:
    """One start of one server, as the store keeps it. `key` is unique over nodes and time.

    `environment` is what it runs on, as last told while it ran: of the node and of the server, by subject.
    """

    key: str
    node: str
    target: str
    started_at_ns: int
    last_seen_ns: int
    fingerprint: str
    version: str
    model: str
    arguments: Mapping[str, Any] = field(hash=False)
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class StoredFact:
    """What a target runs on, and since when (UTC nanoseconds)."""

    target: str
    subject: str
    value: str
    since_ns: int


@dataclass(frozen=True)
class RingPosition:
    """Where the reading of a ring goes on, and the last window that was closed."""

    key: str
    next_sequence: int
    last_window: int


@dataclass(frozen=True)
class StoredWindow:
    """A cell of a window and where it belongs."""

    run_key: str
    rank: str
    start_ns: int
    length_ns: int
    cell: CellWindow


@dataclass(frozen=True)
class StoredLevel:
    """A level and where it belongs."""

    run_key: str
    rank: str
    phase: str
    level: Level
    suspected: bool


@dataclass(frozen=True)
class StoredSample:
    """One value of a plain series."""

    target: str
    name: str
    labels: tuple[tuple[str, str], ...]
    at_ns: int
    value: float

    @property
    def series(self) -> Series:
        """The series that it belongs to."""
        return self.target, self.name, self.labels

    @property
    def series_key(self) -> str:
        """Unique name of the series in the store."""
        return "|".join([self.target, self.name, *(f"{key}={value}" for key, value in self.labels)])


@dataclass(frozen=True)
class ChangeEvent:
    """Something about a target changed, or happened to it; then `after` says what."""

    target: str
    at_ns: int
    kind: str
    subject: str
    before: str
    after: str

    @property
    def key(self) -> str:
        """The same event found again has the same key."""
        return f"{self.target}|{self.kind}|{self.subject}|{self.at_ns // 10**9}|{self.after}"[:400]


@dataclass(frozen=True)
class StoredRegression:
    """A regression, where it belongs, and what is known of its cause."""

    run_key: str
    target: str
    rank: str
    phase: str
    regression: Regression
    split: tuple[Mapping[str, Any], ...] = field(hash=False)
    causes: tuple[Mapping[str, Any], ...] = field(hash=False)
    physical_bound: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Replaced:
    """A target runs in another configuration since `at_ns`: what is open of the ones before is over."""

    target: str
    fingerprint: str
    at_ns: int


@dataclass
class Unit:
    """All of one turn; empty lists where there is nothing."""

    at_ns: int
    runs: list[Run] = field(default_factory=list)
    rings: list[RingPosition] = field(default_factory=list)
    windows: list[StoredWindow] = field(default_factory=list)
    levels: list[StoredLevel] = field(default_factory=list)
    samples: list[StoredSample] = field(default_factory=list)
    events: list[ChangeEvent] = field(default_factory=list)
    facts: list[StoredFact] = field(default_factory=list)
    regressions: list[StoredRegression] = field(default_factory=list)
    replaced: list[Replaced] = field(default_factory=list)
    profiles: list[StoredProfile] = field(default_factory=list)
    states: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    status: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows it has for the store, without the kernels of profiles."""
        return sum(len(rows) for rows in vars(self).values() if isinstance(rows, list | dict))

    def shed(self) -> int:
        """Give up the measurements, keep what was found and where reading goes on; gives how many were dropped."""
        dropped = len(self.windows) + len(self.levels) + len(self.samples)
        self.windows, self.levels, self.samples = [], [], []
        return dropped


def merged(older: Unit, newer: Unit) -> Unit:
    """Two units as one, which leaves the store as the two would, one after the other."""
    facts = {(fact.target, fact.subject): fact for fact in older.facts + newer.facts}
    # Of each target the last alone: the ones before would end what is open of a configuration that came back since.
    replaced = {one.target: one for one in older.replaced + newer.replaced}
    return Unit(
        at_ns=newer.at_ns,
        # One with an environment, and one without, which would not take it away.
        runs=list({(run.key, bool(run.environment)): run for run in older.runs + newer.runs}.values()),
        rings=list({ring.key: ring for ring in older.rings + newer.rings}.values()),
        windows=older.windows + newer.windows,
        levels=older.levels + newer.levels,
        samples=older.samples + newer.samples,
        events=older.events + newer.events,
        facts=list(facts.values()),
        regressions=older.regressions + newer.regressions,
        replaced=list(replaced.values()),
        profiles=older.profiles + newer.profiles,
        states={**older.states, **newer.states},
        status={**older.status, **newer.status},
    )
