"""What is wrong with a profile, and whether it may count as evidence."""

import re

import numpy as np

from cyclewatch.collectors.profiles.activities import NONE, Activities, Integers
from cyclewatch.collectors.profiles.calls import Calls
from cyclewatch.collectors.profiles.records import Flaw, FlawKind, KernelKind, Profile
from cyclewatch.collectors.profiles.steps import Cut

CLOCK_TOLERANCE_NS = 1_000_000
"""Host and device agree within a microsecond in every trace seen."""
LONGEST_PAUSE_NS = 60 * 10**9
"""A capture lasts a fraction of a second."""
LOST_RATIO = 0.001
"""Of the launches; none is lost in any trace seen."""
MISSING_RATIO = 0.02
"""Of the time that a table says its rows are of; figures are printed with three digits."""

_DROPPED = re.compile(rb"drop|\blost\b|out of (?:buffer|memory)|overflow", re.IGNORECASE)


def validity(profile: Profile, *, expect_pid: int | None = None, on_gpu: bool = True) -> tuple[str, ...]:
    """Why this profile cannot be evidence: one sentence a reason, none where it can.

    Args:
        profile: what was read.
        expect_pid: the process that was to be captured; a file that names other processes only is refused.
        on_gpu: kernels are expected; without a GPU the operators of the CPU stand for them.
    """
    refused = {FlawKind.INCOMPLETE, FlawKind.DROPPED, FlawKind.CLOCK_JUMP}
    reasons = [flaw.text for flaw in profile.flaws if flaw.kind in refused]
    if on_gpu:
        reasons += [flaw.text for flaw in profile.flaws if flaw.kind is FlawKind.NO_KERNELS]
    elif not any(use.kind is KernelKind.CPU_OP for use in profile.kernels):
        reasons.append("no operator of the CPU in it")
    if expect_pid is not None and profile.pids and expect_pid not in profile.pids:
        named = ", ".join(str(pid) for pid in profile.pids[:4])
        reasons.append(f"a profile of process {named}, not of {expect_pid}")
    return tuple(reasons)


def no_kernels(device: Activities, calls: Calls) -> list[Flaw]:
    """Nothing ran on a GPU, or nothing of it was recorded."""
    if device.is_kernel.any():
        return []
    launches = int(calls.starts_kernels.sum())
    why = f", although {launches} launches are: the records of the GPU were lost" if launches else ""
    return [Flaw(FlawKind.NO_KERNELS, f"no GPU kernel is recorded in it{why}")]


def lost_records(device: Activities, calls: Calls) -> list[Flaw]:
    """Launches without a kernel; those at the end of a window never have one."""
    start_ns = calls.start_ns[calls.starts_kernels]
    recorded = np.isin(calls.correlation[calls.starts_kernels], device.correlation)
    if not recorded.any():
        return []
    inside = start_ns <= start_ns[recorded].max()
    lost, count = int((inside & ~recorded).sum()), int(inside.sum())
    if lost <= LOST_RATIO * count:
        return []
    text = f"{lost} of {count} launches have no kernel: records were dropped, or a graph was being captured"
    return [Flaw(FlawKind.DROPPED, text)]


def logged(*lists: bytes) -> list[Flaw]:
    """The profiler itself says so, in the lists of warnings and errors (JSON) that it leaves in the trace."""
    if any(_DROPPED.search(one) for one in lists):
        return [Flaw(FlawKind.DROPPED, "the profiler noted in the trace that it dropped records")]
    return []


def clocks(activities: Activities, called_ns: Integers) -> list[Flaw]:
    """The clocks of host and device differ.

    Args:
        activities: of shape (n,).
        called_ns: the beginning of the call that launched each, or `NONE`; shape (n,).
    """
    early_ns = np.where(called_ns == NONE, 0, called_ns - activities.start_ns)
    early = int((early_ns > CLOCK_TOLERANCE_NS).sum())
    if not early:
        return []
    by = f"{int(early_ns.max()) / 1e6:.0f} ms"
    text = f"{early} activities begin up to {by} before they were launched: the clocks of host and GPU disagree"
    return [Flaw(FlawKind.CLOCK_JUMP, text)]


def pauses(start_ns: Integers, end_ns: Integers) -> list[Flaw]:
    """The clock jumped while it was recorded.

    Args:
        start_ns: of everything in the file, shape (n,), in any order.
        end_ns: the ends, in the same order.
    """
    order = np.argsort(start_ns)
    reach_ns = np.maximum.accumulate(end_ns[order])
    longest_ns = int((start_ns[order][1:] - reach_ns[:-1]).max(initial=0))
    if longest_ns <= LONGEST_PAUSE_NS:
        return []
    text = f"nothing at all is recorded for {longest_ns / 1e9:.0f} s in the middle: did the clock jump?"
    return [Flaw(FlawKind.CLOCK_JUMP, text)]


def outside_of_steps(device: Activities, cut: Cut) -> list[Flaw]:
    """Kernels that belong to no step, and steps that are cut less well than by the device's marks."""
    if not cut.marks or not len(device):
        return []
    found = []
    outside, count = int((device.is_kernel & (cut.step == NONE)).sum()), int(device.is_kernel.sum())
    if outside:
        text = f"{outside} of {count} kernels lie outside of the steps: they count in the totals and in no phase"
        found.append(Flaw(FlawKind.INEXACT, text))
    if cut.by_launch:
        text = "the GPU has no marks of steps: a step holds the kernels that were launched in it"
        found.append(Flaw(FlawKind.INEXACT, text))
    return found


def missing_rows(sum_ns: float, whole_ns: float) -> list[Flaw]:
    """A table whose rows are not all there; `whole_ns` is the time that it says they are of."""
    if whole_ns <= 0 or sum_ns >= (1 - MISSING_RATIO) * whole_ns:
        return []
    share = sum_ns / whole_ns
    return [Flaw(FlawKind.INCOMPLETE, f"rows are missing: those that are there make {share:.0%} of the time")]


def surplus_rows(sum_ns: float, whole_ns: float) -> list[Flaw]:
    """A table that lists more than the time that it says its rows are of."""
    if whole_ns <= 0 or sum_ns <= (1 + MISSING_RATIO) * whole_ns:
        return []
    text = f"the rows make {sum_ns / whole_ns:.0%} of the time: one of them is no kernel but a span that holds others"
    return [Flaw(FlawKind.INCOMPLETE, text)]
