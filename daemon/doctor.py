"""What is missing on this node, and how to mend it: each check is one function."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.fetch import Fetcher, FetchError
from cyclewatch.collectors.gpu.capabilities import Support
from cyclewatch.collectors.gpu.collector import GpuCollector
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.gpu.pynvml_door import PynvmlDoor
from cyclewatch.collectors.processes import ProcessTree
from cyclewatch.collectors.records import Fact, Failure, NoData, RingCounters, RingIdentity
from cyclewatch.collectors.ring import RingError, RingReader
from cyclewatch.config.settings import Rings, Settings
from cyclewatch.daemon.alerts.checks import outbox_checks
from cyclewatch.daemon.check import MEMORY_FILE_SYSTEMS, Check, Level, file_system
from cyclewatch.daemon.installation.carry_out import systemd_runs
from cyclewatch.daemon.probing.checks import probe_checks
from cyclewatch.daemon.profiling.checks import profiling_checks
from cyclewatch.daemon.store.database import StoreError, open_database, reason_of
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.outbox import Outbox
from cyclewatch.daemon.store.start import node_name
from cyclewatch.daemon.web.checks import web_checks

_STALE_S = 30.0
_RING_VARIABLE = "CYCLEWATCH_RING_DIR"
_PROBE_TIMEOUT_S = 3.0
_PROBE_BYTES = 1 << 22
_EVENT_WAIT_S = 0.05


@dataclass(frozen=True)
class OpenRing:
    """A ring as the doctor found it."""

    path: Path
    identity: RingIdentity
    counters: RingCounters | None

    @property
    def ended(self) -> bool | None:
        """Whether its writer has ended, though its number may be another's now; None in another pid namespace."""
        namespace, pid, start_ticks = self.path.stem.split("-")
        if namespace != str(Path("/proc/self/ns/pid").stat().st_ino):
            return None
        stat = ProcessTree(Path("/proc")).stat(int(pid))
        return stat is None or str(stat.start_ticks) != start_ticks


def examine(settings: Settings, fetcher: Fetcher) -> Iterator[Check]:
    """All checks, in the order of the way of the data."""
    yield from _ring_directory(settings.rings.directory)
    rings: list[OpenRing] = []
    for found in _rings(settings.rings.directory):
        if isinstance(found, Check):
            yield found
        else:
            rings.append(found)
    discovery = Discovery(settings.targets)
    for ring in rings:
        yield from _hook(ring, discovery.note(ring.identity))
    yield from _servers_without_ring(rings, settings.rings.directory)
    yield from _servers(discovery, fetcher)
    yield from gpu_checks(settings, PynvmlDoor())
    schedulers = {one.identity.pid: one.identity.software.get("torch", "") for one in rings if one.ended is False}
    yield from profiling_checks(settings.profiling, schedulers, settings.host.proc)
    yield from probe_checks(settings)
    yield from web_checks(settings.web, os.environ)
    yield from _store(settings)


def _ring_directory(directory: Path) -> Iterator[Check]:
    subject = f"ring directory {directory}"
    mend = (
        f"create it on tmpfs and set {_RING_VARIABLE}={directory} for SGLang: "
        f"install -d -m 2770 -g GROUP {directory} (GROUP: one that SGLang and cyclewatch share){_by_install(directory)}"
    )
    if not os.path.isdir(directory):  # noqa: PTH112 (a place that may not be looked at is not an error here)
        yield Check(subject, Level.BAD, "does not exist", mend)
        return
    kind = file_system(directory)
    if kind not in MEMORY_FILE_SYSTEMS:
        yield Check(subject, Level.BAD, f"is on {kind}, not on tmpfs: the hook refuses to write there", mend)
    elif not os.access(directory, os.R_OK | os.X_OK):
        join = f"join the group that owns the directory{_by_install(directory)}"
        yield Check(subject, Level.BAD, "cannot be read by this user", join)
    elif not os.access(directory, os.W_OK):
        yield Check(
            subject,
            Level.NOTE,
            "cannot be written by this user",
            "the rings of ended servers will not be cleared away",
        )
    else:
        yield Check(subject, Level.GOOD, f"is on {kind}")


def _by_install(directory: Path) -> str:
    """What of a mend needs no hand on a node where SGLang is a service of systemd."""
    if not systemd_runs() or directory != Rings().directory:
        return ""
    made = "directory, group and variable"
    return f"; for a service SGLANG of systemd, `cyclewatch install --sglang-service SGLANG` sets {made}"


def _rings(directory: Path) -> Iterator[OpenRing | Check]:
    if not os.access(directory, os.R_OK | os.X_OK):
        return
    paths = sorted(directory.glob("*.ring"))
    if not paths:
        yield Check(
            "rings",
            Level.BAD,
            f"none in {directory}",
            f"install cyclewatch-sglang into SGLang's environment, set {_RING_VARIABLE}={directory}, restart SGLang"
            f"{_by_install(directory)}",
        )
    for path in paths:
        try:
            reader = RingReader(path)
        except (RingError, OSError) as error:
            yield Check(f"ring {path.name}", Level.BAD, str(error), "remove the file, or install matching releases")
            continue
        yield OpenRing(path, reader.identity, reader.counters())
        reader.close()


