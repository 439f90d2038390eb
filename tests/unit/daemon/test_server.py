import contextlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from structlog.testing import capture_logs

import rings
from cyclewatch.collectors.base import Now
from cyclewatch.collectors.records import Reading, RingCounters
from cyclewatch.collectors.runner import Outcome
from cyclewatch.config.settings import Detection, Engine, Rings, Settings
from cyclewatch.config.web import Web
from cyclewatch.daemon.clock import ScaledClock
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.signals import reload_on_hangup, stop_on_signals
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.unit import Unit
from cyclewatch.daemon.web.server import WebError
from rings import PlainRing
from simulated import cycles
from watched import batch

SECOND = 10**9
ORIGIN = Now(10**15, 1_800_000_000 * SECOND)
REMOVED = ("torch", "scipy", "pandas", "alembic", "sglang", "cyclewatch_sglang")


def settings(tmp_path: Path, **changes: object) -> Settings:
    values = {
        "state_dir": tmp_path / "state",
        "rings": Rings(directory=tmp_path / "rings"),
        "engine": Engine(enabled=False),
        "web": Web(port=0),
        **changes,
    }
    return Settings(**values)  # type: ignore[arg-type]


def fast_clock(speed: float = 25.0) -> ScaledClock:
    return ScaledClock(ORIGIN, time.monotonic_ns(), speed)


