"""The daemon itself: start, run, drain, stop."""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.registry import build_collectors, known_quantities
from cyclewatch.collectors.runner import Runner
from cyclewatch.collectors.self_usage import RingProgress, Work
from cyclewatch.config.load import ConfigError
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.alerting import Alerting
from cyclewatch.daemon.clock import Clock, SystemClock, boot_id
from cyclewatch.daemon.control import Answer, ControlError, ControlServer
from cyclewatch.daemon.environment import Environment
from cyclewatch.daemon.lock import only_daemon
from cyclewatch.daemon.log import configure_logging
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_state import StoreState
from cyclewatch.daemon.notify import ServiceManager
from cyclewatch.daemon.outcomes import Outcomes
from cyclewatch.daemon.pause import Pause
from cyclewatch.daemon.pipeline import Pipeline
from cyclewatch.daemon.probing.prober import Prober, Surroundings
from cyclewatch.daemon.profiling.service import Profiling
from cyclewatch.daemon.reload import reloaded
from cyclewatch.daemon.runs import RunRegistry
from cyclewatch.daemon.sample_queue import SampleQueue
from cyclewatch.daemon.schedule import Schedule
from cyclewatch.daemon.store.database import shown_address
from cyclewatch.daemon.store.incidents import IncidentStore
from cyclewatch.daemon.store.probes import ProbeHistory
from cyclewatch.daemon.store.profiles import ProfileHistory
from cyclewatch.daemon.store.start import open_store
from cyclewatch.daemon.web.api.access import access_or_nobody
from cyclewatch.daemon.web.api.app import build_api
from cyclewatch.daemon.web.api.resources import Resources
from cyclewatch.daemon.web.app import Health, build_app
from cyclewatch.daemon.web.server import WebServer

log = structlog.get_logger(__name__)

_TURN_S = 1.0
_STALE_TURNS = 10
_DRAIN_S = 10.0
_CLOSE_S = 2.0


