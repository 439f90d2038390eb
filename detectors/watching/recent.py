"""The last windows of a series: times, values and doubts, in arrays that slide."""

import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cyclewatch.detectors.phases import Floats, Integers

_TIME, _VALUE, _DOUBT = np.dtype("<i8"), np.dtype("<f8"), np.dtype("<f4")
_CHUNK = 128
"""Windows that are packed together, once: two hours of them, packed anew for every saving, took 0.15 % of a core."""


class Recent:
    """The last `maxlen` windows that were appended, oldest first.

    `at_ns` are when they start, `values` one number each, `doubts`, shape (n, k), what each may be wrong by, in single
    precision; k is that of the first window appended. All are views that hold until the next change.
    """

    def __init__(self, maxlen: int) -> None:
        self._maxlen = maxlen
        self._begin = self._end = 0
        self._dropped = 0
        self._packed: dict[int, tuple[str, ...]] = {}
        self._at_ns = np.zeros(2 * maxlen, _TIME)
        self._values = np.zeros(2 * maxlen, _VALUE)
        self._doubts = np.zeros((2 * maxlen, 0), _DOUBT)

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def at_ns(self) -> Integers:
        """Start of each window, UTC nanoseconds, shape (n,)."""
        return self._at_ns[self._begin : self._end]

    @property
    def values(self) -> Floats:
        """Value of each window, shape (n,)."""
        return self._values[self._begin : self._end]

    @property
    def doubts(self) -> Floats:
        """Doubt of each window, shape (n, k)."""
        return self._doubts[self._begin : self._end].astype(np.float64)

    def append(self, at_ns: int, value: float, doubt: tuple[float, ...] = ()) -> None:
        """Take a window; the oldest goes where there are too many.

        Raises:
            ValueError: `doubt` is not as long as that of the windows before.
        """
        if not len(self):
            self._doubts = np.zeros((2 * self._maxlen, len(doubt)), _DOUBT)
        if self._end == 2 * self._maxlen:
            self._move()
        self._at_ns[self._end] = at_ns
        self._values[self._end] = value
        self._doubts[self._end] = doubt
        self._end += 1
        self.drop(len(self) - self._maxlen)

    def drop(self, windows: int) -> None:
        """Forget the oldest ones."""
        begin = min(self._begin + max(windows, 0), self._end)
        self._dropped += begin - self._begin
        self._begin = begin

    def _move(self) -> None:
        kept = len(self)
        for array in (self._at_ns, self._values, self._doubts):
            array[:kept] = array[self._begin : self._end].copy()
        self._begin, self._end = 0, kept

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values: the arrays by chunks, their bytes compressed and in base 64.

        Equal ones have equal states, whenever they were saved or restored before: `dropped` tells where chunks begin.
        """
        first, end = self._dropped // _CHUNK, -(-(self._dropped + len(self)) // _CHUNK)
        self._packed = {chunk: texts for chunk, texts in self._packed.items() if chunk >= first}
        chunks = [self._chunk(number) for number in range(first, end)]
        return {"windows": len(self), "dropped": self._dropped % _CHUNK, "chunks": chunks}

    def _chunk(self, number: int) -> tuple[str, ...]:
        """Times, values and doubts of the windows of a chunk, which is kept while it is whole."""
        start = self._begin - self._dropped + number * _CHUNK
        whole = self._begin <= start and start + _CHUNK <= self._end
        texts = self._packed.get(number) if whole else None
        if texts is None:
            place = slice(max(start, self._begin), min(start + _CHUNK, self._end))
            times = np.diff(self._at_ns[place], prepend=0)
            texts = _packed(times), _packed(self._values[place]), _packed(self._doubts[place])
            if whole:
                self._packed[number] = texts
        return texts

    def restore(self, state: dict[str, Any]) -> None:
        """Be what `state` came from, as far as `maxlen` reaches.

        Raises:
            ValueError: the state is damaged.
            KeyError: the state is not one.
        """
        windows = [window for texts in state["chunks"] for window in _windows(texts)]
        if len(windows) != state["windows"]:
            raise ValueError(f"{len(windows)} windows, where there should be {state['windows']}")
        self._begin = self._end = 0
        self._dropped, self._packed = int(state["dropped"]), {}
        for window in windows:
            self.append(*window)


def _windows(texts: Sequence[str]) -> Iterator[tuple[int, float, tuple[float, ...]]]:
    """What a chunk holds."""
    at_ns, values, doubts = texts
    times = np.cumsum(_unpacked(at_ns, _TIME))
    numbers, uncertain = _unpacked(values, _VALUE), _unpacked(doubts, _DOUBT)
    if len(numbers) != len(times) or len(uncertain) % max(len(times), 1):
        raise ValueError(f"{len(times)} windows with {len(numbers)} values and {len(uncertain)} doubts")
    rows = uncertain.reshape(len(times), len(uncertain) // max(len(times), 1))
    yield from zip(times.tolist(), numbers.tolist(), map(tuple, rows.tolist()), strict=True)


def _packed(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()


def _unpacked(text: str, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 (of the type asked for)
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype)
    except zlib.error as error:
        raise ValueError(f"the windows of the state are damaged: {error}") from None
