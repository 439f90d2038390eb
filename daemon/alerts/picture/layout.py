"""Where everything stands in the picture: shapes in pixels from the upper left corner. Pure.

It is shown 400 to 550 pixels wide, on light and on dark grounds. So it has its own ground, letters are at least 11
pixels high at half its size, and what is told by colour is told by thickness or in words too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from cyclewatch.daemon.alerts.picture.axes import digits, time_ticks, value_range
from cyclewatch.daemon.alerts.picture.curves import Curves, clock_time
from cyclewatch.daemon.alerts.shorten import shortened
from cyclewatch.daemon.store.incident_timeline import IncidentTimeline
from cyclewatch.daemon.ticks import value_ticks

WIDTH, HEIGHT = 800, 440
GROUND = "#ffffff"
_LETTERS, _GRID, _SLOWER, _MOMENT = "#1f2328", "#d8dee4", "#fdeceb", "#a40e26"
_MEASURED, _EXPECTED, _OVER = "#0b4fa8", "#8f4700", "#116329"
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 764, 92, 358
_TITLE_SIZE, _SIZE = 28, 22
_TITLE_MAX = 52
_VALUE_TICKS, _TIME_TICKS = 6, 5
_MOMENTS = 56
"""Height of the band above the curves in which moments are named."""

_DAY_NS = 24 * 3600 * 10**9


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    left: float
    top: float
    right: float
    bottom: float
    colour: str


@dataclass(frozen=True)
class Path:
    """A line from point to point."""

    points: tuple[tuple[float, float], ...]
    colour: str
    thickness: int


@dataclass(frozen=True)
class Words:
    """Letters `size` pixels high. `anchor` says which point of them stands at `x` and `y`, in Pillow's two letters."""

    x: float
    y: float
    anchor: str
    text: str
    size: int
    colour: str


Shape = Box | Path | Words


def shapes_of(timeline: IncidentTimeline, curves: Curves) -> tuple[Shape, ...]:
    """The whole picture, in the order in which it is painted."""
    return tuple(_shapes(timeline, curves))


def _shapes(timeline: IncidentTimeline, curves: Curves) -> Iterator[Shape]:
    x = _scale(timeline.from_ns, timeline.to_ns, _LEFT, _RIGHT)
    low, high = value_range(curves.values)
    y = _scale(low, high, _BOTTOM, _TOP + _MOMENTS)
    over_ns = timeline.to_ns if timeline.ended_at_ns is None else min(timeline.ended_at_ns, timeline.to_ns)
    yield Box(x(timeline.started_at_ns), _TOP, x(over_ns), _BOTTOM, _SLOWER)
    yield from _value_axis(low, high, y)
    yield from _time_axis(timeline, x)
    yield from _heading(timeline, curves)
    for parts, colour, thickness in ((curves.expected, _EXPECTED, 2), (curves.measured, _MEASURED, 4)):
        for part in parts:
            points = [(x(at_ns), y(value)) for at_ns, value in part]
            yield Path((*points, (points[-1][0] + 1.0, points[-1][1])), colour, thickness)  # a single one is seen too
    yield from _moment(x(timeline.started_at_ns), f"slower since {clock_time(timeline.started_at_ns)}", _MOMENT, _TOP)
    if timeline.ended_at_ns is not None and timeline.ended_at_ns < timeline.to_ns:
        yield from _moment(x(over_ns), f"over at {clock_time(over_ns)}", _OVER, _TOP + _SIZE + 4)


def _heading(timeline: IncidentTimeline, curves: Curves) -> Iterator[Shape]:
    # The font has no letters but those of the Latin alphabet.
    title = f"{timeline.phase} on {timeline.target}".encode("ascii", "replace").decode()
    yield Words(16, 10, "la", shortened(title, _TITLE_MAX), _TITLE_SIZE, _LETTERS)
    yield Words(16, 54, "la", f"{curves.what}, {curves.unit}", _SIZE, _LETTERS)
    yield from _key(_RIGHT - 134, "measured", _MEASURED, 4)
    if curves.expected:
        yield from _key(_RIGHT - 284, "expected", _EXPECTED, 2)


def _key(left: float, word: str, colour: str, thickness: int) -> Iterator[Shape]:
    yield Path(((left, 66.0), (left + 30, 66.0)), colour, thickness)
    yield Words(left + 38, 54, "la", word, _SIZE, colour)


def _value_axis(low: float, high: float, y: Callable[[float], float]) -> Iterator[Shape]:
    ticks = value_ticks(low, high, _VALUE_TICKS)
    for value in ticks:
        yield Path(((_LEFT, y(value)), (_RIGHT, y(value))), _GRID, 1)
        yield Words(_LEFT - 10, y(value), "rm", f"{value:.{digits(ticks)}f}", _SIZE, _LETTERS)


def _time_axis(timeline: IncidentTimeline, x: Callable[[float], float]) -> Iterator[Shape]:
    yield Path(((_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)), _LETTERS, 1)
    ticks = time_ticks(timeline.from_ns, timeline.to_ns, _TIME_TICKS)
    by_day = all(at_ns % _DAY_NS == 0 for at_ns in ticks)
    for at_ns in ticks:
        yield Path(((x(at_ns), _BOTTOM), (x(at_ns), _BOTTOM + 6)), _LETTERS, 1)
        yield Words(x(at_ns), _BOTTOM + 14, "ma", _day(at_ns)[5:] if by_day else clock_time(at_ns), _SIZE, _LETTERS)
    first, last = _day(timeline.from_ns), _day(timeline.to_ns)
    days = first if first == last else f"{first} to {last}"
    yield Words((_LEFT + _RIGHT) / 2, HEIGHT - 12, "ms", f"UTC, {days}", _SIZE, _LETTERS)


def _moment(x: float, text: str, colour: str, top: float) -> Iterator[Shape]:
    """A line at a moment, and on the side where there is room what it was."""
    yield Path(((x, _TOP), (x, _BOTTOM)), colour, 2)
    left = x > (_LEFT + _RIGHT) / 2
    yield Words(x - 8 if left else x + 8, top, "ra" if left else "la", text, _SIZE, colour)


def _scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    """From a value to its pixel, to a tenth; what lies beyond the ends stands at them."""

    def place(value: float) -> float:
        part = (value - low) / (high - low)
        return round(first + min(max(part, 0.0), 1.0) * (last - first), 1)

    return place


def _day(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d")
