"""Evidence in words: figures before and after with their units."""

import math
from collections.abc import Callable

from cyclewatch.detectors.attribution.evidence import Event, Trace
from cyclewatch.detectors.attribution.traces import Change
from cyclewatch.detectors.split_part import SplitPart

_STEPS = ("", "k", "M", "G", "T")
_THOUSAND = 1000.0


def changed(trace: Trace, change: Change) -> str:
    """What a reading was before and after: `host.cpu_frequency_hertz 3.2 GHz before, 1.6 GHz after`."""
    labels = ", ".join(f"{name} {value}" for name, value in sorted(trace.labels.items()) if name != "process")
    of_what = f" ({labels})" if labels else ""
    show = _unit_of(trace.name)
    return f"{trace.name}{of_what}: {show(change.before)} before, {show(change.after)} after"


def happened(event: Event, started_at_ns: int) -> str:
    """What happened, and how long before or after the slowdown began."""
    apart_s = (event.at_ns - started_at_ns) / 1e9
    when = "before" if apart_s <= 0 else "after"
    return f"{event.text}, {abs(apart_s):.0f} s {when} the slowdown began"


def grown(part: SplitPart, total_us: float) -> str:
    """How much longer a part of the cycle became, of all that became longer."""
    whole = f"{part.delta_us / 1e3:+.3f} of {total_us / 1e3:+.3f} ms"
    return f"{part.part}: {part.before_us / 1e3:.3f} ms before, {part.after_us / 1e3:.3f} ms after ({whole})"


def _unit_of(name: str) -> Callable[[float], str]:
    for ending, show in _UNITS:
        if name.endswith(ending):
            return show
    return _plain


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _with_prefix(unit: str) -> Callable[[float], str]:
    def show(value: float) -> str:
        if not math.isfinite(value):
            return f"{value} {unit}"
        size, step = abs(value), 0
        while size >= _THOUSAND and step < len(_STEPS) - 1:
            size, step = size / _THOUSAND, step + 1
        return f"{value / _THOUSAND**step:.4g} {_STEPS[step]}{unit}"

    return show


_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_ratio", lambda value: f"{value:.1%}"),
    ("_hertz", _with_prefix("Hz")),
    ("_bytes_per_s", _with_prefix("B/s")),
    ("_bytes", _with_prefix("B")),
    ("_per_s", lambda value: f"{value:.4g}/s"),
    ("_s", lambda value: f"{value * 1e3:.4g} ms"),
    ("_watts", lambda value: f"{value:.4g} W"),
    ("_celsius", lambda value: f"{value:.4g} degrees Celsius"),
)
