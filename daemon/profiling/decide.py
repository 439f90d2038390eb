"""When a profile is taken, and when no more are: decisions alone, no clock, no files."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from cyclewatch.config.settings import Profiling
from cyclewatch.detectors.costs.profile_cost import ProfileCost

DAY_S = 86_400.0
EXPOSURE_BEYOND_S = 3.0
"""How much longer than its recording a profile exposes the server: it is set up 1 s before, and written after it."""

_FAILURES_MAX = 3
_RECENT_S = 5.0


class Reason(StrEnum):
    """Why a profile is taken; in order of urgency."""

    ASKED = "asked"
    SUSPICION = "suspicion"
    BASELINE = "baseline"
    ROUTINE = "routine"


@dataclass(frozen=True)
class Policy:
    """The settings of profiling. Durations in seconds."""

    interval_s: float
    gap_s: float
    warmup_s: float
    max_queue: int
    max_duty: float
    max_stall_ns: int
    max_after_effect: float
    exposure_s: float

    @classmethod
    def of(cls, settings: Profiling, warmup_s: float) -> Self:
        """From the settings, and how long a server that has just started is left alone."""
        return cls(
            interval_s=settings.interval_s,
            gap_s=settings.suspicion_interval_s,
            warmup_s=warmup_s,
            max_queue=settings.max_queue,
            max_duty=settings.max_duty,
            max_stall_ns=int(settings.max_stall_ms * 1e6),
            max_after_effect=settings.max_after_effect,
            exposure_s=settings.duration_ms / 1000 + EXPOSURE_BEYOND_S,
        )


@dataclass(frozen=True)
class Candidate:
    """One rank of a server, as it is now. Seconds; ages are infinite for what never was.

    `reachable` tells that it can be asked for a profile at all, `free` that it records none at present. `spent_s` is
    the time of the last day in which its server was being profiled, `failures` how many attempts at this rank have
    failed in a row.
    """

    target: str
    rank: str
    reachable: bool
    free: bool
    up_s: float
    idle_s: float
    queue: int
    settled: bool
    suspected: bool
    age_s: float
    target_age_s: float
    spent_s: float
    failures: int


def obstacle(candidate: Candidate, policy: Policy) -> str:
    """What stands against a profile nobody asked for, whatever the reason; empty where nothing does."""
    gates = (
        (not candidate.reachable, "it cannot be asked: see `cyclewatch doctor`"),
        (not candidate.free, "another profile is being taken of it"),
        (candidate.failures >= _FAILURES_MAX, f"{candidate.failures} attempts in a row have failed"),
        (candidate.up_s < policy.warmup_s, "it has just started"),
        (candidate.idle_s > _RECENT_S, "it serves nothing at present"),
        (candidate.queue > policy.max_queue, f"{candidate.queue} requests wait"),
        (candidate.target_age_s < policy.gap_s, "the last profile of its server is too recent"),
        (candidate.spent_s + policy.exposure_s > policy.max_duty * DAY_S, "the time for a day is spent"),
    )
    return next((text for closed, text in gates if closed), "")


def reason_for(candidate: Candidate, policy: Policy) -> Reason | None:
    """Why one should be taken now, if there is a reason."""
    if not candidate.settled:
        return None
    if candidate.suspected:
        return Reason.SUSPICION
    if math.isinf(candidate.age_s):
        return Reason.BASELINE
    return Reason.ROUTINE if candidate.target_age_s >= policy.interval_s else None


def choose(candidates: Iterable[Candidate], policy: Policy) -> tuple[Candidate, Reason] | None:
    """The rank to take a profile of now, and why: the most urgent reason, then the longest without one."""
    order = list(Reason)
    wanted = [
        (order.index(reason), -one.age_s, one.target, one.rank, one, reason)
        for one in candidates
        if (reason := reason_for(one, policy)) is not None and not obstacle(one, policy)
    ]
    if not wanted:
        return None
    *_, candidate, reason = min(wanted, key=lambda entry: entry[:4])
    return candidate, reason


def broken_budget(cost: ProfileCost, policy: Policy) -> str:
    """How a profile cost more than it may, as a sentence; empty where it did not, or where nobody can tell."""
    if cost.stall_ns is not None and cost.stall_ns > policy.max_stall_ns:
        return (
            f"a profile made a cycle {cost.stall_ns / 1e6:.0f} ms longer than any before it, "
            f"more than the {policy.max_stall_ns / 1e6:.0f} ms of profiling.max_stall_ms"
        )
    effect = cost.after_effect
    if effect is not None and effect > policy.max_after_effect:
        return (
            f"cycles were surely {effect:.1%} longer after a profile than before it, "
            f"more than the {policy.max_after_effect:.1%} of profiling.max_after_effect"
        )
    return ""
