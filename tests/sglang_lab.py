"""What tests and demonstrations against the real SGLang share."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pytest

from cyclewatch.collectors.records import ForwardMode, RecordKind, Records
from cyclewatch.collectors.ring import RingReader

ROOT = Path(__file__).parents[1]


def sglang_environment(version: str) -> Path:
    """The environment of an SGLang version; the calling test is skipped, saying so, where there is none."""
    venv = Path(os.environ.get("SGLANG_CPU_ENVIRONMENTS", ROOT / ".sglang")) / version
    if not (venv / "bin" / "python").exists():
        pytest.skip(f"NOT RUN: no real SGLang {version} in {venv}; `make sglang-env` installs it (2.7 GB)")
    return venv


def ring_directory() -> Iterator[Path]:
    """A ring directory on tmpfs, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="cyclewatch-test-", dir="/dev/shm") as directory:
        yield Path(directory)


def with_second_chance(story: Callable[[Path], None], directory: Path) -> None:
    """Tell a story in a directory of its own, and once more if it fails.

    A shared machine may run at half its pace for a minute, which is a slowdown that the test has not made. What is
    broken fails twice.
    """
    try:
        story(directory / "first")
    except AssertionError as error:
        print(f"failed once, told once more: {error}")
        story(directory / "second")


class RingTap:
    """Reads a ring for itself, all the time: the truth that the daemon's findings are held against."""

    def __init__(self, rings: Path) -> None:
        (path,) = rings.glob("*.ring")
        self._reader = RingReader(path)
        self._reader.read()  # what came before is nobody's truth, and may be overwritten at any moment
        self._parts: list[Records] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="ring-tap")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._reader.close()

    def _follow(self) -> None:
        while not self._stopping.wait(0.5):
            reading = self._reader.read()
            assert reading.lost == reading.torn == 0
            with self._lock:
                self._parts.append(reading.records)

    def records(self, from_ns: int = 0, to_ns: int = 2**63) -> Records:
        """Records that ended in a stretch of monotonic time."""
        with self._lock:
            records = np.concatenate(self._parts)
        return records[(records["end_ns"] >= from_ns) & (records["end_ns"] < to_ns)]

    def median_decode_ms(self, from_ns: int, to_ns: int, batch_size: int) -> float:
        """Median decode cycle at one batch size."""
        records = self.records(from_ns, to_ns)
        chosen = (
            (records["kind"] == RecordKind.CYCLE)
            & (records["mode"] == ForwardMode.DECODE)
            & (records["batch_size"] == batch_size)
        )
        assert chosen.sum() > 20
        return float(np.median(records["cycle_ns"][chosen])) / 1e6
