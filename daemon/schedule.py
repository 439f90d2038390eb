"""The schedule: APScheduler drives the collectors' runners; every run that is left out is counted."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_SUBMITTED, JobSubmissionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from cyclewatch.collectors.runner import Runner
from cyclewatch.daemon.clock import Clock

_STEP_NS = 10**9


def _clocks_apart_ns() -> int:
    """By how much UTC is before the monotonic clock, which nobody puts."""
    return time.time_ns() - time.monotonic_ns()


class Schedule:
    """Runs every collector at its interval, each in a thread of the pool, so that a hanging one stops no other.

    `missed` is told of runs that were left out: because the one before had not ended, because the machine was too busy
    to start them in time, or in a pause. `overdue` is told at each look of each collector whether it hangs.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        clock: Clock,
        missed: Callable[[str, int], None],
        overdue: Callable[[str, bool], None],
        clocks_apart_ns: Callable[[], int] = _clocks_apart_ns,
    ) -> None:
        self._clocks_apart_ns = clocks_apart_ns
        self._apart_ns = clocks_apart_ns()
        self._runners = runners
        self._missed = missed
        self._overdue = overdue
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(2 * len(runners) + 1, {"thread_name_prefix": "collector"})},
            # An instance more than one, so that the runner itself sees, and counts, a run that comes too early.
            job_defaults={"coalesce": True, "max_instances": 2, "misfire_grace_time": None},
            timezone="UTC",
        )
        self._interval_s: dict[str, float] = {}
        self._last_due: dict[str, datetime] = {}
        # All at the same moments: apart they would wait less for Python's lock, and APScheduler would wake more often.
        now = datetime.now(UTC)
        for runner in runners:
            name = runner.collector.name
            interval_s = self._interval_s[name] = clock.real_seconds(runner.collector.interval_s)
            self._scheduler.add_job(
                self._run, "interval", args=[runner], id=name, seconds=interval_s, next_run_time=now
            )
        self._scheduler.add_listener(self._note_due, EVENT_JOB_SUBMITTED | EVENT_JOB_MAX_INSTANCES)

    def start(self) -> None:
        """Start; the first collection of each collector is at once."""
        self._scheduler.start()

    def look(self) -> None:
        """To be called about once a second: tell who hangs, and begin anew where the clock was put.

        APScheduler goes by UTC. Put back by an hour, nothing would run for that hour.
        """
        for runner in self._runners:
            self._overdue(runner.collector.name, runner.overdue())
        apart_ns = self._clocks_apart_ns()
        if abs(apart_ns - self._apart_ns) > _STEP_NS:
            self._apart_ns = apart_ns
            self._last_due.clear()
            for job in self._scheduler.get_jobs():
                job.modify(next_run_time=datetime.now(UTC))

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
            self._missed(runner.collector.name, 1)

    def _note_due(self, event: JobSubmissionEvent) -> None:
        """Count what APScheduler left out itself: of runs that are due together it starts the last one alone."""
        name = event.job_id
        if name not in self._interval_s:
            return
        due = event.scheduled_run_times[-1]
        passed_s = (due - self._last_due.get(name, due)).total_seconds()
        left_out = max(0, round(passed_s / self._interval_s[name]) - 1)
        if event.code == EVENT_JOB_MAX_INSTANCES:
            left_out += 1
        if left_out:
            self._missed(name, left_out)
        self._last_due[name] = due
