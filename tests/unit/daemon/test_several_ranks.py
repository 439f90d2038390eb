"""Several ranks and servers on one node through the whole pipeline: what happens to one is not told of another."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cyclewatch.collectors.records import RECORD, Records, RingIdentity
from cyclewatch.daemon.store import models
from simulated import server
from watched import SECOND, Watched, batch, ring_identity


@pytest.fixture(name="watched")
def _watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.close()


def ranks(name: str, places: list[tuple[int | None, int]], parent: int) -> list[tuple[str, RingIdentity]]:
    """Rings of one server: target and identity of each."""
    return [
        (name, ring_identity(f"1-{parent}{number}-7", parent_pid=parent, dp_rank=dp, tp_rank=tp))
        for number, (dp, tp) in enumerate(places, 1)
    ]


def play(watched: Watched, rings: list[tuple[str, RingIdentity]], slower: dict[str, dict[int, float]]) -> None:
    """All rings second by second; `slower` is by target and rank."""
    told: list[Records] = [
        np.concatenate([records for _, records in server(60, seed=seed, slower=slower.get(f"{target} {ring.rank}"))])
        for seed, (target, ring) in enumerate(rings)
    ]
    for second in range(1, 321):
        for (target, ring), records in zip(rings, told, strict=True):
            new = records[(records["end_ns"] > (second - 1) * SECOND) & (records["end_ns"] <= second * SECOND)]
            watched.take(batch(new, ring, target=target), second * SECOND)
        watched.turn(second * SECOND)


def test_a_slow_rank_of_one_server_is_the_only_one_that_is_told(watched: Watched) -> None:
    """Four tensor-parallel ranks here, two data-parallel groups there, with the same configuration."""
    rings = [
        *ranks("left", [(None, tp) for tp in range(4)], 100),
        *ranks("right", [(0, 0), (1, 0)], 200),
    ]
    play(watched, rings, {"right dp1-tp0": {34: 1.2}})
    found = {(one.target, one.rank) for one in watched.history.regressions()}
    assert found == {("right", "dp1-tp0")}
    assert sorted(run.target for run in watched.history.runs()) == ["left", "right"]
    assert watched.rows(models.ChangeEventRow) == []
    phases = {(one.target, one.rank) for one in watched.metrics.state.phases.values()}
    assert phases == {(target, ring.rank) for target, ring in rings}


def test_the_end_of_one_server_leaves_the_other(watched: Watched) -> None:
    rings = [*ranks("left", [(None, 0), (None, 1)], 100), *ranks("right", [(None, 0)], 200)]
    play(watched, rings, {})
    for target, ring in rings[:2]:
        watched.take(batch(np.zeros(0, RECORD), ring, target=target, alive=False), 330 * SECOND)
    assert {one.target for one in watched.metrics.state.phases.values()} == {"left", "right"}
    watched.turn(331 * SECOND)
    assert {one.target for one in watched.metrics.state.phases.values()} == {"right"}
