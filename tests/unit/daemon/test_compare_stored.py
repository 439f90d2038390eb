"""`cyclewatch compare` on what the daemon has stored."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from cyclewatch.config.store import Store
from cyclewatch.daemon.compare.compare import compare_sources
from cyclewatch.daemon.compare.comparison import Comparison
from cyclewatch.daemon.compare.document import comparison_document
from cyclewatch.daemon.compare.html import comparison_html
from cyclewatch.daemon.compare.markdown import comparison_markdown
from cyclewatch.daemon.compare.sources import SourceError, Sources
from cyclewatch.daemon.compare.stored import Wanted
from cyclewatch.daemon.store.retention import Upkeep
from cyclewatch.daemon.store.unit import Run, StoredSample, StoredWindow, Unit
from cyclewatch.detectors.load.speed_of_light import ServedModel
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.windows import cells_of
from served_models import LLAMA_ON_H200
from simulated import cycles
from units import KERNEL, REGRESSION, RUN, SECOND, profile, stored
from watched import Watched

WINDOW = 5 * SECOND
DAY_NS = 86_400 * SECOND
NOW_NS = 1_800_000_000 * SECOND
BEGAN_NS = NOW_NS - 3600 * SECOND
WINDOWS = 40


class Past:
    """A store, and comparisons of what is in it."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.served: ServedModel | None = None

    @property
    def engine(self) -> Engine:
        return self._watched.engine

    def note(self, **parts: Any) -> None:
        runs = parts.pop("runs", [RUN])
        self._watched.writer.write(Unit(0, runs=runs, **parts))

    def windows(self, from_ns: int, cycle_ns: int, *, run: Run = RUN, rank: str = "tp0", seed: int = 1) -> None:
        """Windows of decodes from an instant on, with noise, and a reading that follows them."""
        random = np.random.default_rng(seed)
        windows, samples = [], []
        for number in range(WINDOWS):
            at_ns = from_ns + number * WINDOW
            times = (cycle_ns * np.exp(random.normal(0, 0.02, 50))).astype(np.int64)
            cells = cells_of(Phase.DECODE, cycles(50, times))
            windows += [StoredWindow(run.key, rank, at_ns, WINDOW, cell) for cell in cells]
            value = 0.9 if cycle_ns < 6_000_000 else 0.6
            labels = (("process", "scheduler"), ("rank", rank))
            noisy = value + random.normal(0, 0.001)
            samples.append(StoredSample(run.target, "host.cpu_frequency_ratio", labels, at_ns, noisy))
        self.note(runs=[run], windows=windows, samples=samples)

    def compare(self, first: str, second: str | None = None, **wanted: str) -> Comparison:
        sources = Sources(lambda: self.engine, NOW_NS)
        return compare_sources(sources, first, second, Wanted(**wanted), lambda: self.engine, self._serves)

    def _serves(self, run: Run) -> ServedModel:
        if self.served is None:
            raise ValueError(f"there is no config.json of {run.model} here")
        return self.served


@pytest.fixture(name="past")
def _past(tmp_path: Path) -> Iterator[Past]:
    watched = Watched(tmp_path)
    yield Past(watched)
    watched.close()


@pytest.fixture(name="slowed")
def _slowed(past: Past) -> Past:
    """Decodes of 5 ms, and of 7.5 ms from an hour ago on."""
    past.windows(BEGAN_NS - WINDOWS * WINDOW, 5_000_000)
    past.windows(BEGAN_NS, 7_500_000, seed=2)
    return past


def test_two_stretches_of_time(slowed: Past) -> None:
    """The cause is among the readings."""
    found = slowed.compare("-2h/-1h", "-1h/now")
    assert found.comparable
    assert found.slower == pytest.approx(1.5, abs=0.02)
    assert found.ci is not None
    assert found.ci[0] < 0.5 < found.ci[1]
    assert found.causes[0].kind == "cpu_frequency"
    (pair,) = found.cycles
    assert pair.name == "decode"
    assert pair.before is not None
    assert pair.before.count == 50 * WINDOWS
    assert pair.before.mean_us == pytest.approx(5000, rel=0.01)
    assert found.suspicions[0].metric == "host.cpu_frequency_ratio"
    assert comparison_document(found)["summary"]["of"] == "decode"


