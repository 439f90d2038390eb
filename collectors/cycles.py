"""The cycles collector: every ring in the directory, servers that come, go and restart."""

import contextlib
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.procfs import FormatError, parse_stat
from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import CycleBatch, Failure, NoData, RingCounters, RingIdentity, Sample
from cyclewatch.collectors.ring import RingError, RingReader
from cyclewatch.config.settings import Rings

MAX_RINGS = 256
SILENT_NS = 600 * 10**9
"""A writer in another pid namespace that has been silent for this long has ended."""

KEEP_ENDED_NS = 600 * 10**9
"""How long the ring of a process that has ended stays; it holds memory."""

_OVERLAP_NS = 2 * 10**9
_TOLD_APART_NS = 5 * 10**9
"""A loop that turns is heard once a second: after so long it is known whether two turn at the same time."""

_NAME_MAX = 60

_RING = "the ring of a scheduler"
_PACE = "windows.length_s"
_COST = "in the reading of the ring"

QUANTITIES = (
    Quantity(
        "cycles.stalled_ratio",
        "Share of a window in which requests waited and no batch could be made.",
        _RING,
        _PACE,
        ("rank",),
        cost=_COST,
    ),
    Quantity(
        "cycles.collected_ratio",
        "Share of a window in which Python's garbage collector stopped the scheduler.",
        _RING,
        _PACE,
        ("rank",),
        cost=_COST,
    ),
    Quantity(
        "cycles.speed_of_light_ratio",
        "The shortest time that the GPU allows for the steps of a window, over the time they took; only where the "
        "model's sizes and the GPU's peaks are known.",
        f"{_RING}, and the model's config.json",
        _PACE,
        ("rank", "phase"),
        cost="8 us a load bucket",
    ),
)
"""Readings that the daemon makes of whole windows of records."""