@pytest.fixture(name="build")
def _build(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes servers that are never run, on a database that is there already, and closes it."""
    servers: list[Server] = []
    open_database(settings(tmp_path).database_url, create=True).dispose()

    def build(**changes: object) -> Server:
        servers.append(Server(settings(tmp_path, **changes)))
        return servers[-1]

    yield build
    for server in servers:
        server._engine.dispose()


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server._turns > 0)
        yield server
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def wait_for(condition: Callable[[], object], seconds: float = 8) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(name="ring")
def _ring(tmp_path: Path) -> Iterator[PlainRing]:
    """A ring of this process with 40 s of cycles, 50 a second, that ends 2 s after the faster clock begins."""
    (tmp_path / "rings").mkdir()
    first_ns = ORIGIN.monotonic_ns - 38 * SECOND
    identity = rings.identity(monotonic_ns=first_ns - SECOND, wall_ns=ORIGIN.wall_ns - 39 * SECOND)
    ring = PlainRing(tmp_path / "rings", 2100, identity)
    for number in range(2000):
        ring.write(rings.payload(end_ns=first_ns + number * SECOND // 50))
    yield ring
    ring.close()


def stored(tmp_path: Path, question: str) -> list[tuple[object, ...]]:
    """What is in the database, read without the code under test."""
    with contextlib.closing(sqlite3.connect(tmp_path / "state/cyclewatch.db")) as connection:
        return connection.execute(question).fetchall()


def test_it_reads_judges_serves_and_stops_with_everything_written(tmp_path: Path, ring: PlainRing) -> None:
    """From the ring to the page and the store, and nothing is left open."""
    open_database(settings(tmp_path).database_url, create=True).dispose()  # or the last window is over before a look
    threads, files = threading.active_count(), psutil.Process().num_fds()
    server = Server(settings(tmp_path, detection=Detection(warmup_s=0)), fast_clock(speed=2.0))
    with running(server):
        url = server.web.url
        wait_for(lambda: "cyclewatch_cycle_median_seconds{" in httpx.get(f"{url}/metrics").text)
        assert 'cyclewatch_collector_success{collector="cycles"} 1.0' in httpx.get(f"{url}/metrics").text
        assert (httpx.get(f"{url}/readyz").status_code, httpx.get(f"{url}/readyz").text) == (200, "ready\n")
        assert httpx.get(f"{url}/healthz").status_code == 200
        wait_for(lambda: server.clock.now().monotonic_ns > ORIGIN.monotonic_ns + 12 * SECOND)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/metrics")
    assert stored(tmp_path, "SELECT sum(count) FROM windows") == [(2000,)]
    assert stored(tmp_path, "SELECT next_sequence FROM rings") == [(2001,)]
    wait_for(lambda: (threading.active_count(), psutil.Process().num_fds()) == (threads, files))


@pytest.mark.filterwarnings("ignore:Query string argument")  # SQLite has no password
def test_it_says_where_it_stores_without_a_password(tmp_path: Path) -> None:
    """Also one that stands among the options of the address."""
    address = f"sqlite:///{tmp_path / 'a.db'}?password=s3cret"
    with capture_logs() as logs, running(Server(settings(tmp_path, store={"url": address}), fast_clock())):
        pass
    (started,) = (entry for entry in logs if entry["event"] == "started")
    assert started["database"] == f"sqlite:///{tmp_path / 'a.db'}?password=***"


def test_a_second_daemon_goes_on_where_the_first_stopped(tmp_path: Path, ring: PlainRing) -> None:
    """Stopped in the middle of a window: every cycle is counted once."""
    open_database(settings(tmp_path).database_url, create=True).dispose()  # or the making of it takes the time
    clock = fast_clock(speed=2.0)
    with running(Server(settings(tmp_path), clock)) as server:
        wait_for(lambda: any(one.batch.complete_ns > ORIGIN.monotonic_ns for one in server.pipeline._rings.values()))
    assert stored(tmp_path, "SELECT sum(count) FROM windows") == [(1900,)]
    assert stored(tmp_path, "SELECT next_sequence FROM rings") == [(1901,)]
    with running(Server(settings(tmp_path), clock)):
        wait_for(lambda: clock.now().monotonic_ns > ORIGIN.monotonic_ns + 12 * SECOND)
    assert stored(tmp_path, "SELECT sum(count) FROM windows") == [(2000,)]


def test_before_the_first_turn_it_is_not_ready(build: Callable[..., Server]) -> None:
    server = build()
    assert (server._ready().good, server._ready().reason) == (False, "starting")
    assert server._healthy().good
    server._turn()
    assert server._ready().good


def test_a_pipeline_that_hangs_is_neither_healthy_nor_ready(build: Callable[..., Server]) -> None:
    """Kubernetes may start it anew."""
    server = build()
    server._turn()
    server._last_turn_s -= 60
    assert server._healthy().reason == "the pipeline has not turned for 60 s"
    assert not server._healthy().good
    assert not server._ready().good


def test_a_store_far_behind_makes_it_not_ready_but_healthy(build: Callable[..., Server]) -> None:
    """A restart would not help the database."""
    server = build(store={"max_pending": 10})
    server._turn()
    for _ in range(6):
        server._writer.submit(Unit(0))
    assert server._healthy().good
    assert "batches wait for the database" in server._ready().reason


def test_what_waits_on_disk_is_told_and_no_reason_to_be_called_not_ready(build: Callable[..., Server]) -> None:
    """The database is away, and nothing is lost by it."""
    server = build()
    server._turn()
    server._writer._spool.append(Unit(0))
    server._writer._spool.close()
    assert server._ready().good
    assert re.fullmatch("ready; [0-9]+ bytes wait on disk for the database", server._ready().reason)


def test_a_port_that_is_taken_ends_it_with_one_sentence(build: Callable[..., Server]) -> None:
    """Nothing has been started by then."""
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = build(web=Web(port=other.getsockname()[1]))
        with pytest.raises(WebError, match="Address already in use"):
            server.run()
    assert threading.active_count() == threads


def test_without_the_endpoint_it_listens_nowhere(tmp_path: Path) -> None:
    server = Server(settings(tmp_path, web=Web(enabled=False)), fast_clock())
    with running(server):
        assert not [one for one in psutil.Process().net_connections() if one.status == "LISTEN"]


def test_it_tells_of_its_own_work(build: Callable[..., Server]) -> None:
    """Queues, the store, and how far each living ring is behind; a record held back is not behind."""
    server = build()
    now = server.clock.now()
    records = cycles(20, first_end_ns=now.monotonic_ns - 3 * SECOND, spacing_ns=1, first_sequence=1)
    server.pipeline.take(batch(records, counters=RingCounters(written=50), lost=7), now)
    server._samples.put(Reading("server", "x", 1.0))
    server._turn()
    work = server._own_work()
    assert work.queues == {"samples": 1, "batches": 1}
    (ring,) = work.rings
    assert (ring.target, ring.rank, ring.behind_records, ring.lost) == ("server", "tp0", 30, 7)
    assert ring.behind_s >= 3
    server.pipeline.take(batch(records[:0], counters=RingCounters(written=50), next_sequence=50), now)
    server._turn()
    assert [(one.behind_records, one.behind_s) for one in server._own_work().rings] == [(1, 0.0)]


def test_a_failure_is_logged_when_it_comes_and_when_it_goes(build: Callable[..., Server]) -> None:
    """Not every second; the metrics show each."""
    server = build()
    with capture_logs() as events:
        for failures in ((), ("a broke",), ("a broke",), ("a broke", "b broke"), (), ()):
            server._outcomes.report(Outcome("cycles", 0.1, 0, failures, ""))
    assert [(event["event"], event.get("reason")) for event in events] == [
        ("collector failed", "a broke"),
        ("collector failed", "b broke"),
        ("collector works again", None),
    ]
    value = server.metrics.registry.get_sample_value
    assert value("cyclewatch_collector_failures_total", {"collector": "cycles"}) == 4
    assert value("cyclewatch_collector_success", {"collector": "cycles"}) == 1


def test_missed_runs_are_counted_from_zero(build: Callable[..., Server]) -> None:
    """Of every collector, so that the first one missed is an increase."""
    registry = build().metrics.registry
    missed = registry.get_sample_value("cyclewatch_collector_missed_runs_total", {"collector": "cycles"})
    assert missed == 0


def test_a_collector_that_never_works_grows_old(build: Callable[..., Server]) -> None:
    """From the start on, so that the alert about stale collectors sees it."""
    server = build()
    server._outcomes.report(Outcome("cycles", 0.1, 0, ("broken",), ""))
    last = server.metrics.registry.get_sample_value(
        "cyclewatch_collector_last_success_timestamp_seconds", {"collector": "cycles"}
    )
    assert last is not None
    assert abs(last - server.clock.now().wall_ns / 1e9) < 3600


def test_no_data_is_logged_when_its_reason_changes(build: Callable[..., Server]) -> None:
    server = build()
    with capture_logs() as events:
        for reason in ("", "no ring", "no ring", "no directory", ""):
            server._outcomes.report(Outcome("cycles", 0.1, 0, (), reason))
    assert [(event["event"], event["reason"]) for event in events] == [
        ("no data", "no ring"),
        ("no data", "no directory"),
        ("data again", ""),
    ]


def test_three_hundred_turns_leave_nothing_behind(build: Callable[..., Server], tmp_path: Path) -> None:
    """Descriptors, threads, queues: the same after 300 turns as after 60."""
    server = build()
    server._writer.start()
    seen: list[tuple[int, int]] = []
    for turn in range(300):
        at_ns = turn * SECOND
        records = cycles(20, first_end_ns=max(at_ns, 1), first_sequence=1 + 20 * turn)
        now = Now(at_ns, ORIGIN.wall_ns + at_ns)
        server.pipeline.take(batch(records, complete_ns=at_ns), now)
        server.pipeline.take(Reading("server", "engine.running_requests", float(turn)), now)
        server.pipeline.turn(now)
        if turn in (60, 299):
            wait_for(lambda: server._writer.pending == 0)
            seen.append((psutil.Process().num_fds(), threading.active_count()))
    cutter = server.pipeline._rings["1-100-7"].cutter
    assert seen[0] == seen[1]
    assert len(cutter._open) <= 2
    assert len(server.pipeline._readings.all()) == 3  # one of the engine, two of the cycles
    assert server._writer.stop(5)
    assert stored(tmp_path, "SELECT count(*) > 55 FROM windows") == [(1,)]


class Stopped:
    """Stands for a server that is asked to stop."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_and_the_second_is_the_process_own(number: signal.Signals) -> None:
    """Ctrl-C twice ends a daemon whose drain hangs; afterwards all is as before."""
    own: list[int] = []
    before = signal.signal(number, lambda sent, _: own.append(sent))
    try:
        handler = signal.getsignal(number)
        server = Stopped()
        with stop_on_signals(server):
            signal.raise_signal(number)
            assert (server.stops, own) == (1, [])
            signal.raise_signal(number)
            assert (server.stops, own) == (1, [number])
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_a_hangup_reloads_every_time() -> None:
    """And afterwards the handler is as before."""

    class Reloaded:
        times = 0

        def reload(self) -> None:
            self.times += 1

    handler, server = signal.getsignal(signal.SIGHUP), Reloaded()
    with reload_on_hangup(server):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert server.times == 2
    assert signal.getsignal(signal.SIGHUP) is handler


@pytest.fixture(name="process")
def _process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The real daemon, once it says that it has started."""
    (tmp_path / "cyclewatch.toml").write_text(
        f"state_dir = '{tmp_path}/state'\n[rings]\ndirectory = '{tmp_path}/rings'\n[web]\nport = 0\n"
    )
    command = [sys.executable, "-m", "cyclewatch.daemon", "run", "-c", str(tmp_path / "cyclewatch.toml")]
    environment = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            assert any("started" in line for line in process.stderr)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_the_process_and_it_ends_well(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Exit code 0, as systemd wants it."""
    process.send_signal(number)
    _, text = process.communicate(timeout=15)
    assert process.returncode == 0, text
    assert "everything_written=True" in text.splitlines()[-1]
    assert "Traceback" not in text


def test_the_daemon_loads_nothing_heavy() -> None:
    """An inference node's memory is not ours; and the hook's module belongs into SGLang's process."""
    code = f"import sys, cyclewatch.daemon.server; print(*(set(sys.modules) & set({REMOVED!r})))"
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == ""
