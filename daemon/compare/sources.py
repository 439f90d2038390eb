"""What the words of `cyclewatch compare` mean: files, stored profiles, runs, regressions, stretches of time."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, select

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import Profile, ProfileError
from cyclewatch.collectors.profiles.unpack import Limits, unpacked
from cyclewatch.collectors.records import Records, RingIdentity, joined
from cyclewatch.collectors.ring import MAGIC, RingError, RingReader
from cyclewatch.collectors.suspicion_records import SuspicionReport
from cyclewatch.collectors.suspicion_report import (
    SuspicionReportError,
    looks_like_suspicion_report,
    read_suspicion_report,
)
from cyclewatch.daemon.demo.recording import RecordingError, load
from cyclewatch.daemon.printable import printable, shown
from cyclewatch.daemon.store import row_number
from cyclewatch.daemon.store.history import RegressionView, StoreHistory
from cyclewatch.daemon.store.models import RunRow, WindowRow
from cyclewatch.daemon.store.profile_records import StoredProfile
from cyclewatch.daemon.store.profiles import ProfileHistory
from cyclewatch.daemon.store.unit import Run
from cyclewatch.daemon.time_words import instant_ns

_XZ = b"\xfd7zXZ\0"
_NEAR_REGRESSION_NS = 600 * 10**9
_MEND = (
    "give a file, profile:NUMBER, run:KEY, regression:NUMBER alone, or a stretch of time as "
    "2026-11-21T10:00/2026-11-21T11:00 or -2h/-1h"
)


class SourceError(ValueError):
    """What was named cannot be compared; the message is one sentence that names it and the mend."""


@dataclass(frozen=True)
class ProfileSource:
    """A kernel profile from a file."""

    label: str
    profile: Profile


@dataclass(frozen=True)
class StoredProfileSource:
    """A kernel profile from the store, with its kernels."""

    label: str
    stored: StoredProfile
    fingerprint: str


@dataclass(frozen=True)
class ReportSource:
    """A report that compares two runs by itself."""

    label: str
    report: SuspicionReport


@dataclass(frozen=True)
class CyclesSource:
    """The cycles of one scheduler, from its ring or a recording."""

    label: str
    identity: RingIdentity
    records: Records


@dataclass(frozen=True)
class TimeSource:
    """Stored time, from `from_ns` up to but not including `to_ns` (UTC); of any target, or the one of `run`."""

    label: str
    from_ns: int
    to_ns: int
    run: Run | None = None


@dataclass(frozen=True)
class RegressionSource:
    """A stored regression: the time before it and the time in it."""

    label: str
    view: RegressionView
    before: TimeSource
    after: TimeSource


Source = ProfileSource | StoredProfileSource | ReportSource | CyclesSource | TimeSource | RegressionSource


class Sources:
    """Finds what a word names. `store` opens the database, when it is first needed; `now_ns` is UTC.

    Raises (`find`):
        SourceError: there is no such thing, or it cannot be read.
        StoreError: the database cannot be opened.
        SQLAlchemyError: it does not answer.
    """

    def __init__(self, store: Callable[[], Engine], now_ns: int) -> None:
        self._store = store
        self._now_ns = now_ns

    def find(self, word: str) -> Source:
        """The thing that `word` names."""
        kind, _, name = word.partition(":")
        if kind == "profile" and name:
            return self._profile(word, name)
        if kind == "run" and name:
            return self._run(word, name)
        if kind == "regression" and name:
            return self._regression(word, name)
        path = Path(word)
        try:
            is_there = path.exists()
        except (OSError, ValueError):
            is_there = False
        if is_there:
            return _file(path)
        first, slash, last = word.partition("/")
        begin, end = instant_ns(first, self._now_ns), instant_ns(last, self._now_ns)
        if slash and begin is not None and end is not None:
            if max(abs(begin), abs(end)) > row_number.LARGEST:  # the years 1677 to 2262
                raise SourceError(f"{printable(word)}: begins or ends in another age: is the year right?")
            if begin >= end:
                raise SourceError(f"{printable(word)}: ends before it begins: put the earlier time first")
            return TimeSource(printable(word), begin, end)
        raise SourceError(f"{shown(word)}: there is no such file, and it is nothing else that is known: {_MEND}")

    def _profile(self, word: str, name: str) -> StoredProfileSource:
        number = _number(name, "profiles list")
        view = ProfileHistory(self._store()).profile(number)
        if view is None:
            raise SourceError(f"{printable(word)}: no such profile; see `cyclewatch profiles list`")
        if not view.profile.kernels:
            why = printable(view.profile.detail, 200) or "they are no longer kept"
            raise SourceError(
                f"{printable(word)}: has no kernels ({why}); choose another of `cyclewatch profiles list`"
            )
        return StoredProfileSource(printable(word), view.profile, view.fingerprint)

    def _run(self, word: str, name: str) -> TimeSource:
        runs = StoreHistory(self._store()).runs()
        found = [run for run in runs if run.key == name] or [run for run in runs if run.key.startswith(name)]
        if not found:
            latest = ", ".join(run.key for run in runs[-3:]) or "none"
            raise SourceError(f"{printable(word, 200)}: no such run; the latest are {printable(latest, 400)}")
        if len(found) > 1:
            keys = ", ".join(run.key for run in found[:3])
            raise SourceError(f"{printable(word, 200)}: {len(found)} runs begin so ({printable(keys, 400)}): give more")
        (run,) = found
        return TimeSource(printable(word), run.started_at_ns, run.last_seen_ns + 1, run)

    def _regression(self, word: str, name: str) -> RegressionSource:
        number = _number(name, "regressions list")
        view = StoreHistory(self._store()).regression(number)
        if view is None:
            raise SourceError(f"{printable(word)}: no such regression; see `cyclewatch regressions list`")
        began = view.started_at_ns
        end = view.ended_at_ns or max(view.detected_at_ns, began + _NEAR_REGRESSION_NS)
        last_ns = self._last_window_ns(view)
        before = TimeSource(f"before {printable(word)}", last_ns - _NEAR_REGRESSION_NS, began)
        after = TimeSource(printable(word), began, min(end, began + _NEAR_REGRESSION_NS))
        return RegressionSource(printable(word), view, before, after)

    def _last_window_ns(self, view: RegressionView) -> int:
        """When its series was last seen before it began: a server may have been down in between."""
        query = (
            select(WindowRow.start_ns)
            .join(RunRow, RunRow.id == WindowRow.run_id)
            .where(
                RunRow.node == view.node,
                RunRow.target == view.target,
                WindowRow.rank == view.rank,
                WindowRow.phase == view.phase,
                WindowRow.start_ns < view.started_at_ns,
            )
            .order_by(WindowRow.start_ns.desc())
            .limit(1)
        )
        with self._store().connect() as connection:
            last_ns = connection.execute(query).scalar()
        return view.started_at_ns if last_ns is None else int(last_ns)


def _number(text: str, command: str) -> int:
    if not text.isdecimal() or len(text) > 18:  # noqa: PLR2004 (what databases can hold)
        raise SourceError(f"{shown(text)} is no number: take one of `cyclewatch {command}`")
    return int(text)


def _file(path: Path) -> Source:
    label = printable(str(path))
    try:
        with unpacked(path, Limits()) as chunks:
            head = next(chunks, b"")
        if head.startswith(MAGIC):
            return _ring(path, label)
        if head.startswith(_XZ):
            return _recording(path, label)
        if looks_like_suspicion_report(head):
            return ReportSource(label, read_suspicion_report(path))
        return ProfileSource(label, read_profile(path))
    except ProfileError as error:
        text = str(error)
        raise SourceError(text if text.startswith(label) else f"{label}: {text}") from None
    except (SuspicionReportError, RingError, RecordingError) as error:
        raise SourceError(str(error)) from None


def _ring(path: Path, label: str) -> CyclesSource:
    try:
        reader = RingReader(path)
        try:
            # Twice, since the newest record is given out at the second look only.
            parts = [reader.read(reader.capacity).records for _ in range(2)]
            return CyclesSource(label, reader.identity, joined(parts))
        finally:
            reader.close()
    except OSError as error:
        raise SourceError(f"{label}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def _recording(path: Path, label: str) -> CyclesSource:
    recording = load(path)
    try:
        identity = RingIdentity.parse(path.stem, json.dumps(recording.identity).encode())
    except ValueError as error:
        raise SourceError(f"{label}: not a recording of cycles: {error}") from None
    return CyclesSource(label, identity, recording.records)
