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


def test_a_daemon_loads_no_library_for_terminals_and_leaves_them_to_who_comes_after() -> None:
    program = """
import sys
from cyclewatch.daemon.memory import without_terminal
with without_terminal():
    import cyclewatch.daemon.server
assert not {"rich", "pygments"} & {name.partition(".")[0] for name in sys.modules}
import rich.console
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
