"""The schedule: APScheduler drives the collectors' runners; missed runs are counted."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from cyclewatch.collectors.runner import Runner
from cyclewatch.daemon.clock import Clock

_WATCH_INTERVAL_S = 1.0


class Schedule:
    """Runs every collector at its interval, each in a thread of the pool, so that a hanging one stops no other."""

    def __init__(
        self,
        runners: Sequence[Runner],
        clock: Clock,
        missed: Callable[[str], None],
        overdue: Callable[[str, bool], None],
    ) -> None:
        self._runners = runners
        self._missed = missed
        self._overdue = overdue
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2 * len(runners) + 1, {"thread_name_prefix": "collector"})},
            # An instance more than one, so that the runner itself sees, and counts, a run that comes too early.
            job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": None},
            timezone="UTC",
        )
        for runner in runners:
            self._scheduler.add_job(
                self._run,
                "interval",
                args=[runner],
                seconds=clock.real_seconds(runner.collector.interval_s),
                next_run_time=datetime.now(UTC),
            )
        self._scheduler.add_job(self._watch, "interval", seconds=_WATCH_INTERVAL_S)

    def start(self) -> None:
        """Start; the first collection of each collector is at once."""
        self._scheduler.start()

    def pause(self) -> None:
        """Start no more runs until `resume`."""
        self._scheduler.pause()

    def resume(self) -> None:
        """Go on; what was due meanwhile runs once, at once."""
        self._scheduler.resume()

    def stop(self) -> None:
        """Start no more runs; does not wait for one that hangs."""
        self._scheduler.shutdown(wait=False)

    def _run(self, runner: Runner) -> None:
        if not runner.run():
            self._missed(runner.collector.name)

    def _watch(self) -> None:
        for runner in self._runners:
            self._overdue(runner.collector.name, runner.overdue())
