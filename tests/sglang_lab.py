"""What tests and demonstrations against the real SGLang share."""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pytest

from cyclewatch.collectors.records import RECORD, ForwardMode, Records
from cyclewatch.collectors.ring import RingReader
from cyclewatch.detectors.phases import judged

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


def kineto_environment(channel: Path) -> dict[str, str]:
    """What a process needs to be sampled through Kineto's channel in this directory."""
    return {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(channel),
        "KINETO_ONDEMAND_TRACE_DIR": str(channel),
    }


class UnsteadyError(Exception):
    """The machine changed its own pace while a story was told: it proves nothing either way."""


def told(story: Callable[[Path], None], directory: Path) -> None:
    """Tell a story, each time in a directory of its own, until the machine keeps its pace meanwhile.

    A failure on a steady machine is a failure. Where the machine never is steady the test is skipped, with figures.
    """
    for attempt in ("first", "second", "third"):
        try:
            return story(directory / attempt)
        except UnsteadyError as drift:
            print(f"{attempt} telling is void: {drift}")
            reason = str(drift)
    pytest.skip(f"NOT RUN to its end: the machine does not keep its pace: {reason}")


_EFFECT_MIN = 0.15
_SPREAD_OF_EFFECT = 0.8
_ABOVE_SPREAD = 1.5
_ABOVE_EFFECT = 2.5
_DOSE_MIN_S, _DOSE_RATIO = 0.001, 0.35

_SETTLING_NS = 5 * 10**9
"""How long the first requests of the traffic may take longer than those that follow, and how long a change takes."""

_WINDOW_NS = 5 * 10**9


def spread_max(min_effect: float = _EFFECT_MIN) -> float:
    """How far the slowest window of a stretch may be from its fastest.

    A drift as large as the least effect that the daemon looks for is rightly found by it.
    """
    return _SPREAD_OF_EFFECT * min_effect


def dose_s(decode_ms: float, min_effect: float = _EFFECT_MIN) -> float:
    """How much `/slow_down` has to add to a forward pass: 1 ms, and more where cycles or the least effect are long."""
    return max(_DOSE_MIN_S, max(_DOSE_RATIO, _ABOVE_EFFECT * min_effect) * decode_ms / 1000)


class RingTap:
    """Reads all rings of a directory for itself, all the time: the truth that the daemon's findings are held against.

    The size of the decode batches looked at, `batch_size`, is the concurrency of the traffic.
    """

    def __init__(self, rings: Path, batch_size: int) -> None:
        self._rings = rings
        self._batch_size = batch_size
        self._readers: dict[Path, RingReader] = {}
        self._parts: list[Records] = [np.zeros(0, RECORD)]
        self._changes_ns: list[int] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="ring-tap")
        for path in rings.glob("*.ring"):
            self._readers[path] = RingReader(path)
            self._readers[path].read()  # what came before is nobody's truth, and may be overwritten at any moment

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        for reader in self._readers.values():
            reader.close()

    def _follow(self) -> None:
        while not self._stopping.wait(0.5):
            for path in set(self._rings.glob("*.ring")) - set(self._readers):
                self._readers[path] = RingReader(path)
            for reader in self._readers.values():
                reading = reader.read()
                assert reading.lost == reading.torn == 0
                with self._lock:
                    self._parts.append(reading.records)

    def records(self, from_ns: int = 0, to_ns: int = 2**63) -> Records:
        """Records that ended in a stretch of monotonic time."""
        with self._lock:
            records = np.concatenate(self._parts)
        return records[(records["end_ns"] >= from_ns) & (records["end_ns"] < to_ns)]

    def _decode(self, from_ns: int, to_ns: int) -> Records:
        records = self.records(from_ns, to_ns)
        chosen: Records = records[
            judged(records) & (records["mode"] == ForwardMode.DECODE) & (records["batch_size"] == self._batch_size)
        ]
        return chosen

    def median_decode_ms(self, from_ns: int, to_ns: int) -> float:
        """Median decode cycle."""
        chosen = self._decode(from_ns, to_ns)
        assert len(chosen) > 20
        return float(np.median(chosen["cycle_ns"])) / 1e6

    def mean_decode_ms(self, from_ns: int, to_ns: int) -> float:
        """Mean decode cycle."""
        chosen = self._decode(from_ns, to_ns)
        assert len(chosen) > 20
        return float(chosen["cycle_ns"].mean()) / 1e6

    def min_effect(self, from_ns: int, to_ns: int) -> float:
        """The least effect to look for on this machine: above what it does by itself, as seen in this stretch."""
        medians_ms = self._medians_ms(from_ns, to_ns)
        return max(_EFFECT_MIN, _ABOVE_SPREAD * (max(medians_ms) / min(medians_ms) - 1))

    def require_pace(self, from_ns: int, to_ns: int, min_effect: float = _EFFECT_MIN) -> None:
        """The machine kept its pace in this stretch, as the medians of 5 s of decode cycles show it.

        Raises:
            UnsteadyError: it did not, by itself.
        """
        medians_ms = self._medians_ms(from_ns, to_ns)
        if medians_ms and max(medians_ms) > (1 + spread_max(min_effect)) * min(medians_ms):
            listed = ", ".join(f"{median:.2f}" for median in medians_ms)
            raise UnsteadyError(f"decode medians of 5 s with nothing changed: {listed} ms")

    def _medians_ms(self, from_ns: int, to_ns: int) -> list[float]:
        """Medians of the decode cycles of each 5 s that have enough of them."""
        records = self._decode(from_ns, to_ns)
        windows = ((records["end_ns"] - np.uint64(from_ns)) // np.uint64(_WINDOW_NS)).astype(int)
        counts = np.bincount(windows)
        return [float(np.median(records["cycle_ns"][windows == index])) / 1e6 for index in np.flatnonzero(counts > 50)]

    def changed(self) -> None:
        """Say that what comes from now on need not be as fast as what came before."""
        self._changes_ns.append(time.monotonic_ns())

    @contextmanager
    def judged_at_pace(self, min_effect: float = _EFFECT_MIN) -> Iterator[None]:
        """What fails in here has failed only if the machine kept its pace between what was `changed` on purpose.

        Raises:
            UnsteadyError: something failed, and the machine did not.
        """
        self._changes_ns = [time.monotonic_ns()]
        try:
            yield
        except AssertionError:
            for from_ns, to_ns in pairwise([*self._changes_ns, 2**63]):
                self.require_pace(from_ns + _SETTLING_NS, to_ns, min_effect)
            raise
