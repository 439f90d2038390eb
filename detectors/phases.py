"""Phases and load buckets: what cycles may be compared with one another."""

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from cyclewatch.collectors.records import CycleFlag, ForwardMode, RecordKind, Records

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Phase(StrEnum):
    """Kind of work of a cycle."""

    EXTEND = "extend"
    DECODE = "decode"
    DECODE_BESIDE_EXTEND = "decode_beside_extend"
    """A decode during which a prefill was launched: the launch stretches it."""
    MIXED = "mixed"
    OTHER = "other"


_EXTENDS = (ForwardMode.EXTEND, ForwardMode.SPLIT_PREFILL, ForwardMode.DIFFUSION_EXTEND)
_DECODES = (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY)
_BY_NUMBER = (Phase.OTHER, Phase.EXTEND, Phase.DECODE, Phase.DECODE_BESIDE_EXTEND, Phase.MIXED)

_LARGEST_LOAD = 2**30
_EXACT_UP_TO = 8

NOT_JUDGED = CycleFlag.PROFILED | CycleFlag.WARMUP | CycleFlag.PAUSED | CycleFlag.AFTER_BREAK


def phases_of(records: Records) -> npt.NDArray[np.uint8]:
    """Phase number of each record, shape (n,): an index into the order of `phase_by_number`."""
    numbers: npt.NDArray[np.uint8] = _OF_MODES[records["mode"], records["launched_mode"]]
    return numbers


def _of_modes() -> npt.NDArray[np.uint8]:
    """Phase number by mode and launched mode, shape (256, 256): looked up, since this is done with every cycle."""
    numbers = np.zeros((256, 256), np.uint8)
    numbers[list(_EXTENDS)] = _BY_NUMBER.index(Phase.EXTEND)
    numbers[list(_DECODES)] = _BY_NUMBER.index(Phase.DECODE)
    beside = np.ix_(_DECODES, (*_EXTENDS, ForwardMode.MIXED))
    numbers[beside] = _BY_NUMBER.index(Phase.DECODE_BESIDE_EXTEND)
    numbers[ForwardMode.MIXED] = _BY_NUMBER.index(Phase.MIXED)
    return numbers


_OF_MODES = _of_modes()


def phase_by_number(number: int) -> Phase:
    """The phase of a number that `phases_of` gave."""
    return _BY_NUMBER[number]


def judged(records: Records) -> Bools:
    """Which records are cycles that detection may use, shape (n,)."""
    usable: Bools = (
        (records["kind"] == RecordKind.CYCLE) & (records["flags"] & int(NOT_JUDGED) == 0) & (records["cycle_ns"] > 0)
    )
    return usable


def load_buckets(phase: Phase, records: Records) -> Integers:
    """Load bucket of each record, shape (n,): its lower edge in requests (decode) or new tokens (otherwise).

    Edges are exact up to 8 and then grow by an eighth to a quarter, as the batch sizes do for which CUDA
    graphs are captured. The last edge is 2**30: no load is larger, and the store has 32 bits for it.
    """
    decode = phase in (Phase.DECODE, Phase.DECODE_BESIDE_EXTEND)
    load = np.minimum(records["batch_size" if decode else "new_tokens"], _LARGEST_LOAD).astype(np.int64)
    step = np.int64(1) << np.maximum(0, np.floor(np.log2(np.maximum(load, 1))).astype(np.int64) - 2)
    edges: Integers = np.where(load <= _EXACT_UP_TO, load, load // step * step)
    return edges
