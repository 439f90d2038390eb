"""Which GPU a name means: one of hardware.toml by its own name, or by the name that a device gives."""

import re

from cyclewatch.config.catalogues import Hardware, hardware


def find_hardware(name: str) -> Hardware | None:
    """The GPU called `name`, as hardware.toml, NVML, ROCm or Kineto call it; None where it is not known.

    A slice of a GPU (MIG) is not known: it has a part of the peaks.
    """
    lower = " ".join(name.lower().split())
    for one in hardware().values():
        if one.name.lower() == lower:
            return one
    if re.search(r"\bmig\b", lower):
        return None
    return next((one for one in hardware().values() if any(re.search(form, lower) for form in one.devices)), None)
