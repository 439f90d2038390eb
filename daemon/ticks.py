"""Round values to mark on an axis, whatever draws it. Pure."""

import math


def value_ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` multiples of 1, 2 or 5 times a power of ten from `low` to `high`, which is larger."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((size * power for size in (1, 2, 5, 10) if size * power >= raw), raw)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
