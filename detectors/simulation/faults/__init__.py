"""Faults of a simulated node: what every collector would read around one, and what is truly behind it.

    case = draw("gpu_thermal", seed=7)
    case.evidence  # cycles, readings, events, other ranks, kernels, as the store would give them
    case.truth     # kinds, device and share of what is behind the slowdown

The way of a case: a node and its traffic are drawn (`node.py`), a fault of some dose makes of the state of a healthy
node another one (`catalogue.py`, `state.py`), cycles and kernels take as long as that state makes them take
(`cycles.py`, `profiles.py`), and readings show it with noise, at their own pace (`host_readings.py`,
`gpu_readings.py`, `engine_readings.py`, `traces.py`), beside others that change for no reason (`bystanders.py`).

What causes what is written down here from physics alone, and knows nothing of how attribution concludes.
"""

from cyclewatch.detectors.simulation.faults.case import Case, Part, Truth, draw, draw_hidden, draw_two
from cyclewatch.detectors.simulation.faults.catalogue import FAULTS, PAIRS, Fault

__all__ = ["FAULTS", "PAIRS", "Case", "Fault", "Part", "Truth", "draw", "draw_hidden", "draw_two"]
