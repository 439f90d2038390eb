"""From a trace to the statistics of its kernels, in a process of its own.

A trace of a second has megabytes, is written by another process, and is parsed under Python's lock: here it can take
neither the daemon's memory nor its time. As a command (`python -m cyclewatch.daemon.profiling.reduce PID gpu|cpu`) it
reads the trace from standard input, a regular file, and prints the result as JSON.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cyclewatch.collectors.profiles.records import FlawKind, Profile, ProfileError
from cyclewatch.daemon.store.profile_records import StoredKernel

_MEMORY_BYTES = 4 * 2**30
_CPU_S = 120
_TIMEOUT_S = 180.0
_NICE = 10
KERNELS_MAX = 4096
"""The longest kept of one profile; real ones have some hundred."""

NAME_CHARS_MAX = 4096
_TRACE = "/proc/self/fd/0"


class ReductionError(Exception):
    """The trace is not valid, or cannot be read; one sentence."""


@dataclass(frozen=True)
class Reduction:
    """What is kept of a trace."""

    totals: Mapping[str, Any]
    kernels: tuple[StoredKernel, ...]
    warnings: tuple[str, ...]


def reduce_apart(descriptor: int, own_pid: int, *, gpu: bool) -> Reduction:
    """The reduction of the open file `descriptor`, which process `own_pid` (as it sees itself) has written.

    Of a process without a GPU the operators of the CPU are kept.

    Raises:
        ReductionError: it is not a valid profile of that process, or takes too much memory or time.
    """
    command = [sys.executable, "-m", "cyclewatch.daemon.profiling.reduce", str(own_pid), "gpu" if gpu else "cpu"]
    try:
        done = subprocess.run(command, stdin=descriptor, capture_output=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603 (our own module)
    except subprocess.TimeoutExpired:
        raise ReductionError(f"the trace could not be read within {_TIMEOUT_S:.0f} s") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise ReductionError(f"reading the trace ended with {done.returncode}: too large, or damaged") from None
    if "refused" in answer:
        raise ReductionError(answer["refused"])
    kernels = tuple(StoredKernel(**kernel) for kernel in answer["kernels"])
    return Reduction(answer["totals"], kernels, tuple(answer["warnings"]))


def reduced(profile: Profile, own_pid: int, *, gpu: bool) -> Reduction:
    """What is kept of a profile.

    Raises:
        ReductionError: it is not valid, or another process's.
    """
    from cyclewatch.collectors.profiles.flaws import validity  # noqa: PLC0415 (the daemon itself does without)
    from cyclewatch.detectors.kernels import classify  # noqa: PLC0415

    if invalid := validity(profile, expect_pid=own_pid, on_gpu=gpu):
        raise ReductionError("; ".join(invalid))
    kernels = []
    for use in profile.kernels[:KERNELS_MAX]:
        identity = classify(use.name, use.kind.value)
        kernels.append(
            StoredKernel(
                key=_storable(identity.key),
                name=_storable(use.name),
                family=identity.family.value,
                kind=use.kind.value,
                device=_storable(use.device),
                phase=_storable(use.phase),
                calls=use.calls,
                total_ns=use.total_ns,
                min_ns=use.min_ns,
                max_ns=use.max_ns,
                median_ns=use.median_ns,
                std_ns=use.std_ns,
            )
        )
    totals = {
        **asdict(profile.totals),
        "device": profile.device,
        "steps": len(profile.steps),
        "recorded_at_ns": profile.started_at_ns,
    }
    warnings = [flaw.text for flaw in profile.flaws if gpu or flaw.kind is not FlawKind.NO_KERNELS]
    if len(profile.kernels) > KERNELS_MAX:
        warnings.append(f"only the {KERNELS_MAX} longest of {len(profile.kernels)} kernels are kept")
    return Reduction(totals, tuple(kernels), tuple(warnings))


def _storable(text: str) -> str:
    """A text that every database takes."""
    return text[:NAME_CHARS_MAX].replace("\0", "").encode(errors="replace").decode()


def main() -> int:
    """Read the trace from standard input, print its reduction, or why it is refused."""
    from cyclewatch.collectors.profiles.read import read_profile  # noqa: PLC0415 (the daemon itself does without)

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    os.nice(_NICE)
    try:
        answer = asdict(reduced(read_profile(Path(_TRACE)), int(sys.argv[1]), gpu=sys.argv[2] == "gpu"))
    except (ProfileError, ReductionError) as error:
        answer = {"refused": str(error).replace(_TRACE, "the trace")}
    except MemoryError:
        answer = {"refused": "the trace takes more memory than there is for it"}
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
