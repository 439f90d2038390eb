"""The built-in A/B, on servers whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.records import CycleFlag, ForwardMode, Records
from cyclewatch.detectors.costs.impact import Impact, Pair, Stretch, impacts
from cyclewatch.detectors.phases import Phase
from simulated import cycles

SECOND = 10**9
BLOCK_NS = 10 * SECOND


def pairs(count: int, block_ns: int = BLOCK_NS) -> list[Pair]:
    """Neighbouring blocks, with and without, without and with, and so on."""
    blocks = [Stretch(number * block_ns, (number + 1) * block_ns) for number in range(2 * count)]
    return [
        Pair(*((blocks[at], blocks[at + 1]) if at % 4 == 0 else (blocks[at + 1], blocks[at])))
        for at in range(0, 2 * count, 2)
    ]


def decoding(
    random: np.random.Generator, count: int, *, cost: float = 0.0, block_noise: float = 0.003, drift: float = 0.0
) -> Records:
    """A decoding server, 20 cycles a second, whose load swings and whose blocks differ by themselves."""
    per_block = 200
    parts = []
    sampled = {pair.sampled.began_ns for pair in pairs(count)}
    for block in range(2 * count):
        sizes = random.integers(1, 9, per_block)
        level = random.normal(0, block_noise) + drift * block + (cost if block * BLOCK_NS in sampled else 0.0)
        times = 1e6 * (5 + 0.5 * sizes) * np.exp(level + random.normal(0, 0.05, per_block))
        parts.append(
            cycles(
                per_block,
                times.astype(np.int64),
                batch_size=sizes,
                first_end_ns=block * BLOCK_NS + 1,
                spacing_ns=BLOCK_NS // per_block,
            )
        )
    return np.concatenate(parts)


def decode(records: Records, count: int = 6) -> Impact:
    (found,) = impacts(records, pairs(count))
    assert found.phase is Phase.DECODE
    return found


@pytest.mark.parametrize("count", [3, 6, 12])
def test_where_nothing_differs_the_interval_covers_nothing_in_95_of_100(count: int) -> None:
    """200 servers, whose blocks differ by themselves: the share that covers 0 is 95 %, within its own chance."""
    random = np.random.default_rng(count)
    covering = 0
    for _ in range(200):
        low, high = decode(decoding(random, count), count).ci
        covering += low <= 0 <= high
    assert 0.95 - 3 * 0.0154 < covering / 200 < 0.95 + 3 * 0.0154


@given(st.floats(-0.2, 0.2), st.integers(0, 2**32))
def test_a_cost_is_measured_with_its_interval(cost: float, seed: int) -> None:
    found = decode(decoding(np.random.default_rng(seed), 6, cost=cost))
    assert found.effect == pytest.approx(np.expm1(cost), abs=0.02)
    assert found.ci[0] <= found.effect <= found.ci[1]


@given(st.floats(0.1, 50), st.integers(0, 2**32))
def test_a_faster_machine_gives_the_same_ratio(scale: float, seed: int) -> None:
    records = decoding(np.random.default_rng(seed), 3, cost=0.05)
    scaled = records.copy()
    scaled["cycle_ns"] = (records["cycle_ns"] * scale).astype(np.int64)
    assert decode(scaled, 3).effect == pytest.approx(decode(records, 3).effect, abs=1e-4)


def test_what_drifts_is_no_cost() -> None:
    """The order of the blocks changes from pair to pair."""
    found = decode(decoding(np.random.default_rng(1), 12, drift=0.004, block_noise=0.0005), 12)
    assert found.ci[0] < 0 < found.ci[1]


def test_other_traffic_in_one_kind_of_block_is_no_cost() -> None:
    """Larger batches take longer; they are compared with batches of their own size."""
    random = np.random.default_rng(2)
    records = decoding(random, 6, block_noise=0.0)
    heavy = records["batch_size"] > 4
    sampled = np.zeros(len(records), bool)
    for pair in pairs(6):
        sampled |= (records["end_ns"] >= pair.sampled.began_ns) & (records["end_ns"] < pair.sampled.ended_ns)
    kept = records[(sampled & heavy) | (~sampled & ~heavy) | (random.random(len(records)) < 0.1)]
    assert abs(decode(kept).effect) < 0.02


def test_phases_are_told_apart() -> None:
    records = decoding(np.random.default_rng(3), 3)
    records["mode"][::2] = ForwardMode.EXTEND
    records["new_tokens"][::2] = 8
    assert [one.phase for one in impacts(records, pairs(3))] == [Phase.EXTEND, Phase.DECODE]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_pairs_tell_nothing(count: int) -> None:
    """An interval from two would be as wide as the world."""
    assert impacts(decoding(np.random.default_rng(4), 3), pairs(3)[:count]) == []


def test_no_cycles_tell_nothing() -> None:
    assert impacts(cycles(0), pairs(6)) == []
    profiled = decoding(np.random.default_rng(5), 3)
    profiled["flags"] |= int(CycleFlag.PROFILED)
    assert impacts(profiled, pairs(3)) == []


@pytest.mark.parametrize(
    ("effect", "ci", "words"),
    [
        (0.001, (-0.003, 0.005), "0.1% longer (-0.3% to +0.5%), which may be chance"),
        (0.02, (0.01, 0.03), "2.0% longer (+1.0% to +3.0%)"),
        (-0.02, (-0.03, -0.01), "2.0% shorter (-3.0% to -1.0%)"),
    ],
)
def test_the_verdict_is_a_sentence(effect: float, ci: tuple[float, float], words: str) -> None:
    assert Impact(Phase.DECODE, effect, ci, 6, 100, 5e6).sentence == f"sampling makes decode cycles {words}"
