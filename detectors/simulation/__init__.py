"""A simulated server: cycles as the hook would record them, of known load, noise and slowdowns.

    simulation = Simulation(seed=1, slowdowns=(Slowdown(Shape.STEP, start_window=200, size=0.03),))
    for window in simulation.windows(600):
        detector.update(window.start_ns, ...)  # window.records, window.truth

A cycle's time is a sum of physical parts (host work, weights to read, work for each request, token and cached token),
times noise; the workload model that detection fits knows nothing of it.
"""

from cyclewatch.detectors.simulation.cycles import SimulatedWindow, Simulation, Truth
from cyclewatch.detectors.simulation.noise import Noise
from cyclewatch.detectors.simulation.server import Server
from cyclewatch.detectors.simulation.slowdowns import Shape, Slowdown
from cyclewatch.detectors.simulation.traffic import Traffic

__all__ = ["Noise", "Server", "Shape", "SimulatedWindow", "Simulation", "Slowdown", "Traffic", "Truth"]
