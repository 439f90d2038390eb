"""What every collector must do; one that is added to the registry is tested here the moment it is."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cyclewatch.collectors.base import Collector, Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.records import Failure, NoData
from cyclewatch.collectors.registry import build_collectors
from cyclewatch.collectors.self_usage import OWN
from cyclewatch.config.section import Section
from cyclewatch.config.settings import Host, Rings, Settings

NAMES = [collector.name for collector in build_collectors(Settings(), Discovery(()), {})]
SECTIONS = [
    name
    for name, field in Settings.model_fields.items()
    if isinstance(field.default, Section)
    and {"enabled", "interval_s"} <= set(type(field.default).model_fields)
    and name not in {"profiling", "probe"}  # they are no collectors
]
"""Sections of the configuration that switch a collector."""


def build(settings: Settings, own: Path = OWN) -> list[Collector]:
    return build_collectors(settings, Discovery(()), {}, own=own)


@pytest.fixture(name="collector", params=NAMES)
def _collector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Collector]:
    """The collector in an empty world: no rings, no processes (not even its own), no servers."""
    (tmp_path / "proc").mkdir()
    settings = Settings(
        rings=Rings(directory=tmp_path / "rings"),
        host=Host(proc=tmp_path / "proc", sys=tmp_path / "sys", cgroup=tmp_path / "cgroup"),
    )
    collector = next(one for one in build(settings, tmp_path / "proc/self") if one.name == request.param)
    yield collector
    collector.close()


def test_names_are_unique() -> None:
    """They are labels of metrics."""
    assert len(NAMES) == len(set(NAMES)) >= 3


@pytest.mark.parametrize("section", SECTIONS)
def test_each_collector_has_a_section_that_switches_it_and_sets_its_interval(section: str) -> None:
    """Off means that just this one is not built."""
    changed = {section: getattr(Settings(), section).model_copy(update={"enabled": False, "interval_s": 123.0})}
    (gone,) = set(NAMES) - {one.name for one in build(Settings(**changed))}
    changed = {section: getattr(Settings(), section).model_copy(update={"interval_s": 123.0})}
    assert [one.name for one in build(Settings(**changed)) if one.interval_s == 123.0] == [gone]


def test_every_collector_can_be_switched_off() -> None:
    """As many sections as collectors."""
    assert len(SECTIONS) == len(NAMES)


def test_an_interval_is_positive(collector: Collector) -> None:
    assert collector.interval_s > 0


def test_an_empty_world_is_no_data_or_a_failure_and_raises_nothing(collector: Collector) -> None:
    """And there is a sentence that tells a person what is missing."""
    samples = list(collector.collect(Now(10**12, 10**18)))
    assert samples
    assert all(isinstance(sample, NoData | Failure) and sample.reason for sample in samples)


@pytest.mark.parametrize("step_ns", [0, -(10**9), -(10**12), 10**18])
def test_time_that_stands_or_goes_backwards_raises_nothing(collector: Collector, step_ns: int) -> None:
    """A machine that slept, or a clock that is replaced in a test of another part."""
    for turn in range(5):
        list(collector.collect(Now(10**13 + turn * step_ns, 10**18 + turn * step_ns)))


def test_closing_twice_is_harmless_and_leaves_nothing_open(collector: Collector) -> None:
    before = psutil.Process().num_fds()
    list(collector.collect(Now(10**12, 10**18)))
    collector.close()
    collector.close()
    assert psutil.Process().num_fds() == before


def test_a_closed_collector_can_begin_anew(collector: Collector) -> None:
    """After `close` it is as new, not broken."""
    collector.close()
    assert list(collector.collect(Now(10**12, 10**18)))
