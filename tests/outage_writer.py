"""A daemon's store without its collectors: numbered units, again and again, until it is killed.

As a command: `outage_writer.py URL STATE_DIRECTORY`. It goes on after the last number of which the store knows, as the
daemon goes on where it stopped reading a ring, and prints each number once it may be relied upon.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from cyclewatch.config.settings import Settings
from cyclewatch.config.store import Store
from cyclewatch.daemon.store.database import StoreError
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.start import open_store
from units import REGRESSION, stored, unit

NODE, KEY = "node", "server|tp0|decode|f00d"
_PACE_S = 0.01
_WAITING = 20


def main(url: str, directory: str) -> int:
    """Write until killed; 1 where the database is away at the start."""
    settings = Settings(state_dir=Path(directory), store=Store(url=url))
    try:
        store = open_store(settings, NODE, lambda: 0)
    except StoreError:
        return 1
    state = StoreHistory(store.engine, NODE).detector_state(KEY)
    number = 0 if state is None else state["number"] + 1
    sys.stdout.write(f"start {number}\n")
    store.writer.start()
    while True:
        found = replace(REGRESSION, key=f"r{number}")
        store.writer.submit(unit(number, regressions=[stored(found)], profiles=[]))
        time.sleep(_PACE_S)
        while store.writer.pending > _WAITING:
            time.sleep(_PACE_S)
        if number >= _WAITING:
            sys.stdout.write(f"safe {number - _WAITING}\n")
            sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
