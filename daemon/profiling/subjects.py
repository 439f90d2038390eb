"""What a profile can be taken of: the ranks that are watched, and any other process that asks on the channel."""

import os
from dataclasses import dataclass
from pathlib import Path

from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.kineto.device import uses_gpu
from cyclewatch.collectors.kineto.peers import KinetoProcess
from cyclewatch.collectors.processes import ProcessTree
from cyclewatch.collectors.procfs import ProcessStat
from cyclewatch.collectors.records import RingIdentity
from cyclewatch.daemon.profiling.board import Board, RankView
from cyclewatch.daemon.profiling.channel import Channel
from cyclewatch.daemon.profiling.taking import Scheduler


@dataclass(frozen=True)
class Subject:
    """A process, and the ways to ask it: `process` on the channel, `scheduler` over HTTP; None where there is none.

    `view` is None for a process that is no scheduler of SGLang's.
    """

    target: str
    rank: str
    pid: int
    gpu: bool
    view: RankView | None
    process: KinetoProcess | None
    scheduler: Scheduler | None

    @property
    def method(self) -> str:
        """The first choice of the ways there are; empty for none."""
        return "kineto" if self.process else "start_profile" if self.scheduler else ""


class Subjects:
    """Finds them at the moment of the call. `over_http` tells whether servers may be asked over HTTP."""

    def __init__(self, board: Board, channel: Channel, discovery: Discovery, proc: Path, *, over_http: bool) -> None:
        self._board = board
        self._channel = channel
        self._discovery = discovery
        self._proc = proc
        self._over_http = over_http

    def ranks(self) -> list[Subject]:
        """All ranks that are watched."""
        views = self._board.ranks()
        processes = self._channel.processes()
        tree = ProcessTree(self._proc)
        urls = {server.target: server.url for server in self._discovery.servers()} if self._over_http else {}
        found = []
        for view in views:
            process = _process_of(view, processes, tree)
            url = urls.get(view.run.target)
            ranks = sum(other.run.target == view.run.target for other in views)
            found.append(
                Subject(
                    target=view.run.target,
                    rank=view.ring.rank,
                    pid=process.pid if process else view.ring.pid,
                    gpu=not view.ring.synchronous,
                    view=view,
                    process=process,
                    scheduler=self._scheduler(view, url, ranks, tree) if url and not process else None,
                )
            )
        return found

    def process(self, pid: int) -> Subject | None:
        """The process with this number, here or in its own pid namespace; None where none asks on the channel."""
        processes = self._channel.processes()
        process = next((one for one in processes if one.pid == pid), None)
        process = process or next((one for one in processes if one.own_pid == pid), None)
        if process is None:
            return None
        rank = next((one for one in self.ranks() if one.pid == process.pid and one.process), None)
        return rank or self._plain(process)

    def _plain(self, process: KinetoProcess) -> Subject:
        stat = ProcessTree(self._proc).stat(process.pid)
        name = stat.name if stat and stat.name.isprintable() else "process"
        gpu = uses_gpu(process.pid, self._proc)
        return Subject(f"{name}-{process.pid}", "", process.pid, gpu, None, process, None)

    def _scheduler(self, view: RankView, url: str, ranks: int, tree: ProcessTree) -> Scheduler | None:
        """None where the ring's pid is of another process here, as it is for a server in a pid namespace of its own."""
        ring = view.ring
        stat = tree.stat(ring.pid)
        if stat is None or stat.ended or not writes(ring, stat):
            return None
        try:
            user = os.stat(self._proc / str(ring.pid)).st_uid  # noqa: PTH116 (its error is all that is wanted)
        except OSError:
            return None
        return Scheduler(
            url=url,
            pid=ring.pid,
            start_ticks=stat.start_ticks,
            user=user,
            tp_rank=ring.tp_rank or 0,
            dp_rank=ring.dp_rank,
            pp_rank=ring.pp_rank,
            ranks=ranks,
        )


def _process_of(view: RankView, processes: tuple[KinetoProcess, ...], tree: ProcessTree) -> KinetoProcess | None:
    """The process that writes a ring: with the ring's pid in its own namespace, and begun at the same clock tick."""
    for process in processes:
        if process.own_pid == view.ring.pid:
            stat = tree.stat(process.pid)
            if stat is not None and writes(view.ring, stat):
                return process
    return None


def writes(ring: RingIdentity, stat: ProcessStat) -> bool:
    """Whether a process with a ring's pid is the one that writes it: both began at the same clock tick."""
    return str(stat.start_ticks) == ring.key.rpartition("-")[2]
