"""The last windows of a series: times, values and doubts, in arrays that slide."""

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from cyclewatch.detectors.phases import Floats, Integers

_TIME, _VALUE, _DOUBT = np.dtype("<i8"), np.dtype("<f8"), np.dtype("<f4")


class Recent:
    """The last `maxlen` windows that were appended, oldest first.

    `at_ns` are when they start, `values` one number each, `doubts`, shape (n, k), what each may be wrong by, in single
    precision; k is that of the first window appended. All are views that hold until the next change.
    """

    def __init__(self, maxlen: int) -> None:
        self._maxlen = maxlen
        self._begin = self._end = 0
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
            self._move(max(self._begin, self._end - self._maxlen + 1))
        self._at_ns[self._end] = at_ns
        self._values[self._end] = value
        self._doubts[self._end] = doubt
        self._end += 1
        self._begin = max(self._begin, self._end - self._maxlen)

    def drop(self, windows: int) -> None:
        """Forget the oldest ones."""
        self._begin = min(self._begin + windows, self._end)

    def _move(self, begin: int) -> None:
        kept = self._end - begin
        for array in (self._at_ns, self._values, self._doubts):
            array[:kept] = array[begin : self._end].copy()
        self._begin, self._end = 0, kept

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values: bytes of the arrays, compressed, in base 64."""
        return {
            "windows": len(self),
            "at_ns": _packed(np.diff(self.at_ns, prepend=0)),
            "values": _packed(self.values),
            "doubts": _packed(self._doubts[self._begin : self._end]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Be what `state` came from, as far as `maxlen` reaches.

        Raises:
            ValueError: the state is damaged.
            KeyError: the state is not one.
        """
        windows = int(state["windows"])
        times = np.cumsum(_unpacked(state["at_ns"], _TIME))
        values = _unpacked(state["values"], _VALUE)
        doubts = _unpacked(state["doubts"], _DOUBT)
        if len(times) != windows or len(values) != windows or (windows and len(doubts) % windows):
            raise ValueError(f"{windows} windows with {len(times)} times, {len(values)} values, {len(doubts)} doubts")
        self._begin = self._end = 0
        doubts = doubts.reshape(windows, len(doubts) // max(windows, 1))
        for at_ns, value, doubt in zip(times.tolist(), values.tolist(), doubts.tolist(), strict=True):
            self.append(at_ns, value, doubt)


def _packed(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 1)).decode()


def _unpacked(text: str, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 (of the type asked for)
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype)
    except zlib.error as error:
        raise ValueError(f"the windows of the state are damaged: {error}") from None
