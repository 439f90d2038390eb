"""Simulated cycles with known truth, for tests."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cyclewatch.collectors.records import RECORD, ForwardMode, RecordKind, Records

WINDOW_NS = 5 * 10**9


def cycles(
    count: int,
    cycle_ns: object = 5_000_000,
    *,
    mode: ForwardMode = ForwardMode.DECODE,
    batch_size: object = 8,
    kv_tokens: object = 4000,
    first_end_ns: int = 1,
    spacing_ns: int = 10_000_000,
    first_sequence: int = 1,
) -> Records:
    """Plain cycles of one mode, with all of their time in `launch`."""
    records = np.zeros(count, RECORD)
    records["sequence"] = records["sequence_end"] = np.arange(first_sequence, first_sequence + count)
    records["end_ns"] = first_end_ns + np.arange(count) * spacing_ns
    records["cycle_ns"] = records["launch_ns"] = cycle_ns
    records["kind"] = RecordKind.CYCLE
    records["mode"] = records["launched_mode"] = mode
    records["batch_size"] = batch_size
    records["new_tokens"] = 0 if mode is ForwardMode.DECODE else batch_size
    records["kv_tokens"] = kv_tokens
    records["on_cpu_ns"] = -1
    return records


def server(
    windows: int,
    *,
    seed: int,
    slower: dict[int, float] | None = None,
    noise: float = 0.02,
    correlation: float = 0.5,
    batch_sizes: npt.ArrayLike = 8,
    cycles_a_window: int = 100,
) -> Iterator[tuple[int, Records]]:
    """Windows of a decoding server: number of the window, and its records.

    The true cycle is 5 ms + 0.3 ms a request + 0.2 µs a cached token, times AR(1) window noise, times 5 % noise of a
    cycle. `slower` maps the first window of a stretch to the factor that holds from there on; `batch_sizes`
    is a number or a sequence, one a window.
    """
    random = np.random.default_rng(seed)
    level, factor = 0.0, 1.0
    sizes = np.broadcast_to(np.asarray(batch_sizes), windows)
    for window in range(windows):
        factor = (slower or {}).get(window, factor)
        level = correlation * level + random.normal() * noise * np.sqrt(1 - correlation**2)
        size = int(sizes[window])
        kv_tokens = size * random.integers(100, 1000, cycles_a_window)
        true_ns = 1e6 * (5 + 0.3 * size + kv_tokens * 2e-4) * factor
        noisy_ns = true_ns * np.exp(level + random.normal(0, 0.05, cycles_a_window))
        yield (
            window,
            cycles(
                cycles_a_window,
                noisy_ns.astype(np.int64),
                batch_size=size,
                kv_tokens=kv_tokens,
                first_end_ns=window * WINDOW_NS + 1,
                spacing_ns=WINDOW_NS // cycles_a_window,
                first_sequence=window * cycles_a_window + 1,
            ),
        )
