"""Which servers can be asked over HTTP."""

import os
from pathlib import Path

import pytest

from cyclewatch.collectors.discovery import Discovery
from cyclewatch.config.settings import Profiling, Target
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.profiling.channel import Channel
from cyclewatch.daemon.profiling.subjects import Subjects
from cyclewatch.daemon.profiling.taking import Scheduler
from simulated import cycles
from units import RUN
from watched import ring_identity

PID, BEGAN = 7, 100
URL = "http://127.0.0.1:30000"
SCHEDULER = Scheduler(
    url=URL, pid=PID, start_ticks=BEGAN, user=os.getuid(), tp_rank=0, dp_rank=1, pp_rank=None, ranks=1
)


@pytest.mark.parametrize(
    ("stat", "scheduler"),
    [
        (f"S 1 {'0 ' * 17}{BEGAN}", SCHEDULER),
        (f"S 1 {'0 ' * 17}{BEGAN + 1}", None),
        (f"Z 1 {'0 ' * 17}{BEGAN}", None),
        ("", None),
    ],
    ids=["the scheduler", "another process", "not reaped", "no process"],
)
def test_a_scheduler_is_asked_only_where_its_ring_tells_its_pid_here(
    tmp_path: Path, stat: str, scheduler: Scheduler | None
) -> None:
    """In another pid namespace the same number is some other process: its profile would be paid for, and refused."""
    if stat:
        (tmp_path / str(PID)).mkdir()
        (tmp_path / str(PID) / "stat").write_text(f"{PID} (sglang::schedul) {stat} {'0 ' * 30}\n")
    board, discovery = Board(), Discovery((Target.model_validate({"name": RUN.target, "url": URL}),))
    board.take(ring_identity(f"1-{PID}-{BEGAN}", pid=PID, dp_rank=1), RUN, cycles(3))
    channel = Channel(Profiling(socket_dir=tmp_path), tmp_path)
    (subject,) = Subjects(board, channel, discovery, tmp_path, over_http=True).ranks()
    assert subject.scheduler == scheduler
    assert subject.method == ("start_profile" if scheduler else "")
