"""Ours and its peers behind one function: a series in, the first index of every new level out.

Everyone runs with one setting for all tables: ours and Otava with their defaults, ruptures, which has no default
penalty, with 3 log(n) sigma^2 and sigma estimated from the series.
"""

import importlib
import importlib.metadata
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detect.series import Floats

OURS = "ours"
NOT_INSTALLED = "not installed"
MAD_TO_SIGMA = 1.4826
PENALTY = 3.0

Find = Callable[[Floats], list[int]]


@dataclass(frozen=True)
class Contestant:
    """One who looks for changes; `find` is None where it is not installed."""

    name: str
    version: str
    find: Find | None
    note: str = ""


def sigma_by_differences(values: Floats) -> float:
    """Standard deviation of the noise of `values`, shape (n,), from the median absolute difference of neighbours.

    What a user without a model of the noise does: changes of level touch few differences. It is too small where
    neighbours move together, by sqrt(1 - rho). Where half of the neighbours are equal it falls back on the standard
    deviation of the differences.
    """
    differences = np.diff(values)
    mad = float(np.median(np.abs(differences - np.median(differences))))
    return (MAD_TO_SIGMA * mad or float(np.std(differences)) or 1e-9) / math.sqrt(2)


def penalty(values: Floats) -> float:
    """The penalty of one change point of `values`, shape (n,)."""
    return PENALTY * math.log(len(values)) * sigma_by_differences(values) ** 2


def ours() -> Find:
    """The offline detection, with its defaults."""
    offline: Any = importlib.import_module("cyclewatch.detectors.change_points.offline")

    def find(values: Floats) -> list[int]:
        return [int(point.index) for point in offline.detect(values, offline.Settings()).change_points]

    return find


def ruptures(search: str) -> Find:
    """A search of ruptures with squared error as its cost and the rest by default: every fifth index is tried."""
    kind: Any = getattr(importlib.import_module("ruptures"), search)

    def find(values: Floats) -> list[int]:
        ends = kind(model="l2").fit(values).predict(pen=penalty(values))
        return [int(end) for end in ends[:-1]]  # the last one is the end of the series

    return find


def otava() -> Find:
    """Otava's own entry with its defaults. It takes a list: of an array it would see the whole in every window."""
    analysis: Any = importlib.import_module("otava.analysis")

    def find(values: Floats) -> list[int]:
        return [int(point.index) for point in analysis.compute_change_points(values.tolist())[0]]

    return find


MAKERS: tuple[tuple[str, str, Callable[[], Find], str], ...] = (
    (OURS, "cyclewatch", ours, "defaults"),
    ("Binseg", "ruptures", lambda: ruptures("Binseg"), "l2, penalty 3 log(n) sigma^2"),
    ("Pelt", "ruptures", lambda: ruptures("Pelt"), "l2, penalty 3 log(n) sigma^2"),
    ("Otava", "apache-otava", otava, "compute_change_points, defaults"),
)
NAMES = tuple(name for name, *_ in MAKERS)


def contestants(names: Sequence[str] = NAMES) -> list[Contestant]:
    """Those with the given names, in their order; what is not installed is there without a function."""
    found = []
    for name, distribution, make, note in MAKERS:
        if name not in names:
            continue
        try:
            version = f"{distribution} {importlib.metadata.version(distribution)}"
            found.append(Contestant(name, version, make(), note))
        except ImportError as error:
            found.append(Contestant(name, f"{distribution}: {NOT_INSTALLED}", None, str(error)))
    return found