def test_a_step_against_the_least_that_it_takes(slowed: Past) -> None:
    """A small decode of Llama-3-8B needs 3.1 ms on an H200: above it are 1.9 ms before and 4.4 ms after."""
    slowed.served = LLAMA_ON_H200
    found = slowed.compare("-2h/-1h", "-1h/now")
    assert found.bound is not None
    assert found.bound.before.at_least_us == pytest.approx(found.bound.after.at_least_us)
    assert found.bound.after.above_us - found.bound.before.above_us == pytest.approx(2500, rel=0.05)
    assert found.warnings == ()
    document = comparison_document(found)["physical_bound"]
    assert document["before"]["speed_of_light_ratio"] == pytest.approx(found.bound.before.ratio, abs=1e-4)
    assert (document["after"]["gpu"], document["after"]["bound_by"]) == ("H200", "memory")
    assert any("a step of this load takes at least 3." in sentence for sentence in found.findings)
    for page in (comparison_markdown(found), comparison_html(found)):
        assert "Against the speed of light" in page


def test_where_the_model_is_not_known_that_is_said_once(slowed: Past) -> None:
    found = slowed.compare("-2h/-1h", "-1h/now")
    assert found.bound is None
    assert found.warnings == ("the least that a step takes is not known: there is no config.json of tiny here",)
    assert comparison_document(found)["physical_bound"] is None


def test_times_may_be_written_out(slowed: Past) -> None:
    """2027-01-15T08:00Z is now; UTC where no zone is given."""
    found = slowed.compare("2027-01-15T06:00/2027-01-15T07:00", "2027-01-15T08:00+01:00/2027-01-15T09:00+01:00")
    assert found.slower == pytest.approx(1.5, abs=0.02)


def test_equal_stretches_have_no_cause(past: Past) -> None:
    past.windows(BEGAN_NS - WINDOWS * WINDOW, 5_000_000)
    past.windows(BEGAN_NS, 5_000_000, seed=2)
    found = past.compare("-2h/-1h", "-1h/now")
    assert found.causes == ()
    assert found.slower == pytest.approx(1.0, abs=0.02)


def test_a_regression_has_both_sides(slowed: Past) -> None:
    regression = replace(REGRESSION, started_at_ns=BEGAN_NS, detected_at_ns=BEGAN_NS + 40 * SECOND)
    slowed.note(regressions=[stored(regression)])
    found = slowed.compare("regression:1")
    assert found.slower == pytest.approx(1.5, abs=0.02)
    assert (found.before.label, found.after.label) == ("before regression:1", "regression:1")
    with pytest.raises(SourceError, match="give two of one kind"):
        slowed.compare("regression:1", "-1h/now")
    with pytest.raises(SourceError, match="no such regression"):
        slowed.compare("regression:7")


def test_a_regression_after_a_long_break_has_a_before(past: Past) -> None:
    """The server was down for two hours; what it was like is known from before that."""
    past.windows(BEGAN_NS - 7200 * SECOND, 5_000_000)
    past.windows(BEGAN_NS, 7_500_000, seed=2)
    regression = replace(REGRESSION, started_at_ns=BEGAN_NS, detected_at_ns=BEGAN_NS + 40 * SECOND)
    past.note(regressions=[stored(regression)])
    assert past.compare("regression:1").slower == pytest.approx(1.5, abs=0.02)


def test_two_runs_by_their_keys(past: Past) -> None:
    """The beginning of a key will do where only one run has it; what differs between them is named."""
    long = WINDOWS * WINDOW
    old = replace(RUN, key="node|boot|1-2-3", started_at_ns=BEGAN_NS - 2 * long, last_seen_ns=BEGAN_NS - long)
    new = replace(RUN, key="node|boot|1-9-9", started_at_ns=BEGAN_NS, last_seen_ns=BEGAN_NS + long)
    new = replace(new, fingerprint="beef", arguments={"page_size": 64})
    past.windows(old.started_at_ns, 5_000_000, run=old)
    past.windows(new.started_at_ns, 7_500_000, run=new, seed=2)
    found = past.compare("run:node|boot|1-2", f"run:{new.key}")
    assert found.slower == pytest.approx(1.5, abs=0.02)
    assert any("page_size changed from 1 to 64" in finding for finding in found.findings)
    with pytest.raises(SourceError, match="2 runs begin so"):
        past.compare("run:node", "run:node")
    with pytest.raises(SourceError, match="no such run; the latest are"):
        past.compare("run:nobody", "run:node")


