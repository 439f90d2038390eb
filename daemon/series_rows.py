"""A series while it is read: rows packed in memory, sorted by time, and checked for what cannot be used."""

import math
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from cyclewatch.daemon.printable import shown
from cyclewatch.detectors.change_points.covariates import FEATURES, Covariates, usable_values
from cyclewatch.detectors.phases import Bools, Floats, Integers, Phase

MAX_PHASES = 64

Time = str | int | float | None
"""A time as it stands in the file."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SeriesFileError(Exception):
    """A file that cannot be used; the message names file, line and mend."""


@dataclass(frozen=True)
class Series:
    """A series of n rows, as in its file.

    `values`, shape (n,), are NaN where they cannot be used. `order`, shape (m,), are the rows in order of time, without
    those that a later one with the same time replaces. `times` has the n times, or is None.
    """

    values: Floats
    order: Integers
    times: Sequence[Time] | None
    covariates: Covariates | None
    warnings: tuple[str, ...]

    def time(self, row: int) -> Time:
        """The time of a row, as in the file."""
        return None if self.times is None else self.times[row]


class _Times(Sequence[Time]):
    """Times as text in one piece of memory: ten million strings would take ten times as much."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        self._bytes += text.encode()
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 (the signature of a sequence; slices are not used)
        text = self._bytes[self._ends[row] : self._ends[row + 1]].decode()
        with suppress(ValueError):
            return int(text)
        number = _number_or_none(text)
        return number if number is not None and math.isfinite(number) else text or None


class _Clock:
    """What times are sorted by: numbers, or microseconds since 1970, as the first time that is either is written.

    NaN for what is strange. Naive ISO times are taken as UTC.
    """

    def __init__(self) -> None:
        self.keys = array("d")
        self._dates: bool | None = None

    def append(self, time: object) -> None:
        number = _number_or_none(time)
        key = _instant(time) if number is None or not math.isfinite(number) else number
        dated = number is None
        if not math.isnan(key) and self._dates is None:
            self._dates = dated
        self.keys.append(key if dated == self._dates else math.nan)


def _number_or_none(time: object) -> float | None:
    if isinstance(time, bool) or not isinstance(time, str | int | float):
        return None
    try:
        return float(time)
    except (ValueError, OverflowError):
        return None


def _instant(time: object) -> float:
    if not isinstance(time, str):
        return math.nan
    try:
        moment = datetime.fromisoformat(time.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return float((moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        return math.nan


class Rows:
    """What was read so far, packed; `columns` are those of the file, by the names that are known.

    `numbers` are added to as they are read, a number a row in each of these columns.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.numbers = {name: array("d") for name in ("value", *FEATURES) if name in columns}
        self.times: _Times | list[Time] | None = _Times() if "time" in columns else None
        self.clock = _Clock()
        self.phases = array("b")
        self.phase_names: dict[str, int] = {}
        self.has_phases = "phase" in columns

    def add_time(self, text: str) -> None:
        """Take one time as it is written."""
        assert isinstance(self.times, _Times)
        self.times.append(text.strip())
        self.clock.append(text)

    def take_times(self, times: list[Time]) -> None:
        """Take all times."""
        self.times = times
        for time in times:
            self.clock.append(time)

    def add_phase(self, name: str) -> None:
        """Take one phase.

        Raises:
            SeriesFileError: there are too many.
        """
        name = name.strip() or Phase.OTHER.value
        if name not in self.phase_names and len(self.phase_names) == MAX_PHASES:
            raise SeriesFileError(f"more than {MAX_PHASES} phases: is this column the kind of work?")
        self.phases.append(self.phase_names.setdefault(name, len(self.phase_names)))

    def series(self, warnings: list[str]) -> Series:
        """All of it, sorted by time, with what had to be left out."""
        values = np.array(self.numbers["value"])
        finite = np.isfinite(values)
        values = np.where(finite, values, np.nan)
        if len(values) == 0:
            warnings.append("there are no values")
        elif not finite.all():
            warnings.append(f"{_count(~finite)} of {len(values)} values are empty or not finite: left out")
        covariates = self._covariates(len(values))
        if covariates is not None:
            unusable = finite & ~usable_values(values, covariates)
            if unusable.any():
                warnings.append(
                    f"{_count(unusable)} of {len(values)} values are not above 0, or their load is not known: left out"
                )
            values = np.where(unusable, np.nan, values)
        order = np.arange(len(values))
        if self.times is not None:
            order = _in_order(np.array(self.clock.keys), self.times, warnings)
        return Series(values, order, self.times, covariates, tuple(warnings))

    def _covariates(self, n: int) -> Covariates | None:
        load = {name: np.array(self.numbers[name]) for name in FEATURES if name in self.numbers}
        if not load and not self.has_phases:
            return None
        if not self.has_phases:
            return Covariates(np.zeros(n, np.int64), ("",), load)
        return Covariates(np.array(self.phases, np.int64), tuple(self.phase_names), load)


def _count(which: Any) -> int:  # noqa: ANN401 (an array of truth values)
    return int(np.count_nonzero(which))


def _in_order(keys: Floats, times: Sequence[Time], warnings: list[str]) -> Integers:
    """Rows in order of their keys, shape (m,): strange times stay behind the row before, of equal ones the last."""
    rows = np.arange(len(keys))
    strange = np.isnan(keys)
    if strange.any():
        row = int(np.argmax(strange))
        warnings.append(
            f"{_count(strange)} of {len(keys)} times are neither numbers nor ISO 8601 like the others, the first "
            f"{shown(times[row] or '')} at row {row}: left where they are"
        )
    last_known = np.maximum.accumulate(np.where(strange, -1, rows))
    filled = np.where(last_known >= 0, keys[last_known], -np.inf)
    back = np.flatnonzero(filled[1:] < filled[:-1])
    if len(back):
        warnings.append(f"times go back, first at row {back[0] + 1}: sorted by time")
    order: Integers = np.argsort(filled, kind="stable")
    order = order[_last_of_equal(filled[order], strange[order], order, times)]
    if len(order) < len(keys):
        warnings.append(f"rows left out because a later row has the same time: {len(keys) - len(order)}")
    return order


def _last_of_equal(keys: Floats, strange: Bools, order: Integers, times: Sequence[Time]) -> Bools:
    """Which rows to keep, shape (n,), of rows in `order`, which have sorted keys: the last of those with equal times.

    Large numbers may have equal keys and differ as written.
    """
    keep = np.ones(len(keys), np.bool_)
    latest: dict[Time, int] = {}
    run_end = -1
    for position in (int(one) for one in np.flatnonzero(keys[1:] == keys[:-1])):
        if position != run_end:
            latest = {} if strange[position] else {times[int(order[position])]: position}
        run_end = position + 1
        if strange[run_end]:
            continue
        time = times[int(order[run_end])]
        if time in latest:
            keep[latest[time]] = False
        latest[time] = run_end
    return keep
