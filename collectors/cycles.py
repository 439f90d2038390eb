"""The cycles collector: every ring in the directory, servers that come, go and restart."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.host.held import HeldFile
from cyclewatch.collectors.processes import own_pid_namespace, sees_all
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

KEEP_SILENT_NS = 6 * 3600 * 10**9
"""How long the ring of a process that cannot be seen stays after it fell silent: it may be stopped, and go on."""

_OVERLAP_NS = 2 * 10**9
_TOLD_APART_NS = 5 * 10**9
"""A loop that turns is heard once a second: after so long it is known whether two turn at the same time."""

_WRITTEN_NS = 100 * 10**6
"""How long after the end of a cycle its record may be written: the writer waits for Python's lock, or for a CPU."""

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


@dataclass
class _Ring:
    """What is remembered of one open ring.

    `complete_ns` is the moment up to which its records are known to have been given out: that of the last look but one,
    since the newest record waits for the look after it. A look that leaves some over does not count.
    """

    reader: RingReader
    target: str
    counters: RingCounters = field(default_factory=RingCounters)
    stat: HeldFile | None = None
    cut_off: bool = False
    ended_ns: int | None = None
    complete_ns: int = 0
    _emptied_ns: int | None = None

    def close(self) -> None:
        """Close the files."""
        self.reader.close()
        if self.stat is not None:
            self.stat.close()

    def looked(self, now_ns: int, *, more: bool) -> None:
        """Note a look, and whether it left some over."""
        if not more and self._emptied_ns is not None:
            self.complete_ns = max(self.complete_ns, self._emptied_ns - _WRITTEN_NS)
        self._emptied_ns = None if more else now_ns


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
        self._namespace: str | None = None
        self._resume = dict(resume)
        self._rings: dict[str, _Ring] = {}
        self._refused: dict[str, tuple[int, int]] = {}

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
        for key, ring in list(self._rings.items()):
            if key not in keys or ring.reader.unlinked():  # deleted: what is left in it, and the record held back
                yield from self._read(key, now)
                yield from self._read(key, now, last=True)
                self._drop(key)
        self._refused = {key: stamp for key, stamp in self._refused.items() if key in keys}
        for key in keys:
            yield from self._open(key, now)
            yield from self._read(key, now)
        if not self._rings:
            yield NoData(f"no ring in {self._directory}: is cyclewatch-sglang installed and CYCLEWATCH_RING_DIR set?")

    def close(self) -> None:
        """Close all rings."""
        self._drop_all()

    def _open(self, key: str, now: Now) -> Iterator[Failure]:
        """Open a ring that is new; one that was refused is looked at again when the file has changed."""
        if key in self._rings:
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
        target = self._target_of(reader, now)
        if target is None:
            reader.close()
            return
        self._resume.pop(key, None)
        self._rings[key] = _Ring(reader, target)
        self._discovery.note(reader.identity, target)

    def _target_of(self, reader: RingReader, now: Now) -> str | None:
        """Name of the target of a new ring; None while it cannot be told.

        Servers in containers may listen on the same port, each in a network of its own. Where two of them turn their
        loops at the same time, the later has a number behind the name. A server that ended leaves a ring of the same
        name, too, but turned no more when the other began.
        """
        ring, counters = reader.identity, reader.counters() or RingCounters()
        name = self._discovery.target_of(ring)
        for number in count(1):
            target = name if number == 1 else f"{name[:_NAME_MAX]}-{number}"
            others = [
                (other.reader.identity, other.counters)
                for other in self._rings.values()
                if other.target == target and other.ended_ns is None and not _same_server(other.reader.identity, ring)
            ]
            if not others:
                break
            if not any(_at_the_same_time((ring, counters), other) for other in others):
                return None if now.monotonic_ns - ring.monotonic_ns < _TOLD_APART_NS else target
        return target

    def _read(self, key: str, now: Now, *, last: bool = False) -> Iterator[Sample]:
        ring = self._rings.get(key)
        if ring is None:
            return
        reader, had_ended = ring.reader, ring.ended_ns is not None
        try:
            reading = reader.read()
            ring.counters = reader.counters() or ring.counters
            truncated = reader.truncated()
        except OSError as error:
            yield Failure(str(reader.path), f"{reader.path}: cannot be read: {error.strerror}")
            self._drop(key)
            return
        ring.looked(now.monotonic_ns, more=reading.more)
        if truncated and not ring.cut_off:
            yield Failure(
                str(reader.path),
                f"{reader.path}: was cut off by somebody: records are lost until the server has written them anew",
            )
        ring.cut_off = truncated
        ended = self._ended(key, ring)
        alive = _is_heard(ring, now) if ended is None else not ended
        self._note_end(ring, now, alive=alive, keep_ns=KEEP_SILENT_NS if ended is None else KEEP_ENDED_NS)
        read_out = not (alive or reading.more or reading.held_back or len(reading.records))
        yield CycleBatch(
            target=ring.target,
            ring=reader.identity,
            counters=ring.counters,
            records=reading.records,
            next_sequence=reader.next_sequence,
            lost=reading.lost,
            torn=reading.torn,
            alive=alive,
            complete_ns=ring.complete_ns,
            over=last or (had_ended and read_out),
        )

    def _note_end(self, ring: _Ring, now: Now, *, alive: bool, keep_ns: int) -> None:
        """Tell the others who is there; the ring of a server that ended `keep_ns` ago is removed."""
        if alive:
            if ring.ended_ns is not None:
                self._discovery.note(ring.reader.identity, ring.target)  # it was only silent
            ring.ended_ns = None
            return
        self._discovery.forget(ring.reader.path.stem)
        if ring.ended_ns is None:
            ring.ended_ns = now.monotonic_ns
        if now.monotonic_ns - ring.ended_ns >= keep_ns:
            with contextlib.suppress(OSError):  # not our directory to clear, then
                ring.reader.path.unlink(missing_ok=True)

    def _ended(self, key: str, ring: _Ring) -> bool | None:
        """Whether the writing process has ended, by its pid and start; None where it cannot be seen."""
        namespace, pid, start_ticks = key.split("-")
        try:
            if namespace != self._own_namespace():
                return None
            if ring.stat is None:
                ring.stat = HeldFile(self._proc / pid / "stat")
            stat = parse_stat(ring.stat.read())
            return stat.ended or str(stat.start_ticks) != start_ticks
        except ProcessLookupError:
            return True
        except FileNotFoundError:  # also of a process that lives, where /proc hides those of others: all but ours
            return True if sees_all(self._proc) else None
        except (OSError, FormatError):
            return None

    def _own_namespace(self) -> str:
        """Asked once: no process ever leaves its own."""
        if self._namespace is None:
            self._namespace = own_pid_namespace(self._proc)
        return self._namespace

    def _drop(self, key: str) -> None:
        ring = self._rings.pop(key, None)
        if ring is not None:
            if not ring.reader.unlinked():
                self._resume[key] = ring.reader.next_sequence  # it may come back: a failing disk, a mount
            ring.close()
            self._discovery.forget(key)

    def _drop_all(self) -> None:
        for key in list(self._rings):
            self._drop(key)


def _is_heard(ring: _Ring, now: Now) -> bool:
    """Whether the writer gave a sign of life lately; before the first one, its beginning is one."""
    return now.monotonic_ns - max(ring.counters.heartbeat_ns, ring.reader.identity.monotonic_ns) < SILENT_NS


def _at_the_same_time(one: tuple[RingIdentity, RingCounters], other: tuple[RingIdentity, RingCounters]) -> bool:
    """Whether each of two loops was still heard when the other had begun."""

    def outlived(ring: tuple[RingIdentity, RingCounters], began_ns: int) -> bool:
        identity, counters = ring
        return max(counters.heartbeat_ns, identity.monotonic_ns) > began_ns + _OVERLAP_NS

    return outlived(one, other[0].monotonic_ns) and outlived(other, one[0].monotonic_ns)


def _same_server(one: RingIdentity, other: RingIdentity) -> bool:
    """Whether two rings are of ranks of one start of one server: their processes have the same parent."""

    def start(ring: RingIdentity) -> tuple[str, int, int]:
        return ring.key.partition("-")[0], ring.parent_pid, ring.parent_start_ticks

    return start(one) == start(other)
