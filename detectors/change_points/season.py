"""Seasons: waves that come again and again, so that their crests are not taken for shifts."""

import math

import numpy as np

from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.normal import normal_scores

_WAVES_MAX = 3
_TURNS_MIN = 4
"""A wave that came fewer times than this may as well be shifts up and down."""

_POINTS_A_TURN_MIN = 6
_NEIGHBOURS = 10
_FALSE_ALARM = 1e-4
_BACKGROUND_ERROR = 1.3
"""How much too low the background may be, being the median of 20 neighbours."""

_GRID = 21


def seasons(values: Floats) -> Floats | None:
    """Columns of the waves in `values`, shape (n, 2 k) for k waves, cosine and sine in turn; None without any.

    A wave stands out of the periodogram's neighbouring frequencies by more than noise can (Fisher 1929, with the
    background taken locally, since noise is not white). Levels that shift have a smooth spectrum, which does not.
    """
    n = len(values)
    turns = np.arange(_TURNS_MIN, n // _POINTS_A_TURN_MIN)
    if len(turns) < 2 * _NEIGHBOURS:
        return None
    rest = normal_scores(values)
    rest = rest - rest.mean()
    limit = _BACKGROUND_ERROR * math.log(len(turns) / _FALSE_ALARM)
    columns: list[Floats] = []
    for _ in range(_WAVES_MAX):
        power = np.abs(np.fft.rfft(rest)) ** 2
        ratio = power[turns] / _background(power)[turns]
        if ratio.max() < limit:
            break
        wave = _best_wave(rest, float(turns[int(np.argmax(ratio))]))
        columns.append(wave)
        rest = rest - wave @ np.linalg.lstsq(wave, rest, rcond=None)[0]
    return np.column_stack(columns) if columns else None


def _background(power: Floats) -> Floats:
    """Mean power of the frequencies around each, by their median (of an exponential: log 2 of the mean); shape kept."""
    padded = np.pad(power, _NEIGHBOURS, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBOURS + 1)
    background: Floats = np.maximum(np.median(around, axis=1) / math.log(2), 1e-12 * (1.0 + power.max()))
    return background


def _best_wave(values: Floats, turns: float) -> Floats:
    """Cosine and sine, shape (n, 2), of the frequency within one turn of `turns` that explains most of `values`."""
    angle = 2 * math.pi * np.arange(len(values)) / len(values)
    reach = 1.0
    for _ in range(2):
        tried = turns + np.linspace(-reach, reach, _GRID)
        # From one frequency to the next by a product: an exponential of each would take five times as long.
        onward = np.exp(1j * angle * (tried[1] - tried[0]))
        products = values * np.exp(1j * angle * tried[0])
        explained = []
        for _ in tried:
            explained.append(abs(products.sum()))
            products *= onward
        turns = float(tried[int(np.argmax(explained))])
        reach /= _GRID // 2
    return np.column_stack([np.cos(angle * turns), np.sin(angle * turns)])
