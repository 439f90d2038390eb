"""Readings that stay as they are need not be told every time: limits, links, errors that do not happen."""

from cyclewatch.collectors.records import Reading

REPEAT_NS = 30_000_000_000
"""A value that stays is told again after this; what is older than a minute is no longer shown at /metrics."""


class SteadyReadings:
    """What was told last of each series."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, tuple[tuple[str, str], ...]], tuple[float, int]] = {}

    def is_news(self, reading: Reading, now_ns: int) -> bool:
        """Whether to tell it: the value is another one, or was told a while ago."""
        key = reading.target, reading.name, reading.labels
        told = self._told.get(key)
        if told is not None and told[0] == reading.value and 0 <= now_ns - told[1] < REPEAT_NS:
            return False
        self._told[key] = reading.value, now_ns
        return True
