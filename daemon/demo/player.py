"""The player: a process that writes recorded cycles into a ring, at the pace of a faster clock.

It writes what was recorded and nothing else, through the writer that also runs inside SGLang.
"""

import argparse
import importlib
import os
import time
from pathlib import Path
from typing import Any

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.procfs import parse_stat
from cyclewatch.collectors.records import RECORD
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.demo.recording import load

_PAUSE_S = 0.005
_HEARTBEAT_NS = 10**9
_PAYLOAD = slice(8, RECORD.itemsize - 12)


def play(directory: Path, recording_path: Path, real_origin_ns: int, speed: float) -> None:
    """Write every record when the faster clock reaches its time."""
    writer_module = importlib.import_module("cyclewatch_sglang")
    recording = load(recording_path)
    first_ns = recording.first_ns
    clock = ScaledClock(Now(first_ns, 0), real_origin_ns, speed)
    rows = [recording.records[index].tobytes()[_PAYLOAD] for index in range(len(recording.records))]
    ends = recording.records["end_ns"].tolist()
    writer = writer_module.RingWriter.create(directory, _own_identity(recording.identity))
    try:
        at, beat_ns = 0, 0
        while at < len(rows):
            now_ns = clock.now().monotonic_ns
            while at < len(rows) and ends[at] <= now_ns:
                writer.write_payload(rows[at])
                at += 1
            if now_ns - beat_ns > _HEARTBEAT_NS:
                beat_ns = now_ns
                writer.write_counters(heartbeat_ns=now_ns)
            time.sleep(_PAUSE_S)
    finally:
        writer.close()


def _own_identity(recorded: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """The recorded identity, as if this process were the scheduler: the daemon checks that its writer lives."""
    start_ticks = parse_stat(Path("/proc/self/stat").read_bytes()).start_ticks
    own = {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "start_ticks": start_ticks,
    }
    return {**recorded, **own}


def main() -> None:
    """Command line of the player process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--real-origin-ns", type=int, required=True)
    parser.add_argument("--speed", type=float, required=True)
    options = parser.parse_args()
    play(options.directory, options.recording, options.real_origin_ns, options.speed)


if __name__ == "__main__":
    main()
