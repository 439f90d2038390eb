"""Whether a process computes on a GPU: there GPU activities are recorded, elsewhere CPU operators."""

from pathlib import Path

_DRIVERS = ("libcuda.so", "libamdhip64.so")
_DEVICES = ("nvidiactl", "kfd")


def uses_gpu(pid: int, proc: Path, dev: Path = Path("/dev")) -> bool:
    """Whether a GPU's driver is mapped into the process; where that may not be seen, whether this host has a GPU."""
    if not any((dev / name).exists() for name in _DEVICES):
        return False
    try:
        with (proc / str(pid) / "maps").open("rb") as maps:
            return any(driver.encode() in line for line in maps for driver in _DRIVERS)
    except OSError:
        return True
