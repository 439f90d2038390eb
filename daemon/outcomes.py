"""What becomes of collections: metrics of each, and a line in the log when something appears or goes."""

from collections.abc import Callable, Iterable

import structlog

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.runner import Outcome
from cyclewatch.daemon.metrics import Metrics

log = structlog.get_logger(__name__)


class Outcomes:
    """Hears of every collection; called from the threads of the collectors, which `names` names."""

    def __init__(self, metrics: Metrics, clock: Callable[[], Now], names: Iterable[str]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._no_data: dict[str, str] = {}
        self._failing: dict[str, tuple[str, ...]] = {}
        for name in names:
            metrics.collector_missed.labels(name)  # a counter that shows with its first miss has not grown
            metrics.collector_last.labels(name).set(clock().wall_ns / 1e9)  # one that never works grows old, too

    @property
    def any(self) -> bool:
        """Whether a collector has been heard of yet, be it that there was nothing to read."""
        return bool(self._failing)

    def report(self, outcome: Outcome) -> None:
        """One collection is over; a failure is logged when it appears and when it goes, not every second."""
        name = outcome.collector
        self._metrics.collector_seconds.labels(name).observe(outcome.duration_s)
        self._metrics.collector_success.labels(name).set(0.0 if outcome.failures else 1.0)
        self._metrics.collector_failures.labels(name).inc(len(outcome.failures))
        if not outcome.failures:
            self._metrics.collector_last.labels(name).set(self._clock().wall_ns / 1e9)
        before = self._failing.get(name, ())
        for reason in outcome.failures:
            if reason not in before:
                log.error("collector failed", collector=name, reason=reason, exc_info=outcome.error)
        if before and not outcome.failures:
            log.info("collector works again", collector=name)
        self._failing[name] = outcome.failures
        if outcome.no_data != self._no_data.get(name, ""):
            log.info("no data" if outcome.no_data else "data again", collector=name, reason=outcome.no_data)
            self._no_data[name] = outcome.no_data

    def missed(self, name: str, runs: int) -> None:
        """So many runs were left out."""
        self._metrics.collector_missed.labels(name).inc(runs)

    def overdue(self, name: str, overdue: bool) -> None:  # noqa: FBT001 (a callback's one value)
        """Whether a collection is past its deadline."""
        self._metrics.collector_overdue.labels(name).set(float(overdue))
