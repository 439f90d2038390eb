"""What the doctor looks at for rings: their directory, the hook behind each, and schedulers that have none."""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from cyclewatch.collectors.discovery import DEFAULT_PORT, Discovery
from cyclewatch.collectors.local_servers import server_address
from cyclewatch.collectors.processes import (
    ProcessTree,
    namespace_numbers,
    own_pid_namespace,
    process_status,
    sees_all,
)
from cyclewatch.collectors.procfs import FormatError, parse_stat
from cyclewatch.collectors.records import RingCounters, RingIdentity
from cyclewatch.collectors.ring import RingError, RingReader
from cyclewatch.config.settings import Rings, Settings
from cyclewatch.daemon.check import MEMORY_FILE_SYSTEMS, Check, Level, file_system
from cyclewatch.daemon.installation.carry_out import systemd_runs

_STALE_S = 30.0
_RING_VARIABLE = "CYCLEWATCH_RING_DIR"


@dataclass(frozen=True)
class OpenRing:
    """A ring as the doctor found it. `ended`: whether its writer has; None where that process cannot be seen."""

    path: Path
    identity: RingIdentity
    counters: RingCounters | None
    ended: bool | None


def open_rings(settings: Rings, proc: Path) -> Iterator[OpenRing | Check]:
    """All rings of the directory; a finding in the place of each that is none."""
    if not settings.enabled or not _is_readable(settings.directory):
        return
    for path in sorted(settings.directory.glob("*.ring")):
        try:
            reader = RingReader(path)
        except (RingError, OSError) as error:
            yield Check(f"ring {path.name}", Level.BAD, str(error), "remove the file, or install matching releases")
            continue
        yield OpenRing(path, reader.identity, reader.counters(), _ended(path.stem, proc))
        reader.close()


def _ended(key: str, proc: Path) -> bool | None:
    """Whether the writer of a ring has ended, though its number may be another's now; None where it cannot be seen."""
    namespace, pid, start_ticks = key.split("-")
    try:
        if namespace != own_pid_namespace(proc):
            return None
        stat = parse_stat((proc / pid / "stat").read_bytes())
        return stat.ended or str(stat.start_ticks) != start_ticks
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # also of a process that lives, where /proc hides those of others: all but ours
        return True if sees_all(proc) else None
    except (OSError, FormatError):
        return None


def ring_checks(
    settings: Settings, found: Sequence[OpenRing | Check], discovery: Discovery, passes: Collection[str], proc: Path
) -> Iterator[Check]:
    """Findings on the directory, on what was `found` in it, and on servers without a ring; `discovery` learns of rings.

    `passes` names the targets whose forward-pass metrics the daemon reads at present. They need no ring, and neither do
    those that are configured so.
    """
    if not settings.rings.enabled:
        yield Check("rings", Level.NOTE, "rings.enabled is false", "set it to true to have cycles read")
        return
    directory = settings.rings.directory
    rings = [(one, discovery.note(one.identity)) for one in found if isinstance(one, OpenRing)]
    with_ring = {target for ring, target in rings if not ring.ended}
    ports = _forward_pass_ports(settings, passes, with_ring)
    missing = Level.NOTE if ports and not with_ring else Level.BAD
    yield from _ring_directory(directory, missing)
    if not found and _is_readable(directory):
        mend = (
            f"install cyclewatch-sglang into SGLang's environment, set {_RING_VARIABLE}={directory}, restart SGLang"
            f"{_by_install(directory)}"
        )
        instead = "; forward-pass metrics are read instead" if ports else ""
        yield Check("rings", missing, f"none in {directory}{instead}", mend)
    yield from (one for one in found if isinstance(one, Check))
    for ring, target in rings:
        yield from _hook(ring, target)
    yield from _servers_without_ring([ring for ring, _ in rings], directory, ports, proc)


