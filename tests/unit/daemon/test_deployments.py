"""Another version, or other arguments: held against the configuration before, at the same load."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cyclewatch.collectors.records import Records
from cyclewatch.daemon.store.history import RegressionView
from simulated import WINDOW_NS, server
from watched import QUICK, SECOND, WALL_NS, Replay, Watched, batch, ring_identity

OLD_WINDOWS, NEW_WINDOWS = 60, 60
DOWN_NS = 30 * SECOND
NEW_VERSION = {"sglang_version": "0.5.24"}
FEW = np.random.default_rng(3).choice([4, 8, 12], OLD_WINDOWS)
MANY = np.random.default_rng(4).choice([8, 12], NEW_WINDOWS)


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def begin(watched: Watched, windows: int = OLD_WINDOWS, **traffic: Any) -> Replay:
    """The configuration before, watched for so long."""
    replay = Replay(watched, server(windows, seed=1, **traffic))
    replay.run()
    return replay


def deploy(
    watched: Watched,
    before: Replay,
    number: int = 1,
    *,
    seed: int = 2,
    changes: Mapping[str, Any] = NEW_VERSION,
    **traffic: Any,
) -> Replay:
    """The server ends and comes back as `changes` say, at a pace as `traffic` says."""
    watched.take(batch(before.records[:0], before.ring, alive=False, next_sequence=before.next_sequence), before.at_ns)
    watched.turn(before.at_ns)
    began_ns = (before.at_ns + DOWN_NS) // WINDOW_NS * WINDOW_NS
    ring = ring_identity(
        f"1-{100 + number}-7", parent_start_ticks=5 + number, wall_ns=WALL_NS + began_ns - SECOND, **changes
    )
    traffic = {"windows": NEW_WINDOWS, **traffic}
    later = [(window, _moved(records, began_ns)) for window, records in server(seed=seed, **traffic)]
    replay = Replay(watched, later, ring)
    replay.at_ns = began_ns
    replay.run()
    watched.stop(replay.at_ns)
    return replay


def _moved(records: Records, by_ns: int) -> Records:
    records["end_ns"] += np.uint64(by_ns)
    return records


def found(watched: Watched) -> list[RegressionView]:
    return watched.history.regressions(all_directions=True)


def test_a_slower_version_is_found_with_its_size_and_named_as_the_cause(watched: Watched) -> None:
    deploy(watched, begin(watched), slower={0: 1.1})
    (one,) = found(watched)
    assert (one.state, one.direction, one.kind, one.phase) == ("open", "slower", "deployment", "decode")
    assert one.ci[0] < 0.1 < one.ci[1]
    assert one.effect == pytest.approx(0.1, abs=0.03)
    cause = one.causes[0]
    assert cause["kind"] == "deployment"
    assert any("0.5.23 to 0.5.24" in sentence for sentence in cause["evidence"]), cause
    assert sum(part["delta_us"] for part in one.split) / sum(part["before_us"] for part in one.split) > 0.05


def test_it_is_found_beside_loads_that_change(watched: Watched) -> None:
    """More requests in a batch than before, all of them numbers that were seen before."""
    deploy(watched, begin(watched, batch_sizes=FEW), slower={0: 1.1}, batch_sizes=MANY)
    (one,) = found(watched)
    assert one.kind == "deployment"
    assert one.effect == pytest.approx(0.1, abs=0.04)


@pytest.mark.parametrize("seed", range(10, 14))
def test_a_version_that_is_as_fast_is_no_regression(watched: Watched, seed: int) -> None:
    deploy(watched, begin(watched, batch_sizes=FEW), seed=seed, batch_sizes=MANY, slower={0: 1.01})
    assert found(watched) == []


def test_a_faster_version_is_an_improvement(watched: Watched) -> None:
    deploy(watched, begin(watched), slower={0: 0.85})
    assert [(one.state, one.direction, one.kind) for one in found(watched)] == [("noted", "faster", "deployment")]


@pytest.mark.parametrize(
    "changes", [{"server": {"model_path": "other", "page_size": 1}}, {"server": {"model_path": "tiny", "page_size": 1}}]
)
def test_another_model_is_another_thing_and_a_restart_none(watched: Watched, changes: Mapping[str, Any]) -> None:
    """The first is no regression of anything; the second keeps its baseline, and a step in it is found as such."""
    deploy(watched, begin(watched), changes=changes, slower={0: 1.1})
    assert [one.kind for one in found(watched)] in ([], ["level"])


def test_loads_that_were_never_seen_before_give_no_verdict(watched: Watched) -> None:
    deploy(watched, begin(watched, batch_sizes=4), batch_sizes=64, slower={0: 1.3})
    assert found(watched) == []


def test_the_way_back_ends_it(watched: Watched) -> None:
    slow = deploy(watched, begin(watched), slower={0: 1.1})
    deploy(watched, slow, 2, seed=3, changes={})
    assert [(one.state, one.kind) for one in found(watched)] == [("resolved", "deployment")]


def test_it_ends_when_the_old_pace_is_back_without_another_deployment(watched: Watched) -> None:
    """It came with the new version, but was not of it."""
    deploy(watched, begin(watched), slower={0: 1.15, 60: 1.0}, windows=180)
    kinds = {one.kind: one for one in found(watched)}
    assert kinds["deployment"].state == "resolved"
    assert (kinds["level"].state, kinds["level"].direction) == ("noted", "faster")


def test_a_version_is_held_against_the_pace_before_a_slowdown_that_it_does_not_mend(watched: Watched) -> None:
    """The open regression ends with its configuration; that it is still slow must not be lost."""
    before = begin(watched, 120, slower={60: 1.2})
    assert [(one.state, one.kind) for one in found(watched)] == [("open", "level")]
    deploy(watched, before, slower={0: 1.2})
    assert [(one.state, one.kind) for one in found(watched)] == [("open", "deployment"), ("resolved", "level")]
    assert found(watched)[0].effect == pytest.approx(0.2, abs=0.05)


def test_a_version_that_mends_a_slowdown_is_no_news(watched: Watched) -> None:
    deploy(watched, begin(watched, 120, slower={60: 1.2}))
    assert [(one.state, one.kind) for one in found(watched)] == [("resolved", "level")]


def test_a_configuration_that_ended_before_it_had_a_baseline_is_passed_over(watched: Watched) -> None:
    short = deploy(watched, begin(watched), windows=8, changes={"sglang_version": "0.5.24.dev"})
    deploy(watched, short, 2, slower={0: 1.1})
    assert [one.kind for one in found(watched)] == ["deployment"]


def test_causes_are_looked_for_again_when_there_may_be_a_profile(watched: Watched) -> None:
    """Five minutes after it was found, once."""
    seen: list[int] = []
    real = watched.history.evidence_of_deployment

    def counted(*arguments: Any) -> Any:
        seen.append(len(seen))
        return real(*arguments)

    watched.history.evidence_of_deployment = counted  # type: ignore[method-assign, assignment]
    deploy(watched, begin(watched), slower={0: 1.1}, windows=140)
    assert len(seen) == 2
    assert [one.state for one in found(watched)] == ["open"]


def test_it_is_found_once_although_the_daemon_is_killed(tmp_path: Path) -> None:
    """At the moment at which the new baseline comes to stand."""
    watched = Watched(tmp_path, QUICK)
    before = begin(watched)
    watched.take(batch(before.records[:0], before.ring, alive=False, next_sequence=before.next_sequence), before.at_ns)
    began_ns = (before.at_ns + DOWN_NS) // WINDOW_NS * WINDOW_NS
    ring = ring_identity("1-101-7", parent_start_ticks=6, wall_ns=WALL_NS + began_ns - SECOND, **NEW_VERSION)
    later = [(window, _moved(records, began_ns)) for window, records in server(NEW_WINDOWS, seed=2, slower={0: 1.1})]
    replay = Replay(watched, later, ring)
    replay.at_ns = began_ns
    for until_s in (99, 103, 105, 107, 110, 130):
        replay.run(began_ns + until_s * SECOND)
        replay.kill(random.Random(until_s))
    replay.run()
    watched.stop(replay.at_ns)
    assert [(one.state, one.kind) for one in found(watched)] == [("open", "deployment")]
    watched.close()
