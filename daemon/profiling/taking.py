"""Taking one profile: from the order to the statistics of its kernels, by one way or the other."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import structlog

from cyclewatch.collectors.kineto.captures import NOT_OURS, Capture, CaptureError, Exposure, Failure, check_room
from cyclewatch.collectors.kineto.endpoint import Endpoint
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.collectors.kineto.protocol import CPU_ACTIVITIES, GPU_ACTIVITIES
from cyclewatch.collectors.processes import ProcessTree
from cyclewatch.collectors.start_profile import StartedProfile, StartProfileError, is_of_rank
from cyclewatch.collectors.trace_file import TraceFileError, open_trace
from cyclewatch.config.settings import Profiling
from cyclewatch.daemon.profiling.reduce import Reduction, ReductionError, reduce_apart

log = structlog.get_logger(__name__)

_LOOK_S = 0.05
_STEPS = 10
_START_PROFILE_WAIT_NS = 180 * 10**9
_STOP_PROFILE_S = 60
_STOP_PROFILE_HURRIED_S = 4
"""How long a daemon that stops has for it: the sampler is given 5 s."""


class TakingError(Exception):
    """No valid profile came of it; one sentence.

    `counts` tells that the next attempt is likely to end so too, `ended` that the process has.
    """

    def __init__(self, text: str, *, counts: bool = True, ended: bool = False) -> None:
        super().__init__(text)
        self.counts = counts
        self.ended = ended


class Exposed(Protocol):
    """Told of the time in which the server is exposed, as it begins and ends (monotonic nanoseconds)."""

    def began(self, at_ns: int) -> None:
        """From now on."""
        ...

    def ended(self, at_ns: int) -> None:
        """It is over."""
        ...


@dataclass(frozen=True)
class Tools:
    """What taking needs of the world. `stopping` ends every wait."""

    settings: Profiling
    proc: Path
    clock_ns: Callable[[], int]
    stopping: threading.Event


def take_by_channel(
    tools: Tools, endpoint: Endpoint, process: KinetoProcess, duration_ms: int, exposed: Exposed, *, gpu: bool
) -> tuple[Reduction, Capture]:
    """Record `duration_ms` of a process through Kineto's channel; the caller removes the file.

    Raises:
        TakingError: no file, or none that is valid. Nothing is left then.
    """
    capture = Capture(
        process,
        endpoint.directory,
        secrets.token_hex(6),
        duration_ms,
        GPU_ACTIVITIES if gpu else CPU_ACTIVITIES,
        tools.clock_ns,
    )
    try:
        check_room(endpoint.directory, duration_ms)
        endpoint.attach(process.pid, capture)
        try:
            _wait(tools, capture, exposed)
        finally:
            endpoint.detach(process.pid)
            if capture.behind:
                endpoint.catch_up(process.pid)
        return _reduced(tools, capture.path, process.user, process.own_pid, gpu=gpu), capture
    except TakingError:
        remove(capture)
        raise
    except (CaptureError, TraceFileError, ReductionError, OSError) as error:
        remove(capture)
        failure = error.failure if isinstance(error, CaptureError) else None
        raise TakingError(str(error), counts=failure not in NOT_OURS, ended=failure is Failure.ENDED) from error


def _reduced(tools: Tools, path: Path, user: int, own_pid: int, *, gpu: bool) -> Reduction:
    descriptor = open_trace(path, user, tools.settings.max_file_bytes)
    try:
        return reduce_apart(descriptor, own_pid, gpu=gpu)
    finally:
        os.close(descriptor)


def remove(capture: Capture) -> None:
    """Remove the file of a capture; one that cannot be removed is removed at the next start."""
    with contextlib.suppress(OSError):
        capture.remove()


def _wait(tools: Tools, capture: Capture, exposed: Exposed) -> None:
    tree = ProcessTree(tools.proc)
    pid = capture.process.pid
    first = tree.stat(pid)
    began = False
    exposure: Exposure | None = None
    try:
        while exposure is None:
            if tools.stopping.wait(_LOOK_S):
                raise TakingError("the daemon is stopping", counts=False)
            if capture.handed_out_ns and not began:
                began = True
                exposed.began(capture.handed_out_ns)
            exposure = capture.check(alive=first is not None and lives(tree, pid, first.start_ticks))
    finally:
        if began:
            exposed.ended(tools.clock_ns())


def lives(tree: ProcessTree, pid: int, start_ticks: int) -> bool:
    """Whether the process that began at this clock tick still runs: not one that is dead and not yet reaped."""
    stat = tree.stat(pid)
    return stat is not None and not stat.ended and stat.start_ticks == start_ticks


@dataclass(frozen=True)
class Scheduler:
    """A scheduler of a server that is asked over HTTP: one of `ranks`, the process `pid` of `user`.

    `start_ticks` tells it from a later one with the same pid. Ranks of None are not known.
    """

    url: str
    pid: int
    start_ticks: int
    user: int
    tp_rank: int
    dp_rank: int | None
    pp_rank: int | None
    ranks: int


def take_by_start_profile(
    tools: Tools, scheduler: Scheduler, directory: Path, exposed: Exposed, *, gpu: bool
) -> Reduction:
    """Record some steps through SGLang's `/start_profile`; nothing is left of the files in `directory`.

    Raises:
        TakingError: the server refuses, or no valid file came.
    """
    started = StartedProfile(scheduler.url, directory, _STEPS, gpu=gpu)
    tree = ProcessTree(tools.proc)

    def gone() -> bool:
        return not lives(tree, scheduler.pid, scheduler.start_ticks)

    try:
        exposed.began(tools.clock_ns())
        try:
            files = _recorded(tools, started, scheduler, gone)
        finally:
            exposed.ended(tools.clock_ns())
        return _reduced(tools, _file_of(scheduler, files), scheduler.user, scheduler.pid, gpu=gpu)
    except (StartProfileError, TraceFileError, ReductionError, OSError) as error:
        if gone():
            text = f"process {scheduler.pid} ended before its profile was complete"
            raise TakingError(text, counts=False, ended=True) from error
        if tools.stopping.is_set():
            raise TakingError("the daemon is stopping", counts=False) from error
        raise TakingError(str(error)) from error
    finally:
        started.remove()


def _recorded(
    tools: Tools, started: StartedProfile, scheduler: Scheduler, gone: Callable[[], bool]
) -> tuple[Path, ...]:
    """The files of all ranks; a server that lives and has not written them records no more when this is over."""
    until_ns = tools.clock_ns() + _START_PROFILE_WAIT_NS
    # Authorities are 2 MB, of no use for plain http.
    with httpx.Client(trust_env=False, verify=scheduler.url.startswith("https:")) as client:
        try:
            started.begin(client)
            return started.wait(
                scheduler.ranks,
                lambda: tools.clock_ns() > until_ns or tools.stopping.is_set() or gone(),
                lambda: tools.stopping.wait(1.0),
            )
        except (StartProfileError, OSError):
            if started.begun and not gone():
                _stop(tools, started, scheduler, client, gone)
            raise


def _stop(
    tools: Tools, started: StartedProfile, scheduler: Scheduler, client: httpx.Client, gone: Callable[[], bool]
) -> None:
    """Stop the recording, and wait for what is written of it: a file that came later would stay."""
    timeout_s = _STOP_PROFILE_HURRIED_S if tools.stopping.is_set() else _STOP_PROFILE_S
    until_ns = tools.clock_ns() + timeout_s * 10**9
    try:
        started.stop(client, timeout_s)
    except StartProfileError as error:
        log.warning("a profile could not be stopped", reason=str(error))
    with contextlib.suppress(StartProfileError, OSError):
        started.wait(
            scheduler.ranks,
            lambda: tools.clock_ns() > until_ns or gone(),
            lambda: time.sleep(_LOOK_S),
        )


def _file_of(scheduler: Scheduler, files: tuple[Path, ...]) -> Path:
    ranks = {"TP": scheduler.tp_rank, "DP": scheduler.dp_rank, "PP": scheduler.pp_rank}
    for path in files:
        if is_of_rank(path.name, ranks):
            return path
    raise StartProfileError(f"/start_profile wrote no file of rank {scheduler.tp_rank}")
