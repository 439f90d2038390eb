"""Graph replays: hundreds of activities that share the correlation of one launch."""

import numpy as np

from cyclewatch.collectors.profiles.activities import KINDS, NONE, Activities, Integers
from cyclewatch.collectors.profiles.records import Graph, GraphKernel

MAX_GRAPHS = 1_000
"""An engine captures one for each batch size."""


def graphs(activities: Activities, phase: Integers, phases: tuple[str, ...]) -> list[Graph]:
    """The graphs that were replayed, those with most time first; replays of one order of names in one phase are one.

    Args:
        activities: of shape (n,), in order of start.
        phase: the phase of each, as an index into `phases`, shape (n,).
        phases: names of phases.
    """
    known = np.flatnonzero(activities.correlation != NONE)
    order = known[np.lexsort((known, activities.correlation[known], activities.device[known]))]
    same = (np.diff(activities.correlation[order]) == 0) & (np.diff(activities.device[order]) == 0)
    bounds = np.concatenate(([0], np.flatnonzero(~same) + 1, [len(order)]))
    found: dict[tuple[int, bytes], list[Integers]] = {}
    for at in np.flatnonzero(np.diff(bounds) > 1).tolist():
        replay = order[bounds[at] : bounds[at + 1]]
        key = (int(phase[replay[0]]), activities.name[replay].tobytes())
        if key in found or len(found) < MAX_GRAPHS:
            found.setdefault(key, []).append(replay)
    duration_ns = activities.duration_ns
    graphs_ = [
        Graph(
            phases[phase_], len(replays), _kernels(activities, replays[0], duration_ns[np.stack(replays)].sum(axis=0))
        )
        for (phase_, _), replays in found.items()
    ]
    return sorted(graphs_, key=lambda graph: -sum(kernel.total_ns for kernel in graph.kernels))


def _kernels(activities: Activities, replay: Integers, total_ns: Integers) -> tuple[GraphKernel, ...]:
    return tuple(
        GraphKernel(activities.names[name], KINDS[kind], total)
        for name, kind, total in zip(
            activities.name[replay].tolist(), activities.kind[replay].tolist(), total_ns.tolist(), strict=True
        )
    )
