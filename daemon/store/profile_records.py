"""Kernel profiles as they flow to the store and from it; apart from SQL, which the reader of a trace does without."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ProfileState(StrEnum):
    """What came of a profile."""

    TAKING = "taking"
    KEPT = "kept"
    REFUSED = "refused"
    """It was taken, or ordered at least, and is not valid; `detail` says why."""


@dataclass(frozen=True)
class StoredKernel:
    """All calls of one kernel in one phase. `key` is the kernel's identity; times None where they are not known."""

    key: str
    name: str
    family: str
    kind: str
    device: str
    phase: str
    calls: int
    total_ns: int
    min_ns: int | None
    max_ns: int | None
    median_ns: int | None
    std_ns: float | None


@dataclass(frozen=True)
class StoredProfile:
    """One profile, or the attempt at one; the same `key` again replaces it. Times are UTC nanoseconds.

    `began_at_ns` to `ended_at_ns` is the whole time in which the server was exposed to it. `run_key` is empty for a
    process that is no server of SGLang's. `kernels` is None where they are stored already or there are none.
    """

    key: str
    run_key: str
    target: str
    rank: str
    pid: int
    reason: str
    method: str
    state: ProfileState
    began_at_ns: int
    ended_at_ns: int | None = None
    detail: str = ""
    totals: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cost: Mapping[str, Any] = field(default_factory=dict, hash=False)
    warnings: tuple[str, ...] = ()
    kernels: tuple[StoredKernel, ...] | None = None


@dataclass(frozen=True)
class ProfileView:
    """A stored profile with its number and the fingerprint of its run, which is empty where it has none."""

    id: int
    fingerprint: str
    profile: StoredProfile
