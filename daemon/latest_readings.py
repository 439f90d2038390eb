"""The latest reading of every series, for as long as it tells how things are."""

import threading

from cyclewatch.collectors.records import Reading
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.store.unit import Series

_AGE_MIN_S = 60.0


class LatestReadings:
    """What is shown of readings. The pipeline's thread notes them and lets them age; any may ask for them."""

    def __init__(self, settings: Settings) -> None:
        self._ages_s = _ages_s(settings)
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
                if now_ns - taken_ns <= self._age_s(reading) * 1e9
            }

    def forget(self, target: str) -> None:
        """Drop all of a target."""
        with self._lock:
            self._latest = {series: one for series, one in self._latest.items() if one[0].target != target}

    def all(self) -> list[Reading]:
        """Every reading there is, in the order in which its series first came."""
        with self._lock:
            return [reading for reading, _ in self._latest.values()]

    def _age_s(self, reading: Reading) -> float:
        return self._ages_s.get(reading.name.partition(".")[0], _AGE_MIN_S)


def _ages_s(settings: Settings) -> dict[str, float]:
    """How old a reading may become, by the first word of its name: three times the longest interval of its source."""
    host, gpu, rings, passes = settings.host, settings.gpu, settings.rings, settings.forward_pass
    longest_s = {
        "cycles": max(settings.windows.length_s, rings.interval_s, passes.interval_s),
        "engine": settings.engine.interval_s,
        "gpu": max(gpu.interval_s, gpu.slow_interval_s),
        "host": max(host.interval_s, host.look_interval_s, host.survey_interval_s),
        "self": settings.self.interval_s,
    }
    ages_s = {source: max(_AGE_MIN_S, 3 * interval_s) for source, interval_s in longest_s.items()}
    return {**ages_s, "probe": 2 * settings.probe.interval_s}
