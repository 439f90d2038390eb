"""The latest reading of every series, for as long as it tells how things are."""

import threading

from cyclewatch.collectors.records import Reading
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.store.unit import Series

_AGE_MIN_S = 20.0


class LatestReadings:
    """What is shown of readings. The pipeline's thread notes them and lets them age; any may ask for them."""

    def __init__(self, settings: Settings) -> None:
        slowest_s = max(settings.engine.interval_s, settings.host.interval_s, settings.gpu.slow_interval_s)
        self._age_ns = int(3e9 * max(_AGE_MIN_S, slowest_s))
        self._probe_age_ns = int(2e9 * settings.probe.interval_s)
        self._lock = threading.Lock()
        self._latest: dict[Series, tuple[Reading, int]] = {}

    def note(self, series: Series, reading: Reading, taken_ns: int) -> None:
        """Take a reading of a series, and when it was taken (monotonic)."""
        with self._lock:
            self._latest[series] = reading, taken_ns

    def age(self, now_ns: int) -> None:
        """Drop what is too old: a value of a server that is away must not pass for the present one."""
        with self._lock:
            self._latest = {
                series: (reading, taken_ns)
                for series, (reading, taken_ns) in self._latest.items()
                if now_ns - taken_ns <= (self._probe_age_ns if reading.name.startswith("probe.") else self._age_ns)
            }

    def forget(self, target: str) -> None:
        """Drop all of a target."""
        with self._lock:
            self._latest = {series: one for series, one in self._latest.items() if one[0].target != target}

    def all(self) -> list[Reading]:
        """Every reading there is, in the order in which its series first came."""
        with self._lock:
            return [reading for reading, _ in self._latest.values()]
