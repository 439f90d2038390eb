"""Quantile sketches of times: small, and merged without loss, in any order.

A sketch counts times in logarithmic bins (DDSketch), so that every quantile of what was counted is known within
`RELATIVE_ERROR`, and sketches of parts add up to exactly the sketch of the whole. As bytes it is compressed text:
version, number of the first bin, and the counts from there on. The compression's checksum tells damaged bytes.
"""

import math
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from ddsketch.ddsketch import BaseDDSketch
from ddsketch.mapping import LogarithmicMapping
from ddsketch.store import DenseStore

from cyclewatch.detectors.watching.saved import check_version

RELATIVE_ERROR = 0.01
"""A part of the bytes' meaning, as is the mapping: another one needs another version."""

_VERSION = 1
_MAPPING = LogarithmicMapping(RELATIVE_ERROR)
_BINS_A_LOG = 1 / math.log(_MAPPING.gamma)
_SHORTEST_NS, _LONGEST_NS = 1.0, 2.0**63
_BINS = _MAPPING.key(_LONGEST_NS) + 1
_LARGEST_COUNT = 2**53
_TEXT_BYTES = 20 * (_BINS + 2)


def sketch_of(values_ns: npt.ArrayLike) -> bytes:
    """The sketch of these times; those under 1 ns count as 1 ns.

    Raises:
        ValueError: one is not a number.
    """
    values = np.clip(np.asarray(values_ns, np.float64), _SHORTEST_NS, _LONGEST_NS)
    if not len(values):
        return _packed([])
    if np.isnan(values).any():
        raise ValueError("a time is NaN")
    # `_MAPPING.key` of each, all at once: one by one they would take half of the time that a window takes.
    keys = np.ceil(np.log(values) * _BINS_A_LOG).astype(np.int64)
    first = int(keys.min())
    return _packed([first, *np.bincount(keys - first).tolist()])


def merge(sketches: Iterable[bytes]) -> bytes:
    """The sketch of all that was counted in these sketches.

    Raises:
        ValueError: one of them is damaged, or of a newer version.
    """
    whole = DenseStore()
    for sketch in sketches:
        whole.merge(_unpacked(sketch))
    if not whole.count:
        return _packed([])
    counts = whole.bins[whole.min_key - whole.offset : whole.max_key - whole.offset + 1]
    return _packed([whole.min_key, *map(int, counts)])


def quantiles(sketch: bytes, parts: Sequence[float]) -> tuple[float, ...]:
    """The value below which each of `parts`, from 0 to 1, of the times lies, in nanoseconds; NaN where there are none.

    Within `RELATIVE_ERROR` of the time at that place in their order, or of the one before where it is between two.

    Raises:
        ValueError: the sketch is damaged, or of a newer version, or a part is not from 0 to 1.
    """
    if not all(0 <= part <= 1 for part in parts):
        raise ValueError(f"quantiles are from 0 to 1, not {parts}")
    counted = BaseDDSketch(_MAPPING, _unpacked(sketch), DenseStore(), 0.0)
    values = (counted.get_quantile_value(part) for part in parts)
    return tuple(float("nan") if value is None else value for value in values)


def _packed(numbers: Sequence[int]) -> bytes:
    """The bytes for the number of the first bin and the counts from there on; for nothing where nothing was counted."""
    return zlib.compress(" ".join(map(str, (_VERSION, *numbers))).encode())


def _unpacked(sketch: bytes) -> DenseStore:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(sketch, _TEXT_BYTES)
        version, *numbers = map(int, text.split())
    except (zlib.error, ValueError):
        raise ValueError(f"not a quantile sketch, or a damaged one: {len(sketch)} bytes") from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"a damaged quantile sketch: it does not end where its {len(sketch)} bytes end")
    check_version("a quantile sketch", version, _VERSION)
    store = DenseStore()
    if numbers:
        first, *counts = numbers
        if not 0 <= first <= _BINS - len(counts) or not all(0 <= count < _LARGEST_COUNT for count in counts):
            raise ValueError("a damaged quantile sketch: a bin or a count is out of range")
        for key, count in enumerate(counts, first):
            if count:
                store.add(key, count)
    return store