class Server:
    """One daemon. `run` blocks until `stop` is called or a signal arrives; `load` reads its configuration again.

    Raises:
        StoreError: the database cannot be opened.
        WebError: the port cannot be listened on.
        LockError: another daemon runs with the same state directory.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        nvml: NvmlDoor | None = None,
        load: Callable[[], Settings] | None = None,
    ) -> None:
        self.settings = settings
        self._load = load or (lambda: settings)
        self._reload_wanted = threading.Event()
        self._manager = ServiceManager(os.environ)
        self.clock = clock or SystemClock()
        self.metrics = Metrics()
        self._should_exit = threading.Event()
        self._samples = SampleQueue(self.clock.now, self._should_exit, self.metrics.samples_dropped)
        self._last_turn_s = time.monotonic()
        self._turns = 0
        node = settings.node or socket.gethostname()
        store = open_store(settings, node, lambda: self.clock.now().wall_ns)
        engine = self._engine = store.engine
        self._transactions, self._writer = store.transactions, store.writer
        self.history = store.history
        boot = boot_id(settings.host.proc)
        positions = self.history.ring_positions()
        self.discovery = Discovery(settings.targets)
        self.profiling = Profiling(
            settings,
            ProfileHistory(engine, node),
            self.history.status().get("profiling", (0, {}))[1],
            self.discovery,
            self._writer.submit,
            self.metrics,
            self.clock.now,
        )
        self._attribution = ThreadPoolExecutor(1, "attribution")
        self.pipeline = Pipeline(
            settings,
            self.metrics,
            RunRegistry(node, boot, self.history.runs()),
            Environment(self.history.facts()),
            self.profiling.board,
            self.history,
            positions,
            self._writer.submit,
            self._attribution,
        )
        resume = {key: position.next_sequence for key, position in positions.items()}
        collectors = build_collectors(settings, self.discovery, resume, self._own_work, nvml)
        self._outcomes = Outcomes(self.metrics, self.clock.now, [collector.name for collector in collectors])
        self._runners = [
            Runner(collector, self.clock.now, self._samples.put, self._outcomes.report) for collector in collectors
        ]
        self.metrics.state.quantities = known_quantities()
        self.prober = Prober(
            settings.probe,
            ProbeHistory(engine, node),
            Surroundings(self.metrics.state.readings, self.profiling.board.suspected, self.profiling.sampler),
            self._samples.put,
            self.metrics,
            self.clock.now,
        )
        self._alerting = Alerting(settings, engine, node, boot, self.metrics, self.clock)
        self._pause = Pause(self._hold, self._release)
        self._control = ControlServer(settings.state_dir, self._answer, self._answered)
        self._schedule = Schedule(self._runners, self.clock, self._outcomes.missed, self._outcomes.overdue)
        api = build_api(
            Resources(self.history, IncidentStore(engine), lambda: self.clock.now().wall_ns).operations(),
            access_or_nobody(settings.web.token, os.environ),
            lambda reason: self.metrics.api_refused.labels(reason).inc(),
        )
        self.web = WebServer(settings.web, build_app(self.metrics.page, self._healthy, self._ready, api))

    def stop(self) -> None:
        """Ask `run` to drain and return; may be called from any thread or a signal handler."""
        self._should_exit.set()

    def reload(self) -> None:
        """Ask for the configuration to be read again; may be called from any thread or a signal handler."""
        self._reload_wanted.set()

    def run(self) -> None:
        """Sample, judge and store until asked to stop; then drain."""
        with only_daemon(self.settings.state_dir):
            self._run()

    def _run(self) -> None:
        if self.settings.web.enabled:
            self.web.start()
        self._writer.start()
        self._schedule.start()
        self.profiling.start()
        self.prober.start()
        self._alerting.start()
        self._listen()
        log.info(
            "started",
            database=shown_address(self._engine.url),
            rings=str(self.settings.rings.directory),
            metrics=f"{self.web.url}/metrics" if self.settings.web.enabled else "off",
        )
        try:
            while not self._should_exit.is_set():
                self._work(self.clock.real_seconds(_TURN_S))
                if self._has_sampled():
                    self._manager.turned(self._status)
                if self._reload_wanted.is_set():
                    self._reload_wanted.clear()
                    self._reload()
        finally:
            self._manager.stopping()
            self._drain()

    def _work(self, turn_s: float) -> None:
        """One turn: let samples gather for `turn_s` real seconds, take them, and close and judge windows.

        To wake for each of them would cost more than what is done with them.
        """
        self._should_exit.wait(turn_s)
        self._schedule.look()
        self._take_all()
        if self._pause.active:  # nothing comes, and the daemon should cost nothing now
            self._last_turn_s = time.monotonic()
        else:
            self._turn()

    def _take_all(self) -> None:
        for sample, now in self._samples.take():
            self.pipeline.take(sample, now)

    def _turn(self) -> None:
        start_s = time.monotonic()
        self.pipeline.turn(self.clock.now())
        self.metrics.turn_seconds.observe(time.monotonic() - start_s)
        self.metrics.state.store = StoreState(self._writer.waiting, self._writer.failures, self._writer.dropped)
        self._last_turn_s = time.monotonic()
        self._turns += 1

    def _reload(self) -> None:
        """Take over what can be changed while sampling goes on; a wrong configuration leaves all as it is."""
        self._manager.reloading()
        try:
            wanted = reloaded(self.settings, self._load())
        except ConfigError as error:
            self.metrics.reloads.labels("refused").inc()
            reason = "; ".join(str(error).splitlines())
            log.error("the configuration is wrong; the one before holds", reason=reason)  # noqa: TRY400 (one line)
        else:
            self._apply(wanted.settings)
            self.metrics.reloads.labels("applied").inc()
            log.info("configuration read again", changed=list(wanted.changed), need_restart=list(wanted.waiting))
        self._manager.ready(self._status())

    def _apply(self, settings: Settings) -> None:
        before, self.settings = self.settings, settings
        configure_logging(settings.log)
        self.pipeline.take_settings(settings)
        self.profiling.sampler.leave_alone(settings.detection.warmup_s)
        if (settings.alerts, settings.incidents) != (before.alerts, before.incidents):
            self._alerting.take_settings(settings)

    def _has_sampled(self) -> bool:
        """Whether a collector has been heard of, be it that there is nothing to read."""
        return self._outcomes.any or not self._runners

    def _status(self) -> str:
        """One line for `systemctl status`."""
        state, work = self.metrics.state, self._own_work()
        servers = len({ring.target for ring in work.rings})
        regressions = sum(phase.regression_open for phase in state.phases.values())
        behind_s = max((ring.behind_s for ring in work.rings), default=0.0)
        return (
            f"servers watched: {servers}, series with an open regression: {regressions}, "
            f"behind: {behind_s:.1f} s, batches waiting for the database: {self._writer.waiting}"
        )

    def _drain(self) -> None:
        """Judge what has been sampled, write what has been judged, close everything."""
        self._control.stop()
        self.prober.stop()
        self._pause.end()
        self._schedule.stop()
        self._take_all()
        self.pipeline.turn(self.clock.now())
        self.pipeline.flush(self.clock.now(), checkpoint=True)
        self._attribution.shutdown()
        self.profiling.stop()
        self._alerting.stop()
        written = self._writer.stop(_DRAIN_S)
        self.web.stop()
        for runner in self._runners:
            runner.close(_CLOSE_S)
        self._engine.dispose()
        log.info("stopped", everything_written=written)

    def _own_work(self) -> Work:
        """For the collector of the daemon's own use; called from its thread."""
        now_ns = self.clock.now().monotonic_ns
        return Work(
            queues={"samples": self._samples.waiting, "batches": self._writer.waiting},
            store_busy_ns=self._transactions.busy_ns,
            store_rows=self._transactions.rows,
            rings=tuple(
                RingProgress(
                    target=ring.target,
                    rank=ring.rank,
                    behind_records=ring.behind,
                    behind_s=(now_ns - ring.newest_ns) / 1e9 if ring.behind > 1 and ring.newest_ns else 0.0,
                    lost=ring.lost,
                )
                for ring in self.metrics.state.rings.values()
                if ring.alive
            ),
        )

    def _listen(self) -> None:
        try:
            self._control.start()
        except ControlError as error:
            log.error("the command line cannot ask this daemon", reason=str(error))  # noqa: TRY400 (one sentence)

    def _answer(self, question: Mapping[str, Any]) -> Answer:
        """To the command line; called from threads of its connections."""
        for part in (self.profiling, self._pause, self.prober):
            if (answer := part.answer(question)) is not None:
                return answer
        return {"error": "this daemon does not know the question: is it of another release than the command?"}

    def _answered(self, answer: Answer) -> None:
        for part in (self.profiling, self._pause):
            part.done(answer)

    def _hold(self) -> bool:
        """Stop all sampling; what servers ask on Kineto's channel is answered, since they would wait for it."""
        if not self.profiling.sampler.hold():
            return False
        self._schedule.pause()
        return True

    def _release(self) -> None:
        """Go on with sampling."""
        self._schedule.resume()
        self.profiling.sampler.release()

    def _healthy(self) -> Health:
        age_s = time.monotonic() - self._last_turn_s
        if age_s > _STALE_TURNS * _TURN_S:
            return Health(good=False, reason=f"the pipeline has not turned for {age_s:.0f} s")
        return Health(good=True, reason="ok")

    def _ready(self) -> Health:
        if self._turns == 0:
            return Health(good=False, reason="starting")
        health = self._healthy()
        if not health.good:
            return health
        if self._writer.pending > self.settings.store.max_pending // 2:
            return Health(good=False, reason=f"{self._writer.pending} batches wait for the database")
        if self._writer.spooled_bytes:
            return Health(good=True, reason=f"ready; {self._writer.spooled_bytes} bytes wait on disk for the database")
        return Health(good=True, reason="ready")