def test_another_model_or_gpu_is_shown_and_not_claimed(past: Past) -> None:
    gpus = ({"gpu0.model": "NVIDIA H100"}, {"gpu0.model": "NVIDIA H200"})
    for number, (environment, model) in enumerate(zip(gpus, ("small", "large"), strict=True)):
        at_ns = BEGAN_NS - (1 - number) * WINDOWS * WINDOW
        run = replace(
            RUN, key=f"r{number}", model=model, environment=environment, started_at_ns=at_ns, last_seen_ns=at_ns + 1
        )
        past.windows(at_ns, 5_000_000 * (number + 1), run=run, seed=number)
    found = past.compare("-2h/-1h", "-1h/now")
    assert not found.comparable
    assert found.warnings[:2] == (
        "other model: small before, large after",
        "other hardware: NVIDIA H100 before, NVIDIA H200 after",
    )
    assert found.causes == ()
    assert found.split


def test_of_several_servers_one_must_be_chosen(slowed: Past) -> None:
    other = replace(RUN, key="other", target="other")
    slowed.windows(BEGAN_NS, 5_000_000, run=other)
    with pytest.raises(SourceError, match="choose one with --target"):
        slowed.compare("-2h/-1h", "-1h/now")
    assert slowed.compare("-2h/-1h", "-1h/now", target="server").slower == pytest.approx(1.5, abs=0.02)
    with pytest.raises(SourceError, match="'nobody' has no cycles then"):
        slowed.compare("-2h/-1h", "-1h/now", target="nobody")


def test_ranks_and_phases_that_are_not_there_are_refused(slowed: Past) -> None:
    slowed.windows(BEGAN_NS, 5_000_000, rank="tp1")
    with pytest.raises(SourceError, match="--rank 'tp1': not on both sides; what both have: tp0"):
        slowed.compare("-2h/-1h", "-1h/now", rank="tp1")
    with pytest.raises(SourceError, match="--phase 'extend': not on both sides; what both have: decode"):
        slowed.compare("-2h/-1h", "-1h/now", phase="extend")


def test_time_in_which_nothing_was_seen_is_refused(slowed: Past) -> None:
    with pytest.raises(SourceError, match="no cycles are stored of that time"):
        slowed.compare("-9w/-8w", "-1h/now")


def test_two_stored_profiles(past: Past) -> None:
    slower = replace(KERNEL, total_ns=60)
    past.note(profiles=[profile("p1"), profile("p2", kernels=(slower,)), profile("p3", kernels=None)])
    found = past.compare("profile:1", "profile:2")
    assert found.kernels is not None
    (kernel,) = found.kernels.kernels
    assert kernel.before is not None
    assert kernel.after is not None
    assert kernel.after.mean_ns == 2 * kernel.before.mean_ns
    with pytest.raises(SourceError, match="has no kernels"):
        past.compare("profile:1", "profile:3")
    with pytest.raises(SourceError, match="no such profile"):
        past.compare("profile:1", "profile:9")


def test_what_is_kept_by_the_hour_is_said_to_be(slowed: Past) -> None:
    """In the report of every form, since all of them have warnings and facts."""
    assert slowed.compare("-2h/-1h", "-1h/now").before.facts["windows"] == f"{WINDOWS} of 5 s"
    Upkeep(
        slowed.engine, "node", Store(fine_days=0.5, minute_days=1), lambda: NOW_NS + 2 * DAY_NS, lambda: None
    ).catch_up()
    found = slowed.compare("-2h/-1h", "-1h/now")
    assert found.before.facts["windows"] == "1 by the hour"
    assert any(one.startswith("-2h/-1h: its windows are kept as 1 by the hour") for one in found.warnings)
    assert "by the hour" in comparison_markdown(found)
    assert found.before.facts == comparison_document(found)["before"]["facts"]
    with pytest.raises(SourceError, match="kept by the hour, so give whole hours"):
        slowed.compare("-110m/-100m", "-1h/now")
