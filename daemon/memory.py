"""What the process of the daemon asks of imports, the allocator and the garbage collector, to stay small."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_M_ARENA_MAX = -8
"""From glibc's <malloc.h>."""

_ARENAS = 1
_THRESHOLDS = (10_000, 20, 20)


@contextmanager
def without_terminal() -> Iterator[None]:
    """What is imported in here finds no library for terminals: structlog and httpx load them, where they are, 6 MB."""
    hidden = [name for name in ("rich", "pygments") if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # the import system's "not to be found"
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def settle_memory() -> None:
    """Keep memory together and collections rare, from when everything is loaded and no thread runs yet.

    With arenas for each of 18 threads memory is 18 MB more. Looking through all that was loaded, again and
    again, was a fifth of its CPU time; what is loaded stays, and what comes after it is rarely in a cycle.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc; musl has one arena
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
