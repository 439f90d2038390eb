"""Faults of a simulated node: what every collector would read around one, and what is truly behind it.

    case = draw("gpu_thermal", seed=7)
    case.evidence  # cycles, readings, events, other ranks, kernels, as the store would give them
    case.truth     # kinds, device and share of what is behind the slowdown

The way of a case: a node and its traffic are drawn (`scene.py`, `node.py`), a fault of some dose makes of the state of
a healthy node another one (`catalogue.py`, `effects.py`, `*_faults.py`, `state.py`), cycles and kernels take as long as
that state makes them take (`cycles.py`, `observed.py`, `profiles.py`), and readings show it with noise, at their own
pace (`*_readings.py`, `traces.py`), beside others that change for no reason (`bystanders.py`).

What causes what is written down here from physics alone, and knows nothing of how attribution concludes.
"""

from cyclewatch.detectors.simulation.faults.case import Case, Truth, draw, draw_hidden, draw_two
from cyclewatch.detectors.simulation.faults.catalogue import FAULTS, PAIRS
from cyclewatch.detectors.simulation.faults.effects import Fault
from cyclewatch.detectors.simulation.faults.scene import Part

__all__ = ["FAULTS", "PAIRS", "Case", "Fault", "Part", "Truth", "draw", "draw_hidden", "draw_two"]
