"""Recordings of simulated cycles, as files."""

from pathlib import Path
from typing import Any

import numpy as np

from cyclewatch.collectors.records import Records
from cyclewatch.daemon.demo.recording import Recording, save
from simulated import server

IDENTITY: dict[str, Any] = {
    "pid": 100,
    "parent_pid": 99,
    "parent_start_ticks": 5,
    "tp_rank": 0,
    "synchronous": False,
    "sglang_version": "0.5.23",
    "plugin_version": "0.1.0",
    "hooks_missing": [],
    "monotonic_ns": 0,
    "wall_ns": 1_800_000_000 * 10**9,
    "server": {"model_path": "tiny", "page_size": 1},
}


def recorded(
    path: Path,
    *,
    factor: float = 1.0,
    seed: int = 1,
    windows: int = 12,
    records: Records | None = None,
    **identity: Any,
) -> Path:
    """Cycles of a decoding server, all of them longer by `factor`; or these records."""
    if records is None:
        records = np.concatenate([part for _, part in server(windows, seed=seed, slower={0: factor})])
    save(path, Recording({}, {**IDENTITY, **identity}, records))
    return path
