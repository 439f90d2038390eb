"""A daemon that is killed again and again while it forms incidents: none is lost, and none is told twice."""

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.daemon.alerts.message_json import message_of
from cyclewatch.daemon.clock import ScaledClock
from incident_daemons import SINKS, Daemons
from made_incidents import START_NS, finding

_SPEED = 60.0
_KILLS = 8
_EACH = 8
_TIMEOUT_S = 120
_PROGRAM = Path(__file__).parents[1] / "passes_process.py"


def test_each_is_told_once_from_beginning_to_end_however_often_the_daemon_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    daemons = Daemons(f"sqlite:///{tmp_path / 'a.db'}")
    origin_ns = time.monotonic_ns()
    clock = ScaledClock(Now(0, START_NS), origin_ns, _SPEED)
    command = [sys.executable, str(_PROGRAM), str(daemons.engine.url), str(origin_ns), str(_SPEED)]
    environment = {**os.environ, "PYTHONPATH": str(_PROGRAM.parent)}
    for round_number in range(_KILLS + 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                daemons.clock.now_ns = clock.now().wall_ns
                if round_number < _KILLS:
                    _change(daemons, round_number)
                    time.sleep(chance.uniform(0.0, 0.6))
                else:
                    _until_told(daemons)
            finally:
                process.kill()
    told = defaultdict[tuple[str, str], list[str]](list)
    for row in daemons.outbox():
        told[row.thread, row.sink].append(message_of(row.message).state.value)
    assert set(map(tuple, told.values())) == {("opened", "resolved")}
    assert len(told) == _KILLS * _EACH * len(SINKS.sinks)
    daemons.engine.dispose()


def _change(daemons: Daemons, round_number: int) -> None:
    """New regressions, of a node each; those of two rounds ago end."""
    now_ns = daemons.clock.now_ns
    for number in range(_EACH):
        key = f"r{round_number}-{number}"
        daemons.add(finding(key, node=key, started_at_ns=now_ns), causes=())
        if round_number >= 2:
            daemons.end(f"r{round_number - 2}-{number}")


def _until_told(daemons: Daemons) -> None:
    for round_number in (_KILLS - 2, _KILLS - 1):
        for number in range(_EACH):
            daemons.end(f"r{round_number}-{number}")
    deadline_s = time.monotonic() + _TIMEOUT_S
    while len(daemons.outbox()) < 2 * _KILLS * _EACH * len(SINKS.sinks) and time.monotonic() < deadline_s:
        time.sleep(0.2)
