"""What is missing on this node, and how to mend it: each check is one function."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.fetch import Fetcher, FetchError
from cyclewatch.collectors.gpu.capabilities import Support
from cyclewatch.collectors.gpu.collector import GpuCollector
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.gpu.pynvml_door import PynvmlDoor
from cyclewatch.collectors.records import Fact, Failure, NoData
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerts.checks import outbox_checks
from cyclewatch.daemon.alerts.outbox import Load
from cyclewatch.daemon.check import Check, Level
from cyclewatch.daemon.probing.checks import probe_checks
from cyclewatch.daemon.profiling.checks import profiling_checks
from cyclewatch.daemon.ring_checks import OpenRing, open_rings, ring_checks
from cyclewatch.daemon.store.database import StoreError, open_database, reason_of
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.outbox import Outbox
from cyclewatch.daemon.store.start import node_name
from cyclewatch.daemon.web.checks import web_checks

_STALE_S = 30.0
_PROBE_TIMEOUT_S = 3.0
_PROBE_BYTES = 1 << 22
_EVENT_WAIT_S = 0.05
_PROC = Path("/proc")
_DATABASE_PAGE = "see docs/database.md"


@dataclass(frozen=True)
class Stored:
    """What the doctor reads in the store: what the daemon last said of itself, and what waits for the sinks."""

    status: Mapping[str, tuple[int, dict[str, Any]]]
    loads: Sequence[Load]

    @property
    def at_ns(self) -> int:
        """When the daemon last stored something, in UTC nanoseconds; 0 for never."""
        return self.status.get("targets", (0, {}))[0]

    @property
    def age_s(self) -> float:
        """Seconds since then."""
        return time.time() - self.at_ns / 1e9

    def passes(self) -> set[str]:
        """Targets whose forward passes the daemon watches at present: their ranks are told without `tp`."""
        targets = self.status["targets"][1] if self.age_s <= _STALE_S else {}
        return {
            name
            for name, target in targets.items()
            if any("tp" not in phase["rank"] for phase in target.get("phases", ()))
        }


def examine(settings: Settings, fetcher: Fetcher, proc: Path = _PROC) -> Iterator[Check]:
    """All checks, in the order of the way of the data; `proc` is where this process itself sees processes."""
    stored = _stored(settings)
    passes = stored.passes() if isinstance(stored, Stored) else set()
    discovery = Discovery(settings.targets)
    found = list(open_rings(settings.rings, proc))
    yield from ring_checks(settings, found, discovery, passes, proc)
    yield from _servers(discovery, fetcher)
    yield from gpu_checks(settings, PynvmlDoor())
    rings = [one for one in found if isinstance(one, OpenRing)]
    schedulers = {one.identity.pid: one.identity.software.get("torch", "") for one in rings if one.ended is False}
    yield from profiling_checks(settings.profiling, schedulers, settings.host.proc)
    yield from probe_checks(settings)
    yield from web_checks(settings.web, os.environ)
    yield from _daemon(stored) if isinstance(stored, Stored) else [stored]


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


def _stored(settings: Settings) -> Stored | Check:
    """What is in the store, or why that cannot be read."""
    try:
        engine = open_database(settings.database_url, create=False)
        node = None if engine.dialect.name == "sqlite" else node_name(settings)
        return Stored(StoreHistory(engine, node).status(), Outbox(engine).loads())
    except (StoreError, SQLAlchemyError) as error:
        return Check("store", Level.BAD, reason_of(error), _store_mend(settings.database_url))


def _store_mend(url: str) -> str:
    """What to do about a database that cannot be read, by what can be seen of its file."""
    try:
        address = make_url(url)
        if address.get_backend_name() != "sqlite":
            return _DATABASE_PAGE
        file = Path(address.database or "")
        if not file.exists():
            return "start the daemon: cyclewatch run"
        # Whoever reads it writes to two files beside it.
        may_open = all(os.access(path, os.R_OK | os.W_OK) for path in (file, file.parent))
    except (ArgumentError, ValueError):
        return _DATABASE_PAGE
    except PermissionError:
        may_open = False
    if not may_open:
        return "run the doctor as root, or as the daemon's user"
    return f"{_DATABASE_PAGE}; `cyclewatch db check` looks for damage"


def _daemon(stored: Stored) -> Iterator[Check]:
    _, profiling = stored.status.get("profiling", (0, {"on": True}))
    if not stored.at_ns:
        yield Check("daemon", Level.BAD, "has not stored anything yet", "start it: cyclewatch run")
    elif stored.age_s > _STALE_S:
        yield Check("daemon", Level.BAD, f"last stored something {stored.age_s:.0f} s ago", "start it: cyclewatch run")
    else:
        yield Check("daemon", Level.GOOD, "runs and stores")
    if not profiling["on"]:
        mend = "when that is mended: cyclewatch profiles on"
        yield Check("kernel profiles", Level.BAD, f"are off: {profiling['reason']}", mend)
    yield from outbox_checks(stored.loads, time.time_ns())