class CyclesCollector:
    """Reads all rings of a directory, each from where it stood.

    `resume` maps a ring's key to the sequence to go on with, as the store remembers it.
    """

    name = "cycles"
    quantities = QUANTITIES

    def __init__(self, settings: Rings, discovery: Discovery, proc: Path, resume: Mapping[str, int]) -> None:
        self._directory = settings.directory
        self.interval_s = settings.interval_s
        self._discovery = discovery
        self._proc = proc
        self._resume = dict(resume)
        self._readers: dict[str, RingReader] = {}
        self._targets: dict[str, str] = {}
        self._counters: dict[str, RingCounters] = {}
        self._refused: dict[str, tuple[int, int]] = {}
        self._cut_off: set[str] = set()
        self._ended_ns: dict[str, int] = {}

    def collect(self, now: Now) -> Iterator[Sample]:
        """New records of every ring; `NoData` where there is no ring, `Failure` for a file that is none."""
        try:
            names = sorted(path.name for path in self._directory.iterdir() if path.suffix == ".ring")
        except OSError as error:
            self._drop_all()
            yield NoData(
                f"ring directory {self._directory}: {error.strerror}: create it on tmpfs and set "
                "CYCLEWATCH_RING_DIR to it in the server's environment"
            )
            return
        if len(names) > MAX_RINGS:
            yield Failure(str(self._directory), f"{len(names)} rings, only the first {MAX_RINGS} are read")
            names = names[:MAX_RINGS]
        keys = [name.removesuffix(".ring") for name in names]
        for key, reader in list(self._readers.items()):
            if key not in keys or reader.unlinked():
                yield from self._read(key, now)  # what is left in a ring that was deleted
                self._drop(key)
        self._refused = {key: stamp for key, stamp in self._refused.items() if key in keys}
        for key in keys:
            yield from self._open(key, now)
            yield from self._read(key, now)
        if not self._readers:
            yield NoData(f"no ring in {self._directory}: is cyclewatch-sglang installed and CYCLEWATCH_RING_DIR set?")

    def close(self) -> None:
        """Close all rings."""
        self._drop_all()

    def _open(self, key: str, now: Now) -> Iterator[Failure]:
        """Open a ring that is new; one that was refused is looked at again when the file has changed."""
        if key in self._readers:
            return
        path = self._directory / f"{key}.ring"
        try:
            status = path.lstat()
            stamp = (status.st_ino, status.st_ctime_ns)
            if self._refused.get(key) == stamp:
                return
            self._refused[key] = stamp
            reader = RingReader(path, self._resume.get(key, 0))
        except FileNotFoundError:
            return  # deleted since the directory was read
        except RingError as error:
            yield Failure(str(path), str(error))
            return
        except OSError as error:
            yield Failure(str(path), f"{path}: cannot be read: {error.strerror}")
            return
        del self._refused[key]
        target = self._target_of(reader.identity, now)
        if target is None:
            reader.close()
            return
        self._resume.pop(key, None)
        self._readers[key] = reader
        self._targets[key] = target
        self._discovery.note(reader.identity, target)

    def _target_of(self, ring: RingIdentity, now: Now) -> str | None:
        """Name of the target of a new ring; None while it cannot be told.

        Servers in containers may listen on the same port, each in a network of its own. Where two of them turn their
        loops at the same time, the later has a number behind the name. A server that ended leaves a ring of the same
        name, too, but turns no more.
        """
        name = self._discovery.target_of(ring)
        for number in count(1):
            target = name if number == 1 else f"{name[:_NAME_MAX]}-{number}"
            heard_ns = [
                self._counters[key].heartbeat_ns
                for key, reader in self._readers.items()
                if self._targets[key] == target
                and key not in self._ended_ns
                and not _same_server(reader.identity, ring)
            ]
            if not heard_ns:
                break
            if max(heard_ns) <= ring.monotonic_ns + _OVERLAP_NS:
                return None if now.monotonic_ns - ring.monotonic_ns < _TOLD_APART_NS else target
        return target

    def _read(self, key: str, now: Now) -> Iterator[Sample]:
        reader = self._readers.get(key)
        if reader is None:
            return
        try:
            reading = reader.read()
            counters = reader.counters() or self._counters.get(key, RingCounters())
            truncated = reader.truncated()
        except OSError as error:
            yield Failure(str(reader.path), f"{reader.path}: cannot be read: {error.strerror}")
            self._drop(key)
            return
        self._counters[key] = counters
        if truncated and key not in self._cut_off:
            yield Failure(
                str(reader.path),
                f"{reader.path}: was cut off by somebody: records are lost until the server has written them anew",
            )
        (self._cut_off.add if truncated else self._cut_off.discard)(key)
        alive = self._alive(key, reader, counters, now)
        if alive and self._ended_ns.pop(key, None) is not None:
            self._discovery.note(reader.identity, self._targets[key])  # it was only silent
        elif not alive:
            self._discovery.forget(key)
            if now.monotonic_ns - self._ended_ns.setdefault(key, now.monotonic_ns) >= KEEP_ENDED_NS:
                with contextlib.suppress(OSError):  # not our directory to clear, then
                    reader.path.unlink(missing_ok=True)
        yield CycleBatch(
            target=self._targets[key],
            ring=reader.identity,
            counters=counters,
            records=reading.records,
            next_sequence=reader.next_sequence,
            lost=reading.lost,
            torn=reading.torn,
            alive=alive,
        )

    def _alive(self, key: str, reader: RingReader, counters: RingCounters, now: Now) -> bool:
        """Whether the writing process still runs: same pid, same start, where its pid namespace is ours."""
        namespace, _, start_ticks = key.split("-")
        try:
            if namespace != str((self._proc / "self/ns/pid").stat().st_ino):
                # Another namespace, where only the heartbeat can tell; before the first one, the ring's beginning.
                heard_ns = max(counters.heartbeat_ns, reader.identity.monotonic_ns)
                return now.monotonic_ns - heard_ns < SILENT_NS
            stat = (self._proc / str(reader.identity.pid) / "stat").read_bytes()
            return str(parse_stat(stat).start_ticks) == start_ticks
        except (OSError, FormatError):
            return False

    def _drop(self, key: str) -> None:
        reader = self._readers.pop(key, None)
        if reader is not None:
            if not reader.unlinked():
                self._resume[key] = reader.next_sequence  # it may come back: a failing disk, a mount
            reader.close()
            self._discovery.forget(key)
            self._targets.pop(key, None)
            self._counters.pop(key, None)
            self._cut_off.discard(key)
            self._ended_ns.pop(key, None)

    def _drop_all(self) -> None:
        for key in list(self._readers):
            self._drop(key)


def _same_server(one: RingIdentity, other: RingIdentity) -> bool:
    """Whether two rings are of ranks of one start of one server: their processes have the same parent."""

    def start(ring: RingIdentity) -> tuple[str, int, int]:
        return ring.key.partition("-")[0], ring.parent_pid, ring.parent_start_ticks

    return start(one) == start(other)
