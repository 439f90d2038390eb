"""Fixed work for one CPU, timed: run as a script by the daemon's Python, in a process of its own.

Two works, since a machine can become slower in two ways. A loop of the interpreter stays within the caches next to the
core, as most of a scheduler's own code does, and follows the core: its frequency, and what else runs on it. A scan over
memory that those caches cannot hold follows what cores share: the last cache, and the way to memory.

Both are done in parts, and timed by the thread's CPU time and by the clock. The clock is read once for all parts: it
grows also when the thread waits for a CPU. CPU time grows when the work itself takes longer; the median part counts,
since an interrupt, or a hypervisor that takes the CPU away unseen, is charged to the part that it falls into.
"""

import contextlib
import json
import mmap
import sys
import time
from collections.abc import Callable
from itertools import pairwise

# Whoever changes the work gives its readings other names, since the history would be that of other work.
_WARM_ROUNDS = 15_000
_ROUNDS, _LOOPS = 20_000, 5
_MEMORY_BYTES = 32 * 2**20
_PAGE_BYTES = 4096
_SCANS = 5


def loop(rounds: int) -> int:
    """Arithmetic, branches nobody can foresee, and a small table: about 0.14 us a round at 3 GHz."""
    state, total = 1, 0
    table = list(range(256))
    for _ in range(rounds):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        if state & 64:
            total += table[state & 255]
        else:
            table[state >> 8 & 255] = total & 255
    return total


def memory() -> mmap.mmap:
    """Memory that is really there, in huge pages where the kernel has them: making small ones takes far longer."""
    block = mmap.mmap(-1, _MEMORY_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        block.madvise(mmap.MADV_HUGEPAGE)
    for place in range(0, _MEMORY_BYTES, _PAGE_BYTES):
        block[place] = 1
    return block


def timed(work: Callable[[], object], parts: int) -> dict[str, float]:
    """Seconds that all parts took of the CPU, by their median, and of the clock; `parts` is odd."""
    began_s = time.perf_counter()
    cpu_s = [time.thread_time()]
    for _ in range(parts):
        work()
        cpu_s.append(time.thread_time())
    wall_s = time.perf_counter() - began_s
    each_s = sorted(after - before for before, after in pairwise(cpu_s))
    return {"cpu": parts * each_s[parts // 2], "wall": wall_s}


def main() -> int:
    """Do the work and print its times as JSON."""
    loop(_WARM_ROUNDS)  # the core wakes up, and its frequency rises
    loop_s = timed(lambda: loop(_ROUNDS), _LOOPS)
    with memory() as block:
        block.find(b"\2")
        scan_s = timed(lambda: block.find(b"\2"), _SCANS)  # it is nowhere: all is read
    software = f"python {sys.version_info.major}.{sys.version_info.minor}"
    json.dump({"software": software, "cpu_loop": loop_s, "memory_scan": scan_s}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
