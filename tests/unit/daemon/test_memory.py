"""The settings of the process are made in one of its own: they would be those of all tests."""

import subprocess
import sys

PROGRAM = """
import gc
from cyclewatch.daemon.memory import settle_memory
before = gc.get_freeze_count()
settle_memory()
assert gc.get_freeze_count() > before
assert gc.get_threshold()[0] > 700
assert gc.isenabled()
ring = []
ring.append(ring)
del ring
assert gc.collect() >= 1
"""


def test_what_was_loaded_is_not_looked_through_again_and_cycles_are_still_found() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