def _forward_pass_ports(settings: Settings, passes: Collection[str], with_ring: Collection[str]) -> set[str]:
    """Ports of the servers whose forward-pass metrics are read in the place of a ring."""
    if not settings.forward_pass.enabled:
        return set()
    ports = {target.name: str(urlsplit(str(target.url)).port or DEFAULT_PORT) for target in settings.targets}
    configured = {target.name for target in settings.targets if target.forward_pass_metrics}
    names = configured.union(passes).difference(with_ring)
    return {ports.get(name) or name.rpartition(":")[2] for name in names}  # one that was found has its address as name


def _is_readable(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.X_OK)


def _ring_directory(directory: Path, missing: Level) -> Iterator[Check]:
    subject = f"ring directory {directory}"
    mend = (
        f"create it on tmpfs and set {_RING_VARIABLE}={directory} for SGLang: "
        f"install -d -m 2770 -g GROUP {directory} (GROUP: one that SGLang and cyclewatch share){_by_install(directory)}"
    )
    if not os.path.isdir(directory):  # noqa: PTH112 (a place that may not be looked at is not an error here)
        yield Check(subject, missing, "does not exist", mend)
        return
    kind = file_system(directory)
    if kind not in MEMORY_FILE_SYSTEMS:
        yield Check(subject, missing, f"is on {kind}, not on tmpfs: the hook refuses to write there", mend)
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
    elif (age_s := (time.monotonic_ns() - counters.heartbeat_ns) / 1e9) > _STALE_S and ring.ended is None:
        finding = f"not heard for {age_s:.0f} s: it has ended, or its loop hangs"
        mend = "see whether that server runs, and its log; the ring of one that has ended is cleared away by the daemon"
        yield Check(subject, Level.NOTE, finding, mend)
    elif age_s > _STALE_S:
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


def _servers_without_ring(
    rings: Sequence[OpenRing], directory: Path, forward_pass_ports: Collection[str], proc: Path
) -> Iterator[Check]:
    """Schedulers on this node that no ring belongs to."""
    writers = {ring.path.stem.partition("-")[2] for ring in rings if not ring.ended}
    for process in psutil.process_iter():
        try:
            is_scheduler = any("sglang::scheduler" in part for part in process.cmdline()[:1])
            if is_scheduler and _writer(process.pid, proc) not in writers:
                yield _without_ring(process, directory, forward_pass_ports)
        except psutil.Error:  # it has ended, or is hidden
            continue


def _writer(pid: int, proc: Path) -> str | None:
    """What a ring of this process has in its name: the number in its own pid namespace, and its start."""
    stat = ProcessTree(proc).stat(pid)
    number = (pid, *namespace_numbers(process_status(proc, pid)))[-1]
    return None if stat is None else f"{number}-{stat.start_ticks}"


def _without_ring(process: psutil.Process, directory: Path, forward_pass_ports: Collection[str]) -> Check:
    """What is to be said of a scheduler that writes no ring.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    subject = f"SGLang scheduler (pid {process.pid})"
    if _port(process) in forward_pass_ports:
        mend = "none needed; with the hook there would be stages and the host's time, too"
        return Check(subject, Level.NOTE, "has no ring; its forward-pass metrics are read instead", mend)
    try:
        value = process.environ().get(_RING_VARIABLE)
    except psutil.AccessDenied:
        value = None
    if value is None:
        mend = f"set {_RING_VARIABLE}={directory} in its environment and restart it{_by_install(directory)}"
        return Check(subject, Level.BAD, f"has no ring; {_RING_VARIABLE} is not set there, or not readable", mend)
    if Path(value) != directory:
        mend = f"give rings.directory and {_RING_VARIABLE} the same value"
        return Check(subject, Level.BAD, f"writes its ring to {value}", mend)
    mend = "install cyclewatch-sglang into its Python environment; check SGLANG_PLUGINS; see the server's log"
    return Check(subject, Level.BAD, "has no ring although the variable is set: the plugin is not loaded", mend)


def _port(process: psutil.Process) -> str | None:
    """Where the server of a scheduler listens, by the command line that started it; None where that cannot be told."""
    try:
        addresses = (server_address(parent.cmdline()) for parent in process.parents())
        return next((str(address[1]) for address in addresses if address is not None), None)
    except psutil.Error:
        return None
