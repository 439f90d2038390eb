"""Sketches of times: within their error, added up without loss, and never read where they are damaged."""

import math
import zlib
from random import Random

import numpy as np
import pytest
from ddsketch.mapping import LogarithmicMapping
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.statistics.sketch import RELATIVE_ERROR, merge, quantiles, sketch_of
from cyclewatch.detectors.windows import cells_of, summarise
from simulated import cycles

PARTS = (0.0, 0.5, 0.9, 0.99, 1.0)

times = st.lists(st.integers(1, 2**63 - 1) | st.integers(10**6, 10**8), max_size=60)


@given(times)
def test_every_quantile_is_within_the_error(values: list[int]) -> None:
    found = quantiles(sketch_of(values), PARTS)
    if not values:
        assert all(math.isnan(value) for value in found)
        return
    expected = np.quantile(np.array(values, np.float64), PARTS, method="lower")
    assert found == pytest.approx(expected, rel=RELATIVE_ERROR * 1.0001)


@given(st.lists(times, max_size=8), st.randoms(use_true_random=False))
def test_parts_add_up_to_exactly_the_whole_in_any_order(parts: list[list[int]], random: Random) -> None:
    whole = sketch_of([value for part in parts for value in part])
    sketches = [sketch_of(part) for part in parts]
    assert merge(sketches) == whole
    random.shuffle(sketches)
    assert merge(sketches) == whole
    assert merge([merge(sketches[:3]), merge(sketches[3:])]) == whole


@given(times, st.randoms(use_true_random=False))
def test_the_order_of_the_times_does_not_matter(values: list[int], random: Random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert sketch_of(shuffled) == sketch_of(values)


@given(st.floats(1, 2.0**63))
def test_a_time_is_counted_in_the_bin_that_ddsketch_gives_it(value: float) -> None:
    """Or, at the very edge of a bin, in its neighbour."""
    _, first, *counts = map(int, zlib.decompress(sketch_of([value])).split())
    mapping = LogarithmicMapping(RELATIVE_ERROR)
    assert counts == [1]
    assert mapping.key(value * (1 - 1e-13)) <= first <= mapping.key(value * (1 + 1e-13))


def test_nothing_is_a_sketch_too() -> None:
    nothing = sketch_of([])
    assert merge([]) == nothing == merge([nothing, nothing])
    assert merge([nothing, sketch_of([5, 7])]) == sketch_of([5, 7])
    assert all(math.isnan(value) for value in quantiles(nothing, PARTS))
    assert quantiles(nothing, ()) == ()


def test_times_at_the_ends_of_the_range_are_counted() -> None:
    assert sketch_of([0, -3, 0.2]) == sketch_of([1, 1, 1])
    low, high = quantiles(sketch_of([0, 2.0**70]), (0, 1))
    assert low == pytest.approx(1, rel=RELATIVE_ERROR)
    assert high == pytest.approx(2.0**63, rel=RELATIVE_ERROR)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        sketch_of([1.0, math.nan])


@pytest.mark.parametrize("part", [-0.1, 1.1, math.nan])
def test_a_part_outside_0_to_1_is_refused(part: float) -> None:
    with pytest.raises(ValueError, match="quantiles are from 0 to 1"):
        quantiles(sketch_of([1]), (0.5, part))


@given(times, st.data())
def test_damaged_bytes_are_refused(values: list[int], data: st.DataObject) -> None:
    """One changed byte, unless it is one of the few bits without a meaning; a part missing; something behind."""
    sketch = sketch_of(values)
    place = data.draw(st.integers(0, len(sketch) - 1))
    changed = data.draw(st.integers(1, 255))
    damaged = bytearray(sketch)
    damaged[place] ^= changed
    try:
        assert merge([bytes(damaged)]) == sketch
    except ValueError as error:
        assert "quantile sketch" in str(error)  # noqa: PT017 (not raised where the meaning is the same)
    for wrong in (sketch[:place], sketch + b"x"):
        with pytest.raises(ValueError, match="quantile sketch"):
            quantiles(wrong, (0.5,))
        with pytest.raises(ValueError, match="quantile sketch"):
            merge([sketch, wrong])


@given(st.binary(max_size=40))
def test_other_bytes_are_refused(other: bytes) -> None:
    for wrong in (other, zlib.compress(b"x" + other)):
        with pytest.raises(ValueError, match="quantile sketch"):
            merge([wrong])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2 5 1", "version 2, this release reads 1"),
        ("1 5 -1", "out of range"),
        ("1 -1 1", "out of range"),
        ("1 3000 1", "out of range"),
        (f"1 5 {10**20}", "out of range"),
        ("1 0" + " 1" * 3000, "out of range"),
        ("", "not a quantile sketch, or a damaged one: 8 bytes"),
        ("1 x", "not a quantile sketch, or a damaged one"),
        ("1" + " 1" * 10**7, "does not end where"),
    ],
)
def test_a_wrong_text_is_refused_with_the_reason(text: str, said: str) -> None:
    """Also one that would fill the memory."""
    with pytest.raises(ValueError, match=said):
        quantiles(zlib.compress(text.encode()), (0.5,))


def test_bytes_of_the_first_release_are_read() -> None:
    """They stand in databases."""
    text = b"1 771 1 0 2"
    assert zlib.decompress(sketch_of([4.9e6, 5.1e6, 5.1e6])) == text
    assert quantiles(zlib.compress(text, 0), (0.5,)) == pytest.approx([5.1e6], rel=RELATIVE_ERROR)


def test_a_sketch_is_small() -> None:
    random = np.random.default_rng(3)
    for count, at_most in ((1, 20), (50, 60), (1000, 100)):
        spikes = np.where(random.random(count) < 0.01, 5, 1)
        assert len(sketch_of(6e6 * spikes * np.exp(random.normal(0, 0.05, count)))) <= at_most


def test_a_cell_has_the_sketch_of_its_cycles() -> None:
    made = cycles(30, np.arange(1, 31) * 10**6, batch_size=[1, 2, 2] * 10)
    one, two = cells_of(Phase.DECODE, made)
    assert one.sketch == sketch_of(made["cycle_ns"][made["batch_size"] == 1])
    assert two.sketch == sketch_of(made["cycle_ns"][made["batch_size"] == 2])
    (without, _) = summarise(0, made, sketches=False).cells
    assert without.sketch is None
