"""A daemon's store without its collectors: numbered units, again and again, until it is killed or asked to end.

As a command: `outage_writer.py URL STATE_DIRECTORY`. It goes on after the last number of which the store knows, as the
daemon goes on where it stopped reading a ring, and says each number that may be relied upon: of a unit that waits in
memory no more.
"""

import base64
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from cyclewatch.config.settings import Settings
from cyclewatch.config.store import Store
from cyclewatch.daemon.store.database import StoreError
from cyclewatch.daemon.store.start import open_store
from units import REGRESSION, stored, unit

AWAY = 75
"""Its exit code where the database is away at the start."""

NODE, KEY = "node", "server|tp0|decode|f00d"
_PACE_S = 0.01
_WAITING = 20
_CHECKPOINT = 15
_STOP_S = 0.5
_BULK = base64.b64encode(random.Random(8).randbytes(3 * 2**15)).decode()
"""With every checkpoint, like the states of detectors: ten minutes of it are more than a segment of the spool."""


def main(url: str, directory: str) -> int:
    """Write until asked to end; gives the exit code."""
    asked = threading.Event()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    settings = Settings(state_dir=Path(directory), store=Store(url=url))
    try:
        store = open_store(settings, NODE, lambda: 0)
    except StoreError:
        return AWAY
    state = store.history.detector_state(KEY)
    number = 0 if state is None else state["number"] + 1
    say("start", number)
    store.writer.start()
    while not asked.is_set():
        states: dict[str, dict[str, Any]] = {KEY: {"version": 1, "number": number}}
        if number % _CHECKPOINT == 0:
            states["bulk"] = {"version": 1, "number": number, "bulk": _BULK}
        found = replace(REGRESSION, key=f"r{number}")
        store.writer.submit(unit(number, regressions=[stored(found)], profiles=[], states=states))
        say("safe", number - store.writer.pending)
        time.sleep(_PACE_S)
        while store.writer.pending > _WAITING and not asked.is_set():
            time.sleep(_PACE_S)
        number += 1
    if store.writer.stop(_STOP_S):
        say("safe", number - 1)
    return 0


def say(word: str, number: int) -> None:
    sys.stdout.write(f"{word} {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
