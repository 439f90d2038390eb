"""Record the cycles of a real SGLang for `cyclewatch demo`.

    PYTHONPATH=tests .venv/bin/python -m sglang_cpu.record daemon/demo/sglang-0.5.23-cpu.cycles.xz

The story: steady traffic, then SGLang's own `/slow_down`, then its end. Everything that was done, and when, goes
into the file.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.collectors.ring import IDENTITY_OFFSET, RingReader
from cyclewatch.daemon.demo.recording import Recording, save
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic

CONCURRENCY = 8
DOSE_S = 0.001
SLOW_AT_S, NORMAL_AT_S, END_AT_S = 75.0, 125.0, 165.0


def record(venv: Path, version: str) -> Recording:
    """Run the story against a real server; takes about four minutes."""
    with (
        tempfile.TemporaryDirectory(prefix="cyclewatch-record-", dir="/dev/shm") as rings,
        tempfile.TemporaryDirectory() as workdir,
        SGLangServer(venv, version, Path(workdir), extra_env={"CYCLEWATCH_RING_DIR": rings}) as server,
        Traffic(server.base_url, concurrency=CONCURRENCY, seconds=END_AT_S + 30),
    ):
        time.sleep(5)  # the first requests fill the batch
        (path,) = Path(rings).glob("*.ring")
        reader = RingReader(path)
        reader.next_sequence = max(reader.next_sequence, 1)
        reader.read()  # what came before the recording
        parts = list(_follow(reader, server))
        identity = _raw_identity(path)
    records = np.concatenate(parts)
    first_ns = int(records["end_ns"][0])
    # The story's clock and the ring's are the same one: both start with the first record.
    identity["wall_ns"] += first_ns - identity["monotonic_ns"]
    identity["monotonic_ns"] = first_ns
    return Recording(_provenance(version, records), identity, records)


def _follow(reader: RingReader, server: SGLangServer) -> Iterator[Records]:
    started = time.monotonic()
    pending = [(SLOW_AT_S, DOSE_S), (NORMAL_AT_S, None)]
    while (passed := time.monotonic() - started) < END_AT_S:
        if pending and passed >= pending[0][0]:
            server.slow_down(pending.pop(0)[1])
        reading = reader.read()
        if reading.lost or reading.torn:
            raise SystemExit("records were lost: record again on a quieter machine")
        yield reading.records
        time.sleep(0.5)


def _raw_identity(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        header = file.read(4096)
    length = int.from_bytes(header[20:24], "little")
    identity: dict[str, Any] = json.loads(header[IDENTITY_OFFSET : IDENTITY_OFFSET + length])
    identity["server"]["model_path"] = Path(str(identity["server"].get("model_path"))).name  # no path of this machine
    return identity


def _provenance(version: str, records: Records) -> dict[str, Any]:
    date = datetime.now(UTC).date().isoformat()
    machine = f"{_processor()}, {os.cpu_count()} cores, no GPU"
    doses = f"{DOSE_S * 1e3:.0f} ms longer, after {NORMAL_AT_S:.0f} s it ends."
    story = [
        f"Cycles of a real SGLang {version} on a CPU, recorded on {date} ({machine}): {len(records)} cycles.",
        f"{CONCURRENCY} requests at a time; after {SLOW_AT_S:.0f} s its /slow_down makes every pass {doses}",
    ]
    return {
        "story": story,
        "sglang": version,
        "torch_device": "cpu",
        "machine": machine,
        "python": platform.python_version(),
        "date": date,
        "traffic": {"concurrency": CONCURRENCY, "generator": "tests/sglang_cpu/traffic.py"},
        "slow_down": {"forward_sleep_time_s": DOSE_S, "from_s": SLOW_AT_S, "until_s": NORMAL_AT_S},
        "end_s": END_AT_S,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main() -> int:
    """Record and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--version", default="0.5.23")
    parser.add_argument("--venv", type=Path, help="environment made by build_env.py; default .sglang/VERSION")
    options = parser.parse_args()
    recording = record(options.venv or Path(".sglang") / options.version, options.version)
    save(options.file, recording)
    sys.stdout.write(f"{options.file}: {len(recording.records)} cycles, {options.file.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
