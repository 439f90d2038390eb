"""What one turn of the pipeline leaves, made up: one of everything."""

from dataclasses import replace
from typing import Any

from cyclewatch.daemon.store.profile_records import ProfileState, StoredKernel, StoredProfile
from cyclewatch.daemon.store.unit import (
    ChangeEvent,
    RingPosition,
    Run,
    StoredFact,
    StoredLevel,
    StoredRegression,
    StoredSample,
    StoredWindow,
    Unit,
)
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.watching.shift_watch import Kind
from cyclewatch.detectors.watching.tracking import Regression, State
from cyclewatch.detectors.windows import cells_of
from simulated import cycles

SECOND = 10**9
RUN = Run("node|server|boot|1-2-3", "node", "server", 10, 20, "f00d", "0.5.23", "tiny", {"page_size": 1})
REGRESSION = Regression(
    key="abc",
    state=State.OPEN,
    direction=Direction.SLOWER,
    kind=Kind.LEVEL,
    started_at_ns=100 * SECOND,
    detected_at_ns=140 * SECOND,
    ended_at_ns=None,
    base=0.0,
    level=0.2,
    effect=0.22,
    ci=(0.2, 0.24),
    probability=0.9999,
)
KERNEL = StoredKernel("gemm<8>", "void gemm<(int)8>()", "gemm", "kernel", "0", "decode", 3, 30, 9, 11, 10, 1.0)


def profile(key: str = "p1", **changes: Any) -> StoredProfile:
    """A profile that was kept."""
    values: dict[str, Any] = {
        "run_key": RUN.key,
        "target": "server",
        "rank": "tp0",
        "pid": 100,
        "reason": "routine",
        "method": "kineto",
        "state": ProfileState.KEPT,
        "began_at_ns": 100 * SECOND,
        "ended_at_ns": 103 * SECOND,
        "totals": {"kernel_ns": 30},
        "cost": {"stall_ns": 5},
        "kernels": (KERNEL,),
        **changes,
    }
    return StoredProfile(key, **values)


def unit(number: int = 0, **changes: Any) -> Unit:
    """One of everything, all of it for second `number`."""
    (cell,) = cells_of(Phase.DECODE, cycles(50))
    at_ns = number * SECOND
    level = Level(at_ns, 0.01, 0.002, 50.0, 0.1, 50, 50, (0.5, 0.25))
    parts: dict[str, Any] = {
        "runs": [RUN],
        "rings": [RingPosition("1-2-3", 7 + number, 3)],
        "windows": [StoredWindow(RUN.key, "tp0", at_ns, 5 * SECOND, cell)],
        "levels": [StoredLevel(RUN.key, "tp0", "decode", level, suspected=False)],
        "samples": [StoredSample("server", "host.on_cpu_ratio", (("rank", "tp0"),), at_ns, 0.5)],
        "events": [ChangeEvent("server", at_ns, "restart", "server", "", "")],
        "facts": [StoredFact("node", "driver", "580.1", at_ns)],
        "regressions": [stored(REGRESSION)],
        "profiles": [profile()],
        "states": {"server|tp0|decode|f00d": {"version": 1, "number": number}},
        "status": {"targets": {"server": {"number": number}}},
        **changes,
    }
    return Unit(at_ns, **parts)


def stored(regression: Regression, **changes: Any) -> StoredRegression:
    found = StoredRegression(RUN.key, "server", "tp0", "decode", regression, ({"part": "launch"},), ({"kind": "x"},))
    return replace(found, **changes)
