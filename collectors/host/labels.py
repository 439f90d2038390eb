"""Labels of the readings of serving processes."""

from cyclewatch.collectors.processes import ServerProcess

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
"""Target and labels."""

PROCESS_LABELS = ("process", "rank")


def series(process: ServerProcess) -> Series:
    """Target and labels of a process's readings; processes of one role without ranks share them."""
    rank = (("rank", process.rank),) if process.rank else ()
    return process.target, (("process", process.role), *rank)