def _hook(ring: OpenRing, target: str) -> Iterator[Check]:
    subject = f"hook in {target} {ring.identity.rank} (pid {ring.identity.pid})"
    counters = ring.counters
    missing = ", ".join(ring.identity.hooks_missing)
    if ring.ended:
        yield Check(subject, Level.NOTE, "the server has ended; its ring is left over", f"remove {ring.path}")
    elif counters is None:
        yield Check(subject, Level.BAD, "its counters are damaged", "restart SGLang")
    elif counters.disabled:
        yield Check(
            subject,
            Level.BAD,
            f"switched itself off after {counters.failures} failures of its own",
            "see the server's log for cyclewatch_sglang, report it, restart SGLang",
        )
    elif (age_s := (time.monotonic_ns() - counters.heartbeat_ns) / 1e9) > _STALE_S:
        yield Check(
            subject,
            Level.BAD,
            f"last seen {age_s:.0f} s ago",
            "the scheduler's loop hangs: see the server's log",
        )
    else:
        yield Check(subject, Level.GOOD, f"alive, {counters.written} records, SGLang {ring.identity.sglang_version}")
    if missing:
        yield Check(
            subject,
            Level.NOTE,
            f"hook points not found in this SGLang: {missing}",
            "those stages are not timed",
        )


def _servers_without_ring(rings: list[OpenRing], directory: Path) -> Iterator[Check]:
    """Schedulers on this node that no ring belongs to."""
    known = {ring.identity.pid for ring in rings if not ring.ended}
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            if not any("sglang::scheduler" in part for part in command[:1]) or process.pid in known:
                continue
            value = process.environ().get(_RING_VARIABLE)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        except psutil.AccessDenied:
            value = None
        subject = f"SGLang scheduler (pid {process.pid})"
        if value is None:
            mend = f"set {_RING_VARIABLE}={directory} in its environment and restart it{_by_install(directory)}"
            yield Check(subject, Level.BAD, f"has no ring; {_RING_VARIABLE} is not set there, or not readable", mend)
        elif Path(value) != directory:
            mend = f"give rings.directory and {_RING_VARIABLE} the same value"
            yield Check(subject, Level.BAD, f"writes its ring to {value}", mend)
        else:
            mend = "install cyclewatch-sglang into its Python environment; check SGLANG_PLUGINS; see the server's log"
            yield Check(subject, Level.BAD, "has no ring although the variable is set: the plugin is not loaded", mend)


def _servers(discovery: Discovery, fetcher: Fetcher) -> Iterator[Check]:
    servers = discovery.servers()
    if not servers:
        yield Check("SGLang over HTTP", Level.NOTE, "no server known", "add [[targets]] to the configuration")
    for server in servers:
        subject = f"SGLang {server.target} at {server.url}"
        try:
            answer = fetcher.get(f"{server.url}/metrics", timeout_s=_PROBE_TIMEOUT_S, max_bytes=_PROBE_BYTES)
        except FetchError as error:
            yield Check(subject, Level.BAD, str(error), "check the address in [[targets]] and that the server runs")
            continue
        if answer.status != 200:  # noqa: PLR2004 (HTTP's good)
            mend = "start SGLang with --enable-metrics"
            yield Check(subject, Level.NOTE, f"answers, but /metrics with {answer.status}", mend)
        else:
            yield Check(subject, Level.GOOD, "answers, with metrics")


def gpu_checks(settings: Settings, door: NvmlDoor) -> Iterator[Check]:
    """What NVML says, read once, and of each GPU what it does not tell."""
    if not settings.gpu.enabled:
        yield Check("GPUs", Level.NOTE, "are not read", "set gpu.enabled = true to read them")
        return
    collector = GpuCollector(settings.gpu, Discovery(()), settings.host.proc, door, event_wait_s=_EVENT_WAIT_S)
    samples = collector.collect(Now(time.monotonic_ns(), time.time_ns()))
    models = {one.subject: one.value for one in samples if isinstance(one, Fact)}
    for gpu, known in collector.capabilities().items():
        model = models.get(gpu.lower().replace(" ", "") + ".model", "model unknown")
        lacks = [
            f"{support}: {', '.join(names)}"
            for support in Support
            if support is not Support.YES and (names := [name for name, one in known.items() if one is support])
        ]
        answered = f"{sum(one is Support.YES for one in known.values())} of {len(known)} questions answered"
        told = "; ".join([f"{model}, {answered}", *lacks])
        mend = "none needed: readings that this chip or driver does not have stay away"
        yield Check(gpu, Level.NOTE if lacks else Level.GOOD, told, mend if lacks else "")
    for sample in samples:
        if isinstance(sample, NoData):
            yield Check("GPUs", Level.NOTE, sample.reason, "docs/gpu.md tells more, and how to switch this off")
        elif isinstance(sample, Failure):
            yield Check("GPUs", Level.BAD, sample.reason, "docs/gpu.md tells more")
    collector.close()


def _store(settings: Settings) -> Iterator[Check]:
    try:
        engine = open_database(settings.database_url, create=False)
        node = None if engine.dialect.name == "sqlite" else node_name(settings)
        status = StoreHistory(engine, node).status()
        loads = Outbox(engine).loads()
    except (StoreError, SQLAlchemyError) as error:
        yield Check("store", Level.BAD, reason_of(error), "start the daemon: cyclewatch run")
        return
    stored_ns, _ = status.get("targets", (0, {}))
    _, profiling = status.get("profiling", (0, {"on": True}))
    age_s = time.time() - stored_ns / 1e9
    if not stored_ns:
        yield Check("daemon", Level.BAD, "has not stored anything yet", "start it: cyclewatch run")
    elif age_s > _STALE_S:
        yield Check("daemon", Level.BAD, f"last stored something {age_s:.0f} s ago", "start it: cyclewatch run")
    else:
        yield Check("daemon", Level.GOOD, "runs and stores")
    if not profiling["on"]:
        mend = "when that is mended: cyclewatch profiles on"
        yield Check("kernel profiles", Level.BAD, f"are off: {profiling['reason']}", mend)
    yield from outbox_checks(loads, time.time_ns())
