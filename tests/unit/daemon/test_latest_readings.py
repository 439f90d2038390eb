"""How long a reading is shown that no longer comes."""

from typing import Any

import pytest

from cyclewatch.collectors.records import Reading
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.latest_readings import LatestReadings

SECOND = 10**9


def shown_s(name: str, **settings: Any) -> int:
    """For how many seconds a reading of this name is shown, to ten seconds."""
    latest = LatestReadings(Settings(**settings))
    latest.note(("server", name, ()), Reading("server", name, 1.0), 0)
    age_s = 0
    while latest.all():
        age_s += 10
        latest.age(age_s * SECOND)
    return age_s - 10


@pytest.mark.parametrize(
    ("section", "key", "name"),
    [
        ("engine", "interval_s", "engine.running_requests"),
        ("host", "interval_s", "host.on_cpu_ratio"),
        ("host", "look_interval_s", "host.load"),
        ("host", "survey_interval_s", "host.other_processes_ratio"),
        ("gpu", "interval_s", "gpu.power_watts"),
        ("gpu", "slow_interval_s", "gpu.memory_used_bytes"),
        ("self", "interval_s", "self.open_files"),
        ("windows", "length_s", "cycles.stalled_ratio"),
        ("rings", "interval_s", "cycles.stalled_ratio"),
        ("forward_pass", "interval_s", "cycles.stalled_ratio"),
    ],
)
def test_a_reading_is_shown_until_the_next_one_comes(section: str, key: str, name: str) -> None:
    """However rarely it comes, and if two looks fail; but no longer because something else comes rarely."""
    assert shown_s(name, **{section: {key: 200.0}}) == 600
    others = {"self", "engine"} - {section}
    for other in others:
        assert shown_s(f"{other}.x", **{section: {key: 200.0}}) == 60


def test_without_settings_no_reading_is_shown_for_more_than_two_minutes() -> None:
    """Save the probe's, which comes once an hour."""
    for name in known_quantities():
        assert shown_s(name) == (7200 if name.startswith("probe.") else 90 if name.startswith("host.") else 60)
    assert shown_s("of.another_kind") == 60
