"""Calls of the CUDA or HIP runtime and driver, which launch what runs on the device."""

import re
from array import array
from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.profiles.activities import NEVER_NS, NONE, Bools, Integers

_KERNEL_LAUNCH = re.compile(r"Launch\w*(?:Kernel|Graph|Grid)|GraphLaunch|cuLaunch(?!Host)")


@dataclass(frozen=True, slots=True)
class Calls:
    """Columns of shape (m,), in order of correlation; times relative to the same instant as those of the activities."""

    correlation: Integers
    start_ns: Integers
    end_ns: Integers
    starts_kernels: Bools

    def __len__(self) -> int:
        return len(self.correlation)

    def of(self, correlation: Integers) -> Integers:
        """The call of each correlation, an index into the columns or `NONE`; shape (n,) to shape (n,)."""
        if not len(self):
            return np.full(len(correlation), NONE)
        at = np.minimum(np.searchsorted(self.correlation, correlation), len(self) - 1)
        return np.where((self.correlation[at] == correlation) & (correlation != NONE), at, NONE)

    def times_ns(self, call: Integers) -> tuple[Integers, Integers]:
        """Starts and ends of calls, given as by `of`; `NONE` where there is no call."""
        starts, ends = np.append(self.start_ns, NONE), np.append(self.end_ns, NONE)
        return starts[call], ends[call]  # NONE is the last


class CallRecorder:
    """Takes calls one by one, in any order."""

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in range(4))
        self._starts_kernels: dict[str, bool] = {}

    def add(self, name: str, correlation: int, start_ns: int, duration_ns: int) -> None:
        """One call; `name` is that of the function."""
        correlations, starts, durations, kernels = self._columns
        correlations.append(correlation)
        starts.append(start_ns)
        durations.append(duration_ns)
        if name not in self._starts_kernels:
            self._starts_kernels[name] = _KERNEL_LAUNCH.search(name) is not None
        kernels.append(self._starts_kernels[name])

    def first_ns(self) -> int:
        """The earliest start, or `NEVER_NS`."""
        return min(self._columns[1], default=NEVER_NS)

    def calls(self, origin_ns: int) -> Calls:
        """The columns, with times relative to `origin_ns`."""
        correlation, start_ns, duration_ns, kernels = (np.array(column, np.int64) for column in self._columns)
        order = np.argsort(correlation, kind="stable")
        start_ns = start_ns[order] - origin_ns
        return Calls(correlation[order], start_ns, start_ns + duration_ns[order], kernels[order] == 1)
