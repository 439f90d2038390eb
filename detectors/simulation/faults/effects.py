"""What a fault is: what it does to the state of a node, by a dose between 0 and 1, and what shows it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cyclewatch.detectors.simulation.faults.node import Node
from cyclewatch.detectors.simulation.faults.state import Gpu, Host, Service, State

Apply = Callable[[State, float], State]
Happens = tuple[str, str, str, str]
"""An event without its time: kind, subject, before, after."""


@dataclass(frozen=True)
class Effect:
    """One fault on one node: the state by dose, the device that it concerns ("" for none), and what is noticed of it.

    `restarted` tells that the server was down for it.
    """

    apply: Apply
    device: str = ""
    events: tuple[Happens, ...] = ()
    restarted: bool = False


Prepare = Callable[[np.random.Generator, Node], Effect]
"""What a fault is on a node: where and how it strikes."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    `shown_by` are beginnings of the names of readings that show it, besides its events: they are never missing, except
    where the cause is hidden. `named` are the kinds that are right to name for it. `gpus` and `cpu` tell the servers
    that it happens to; `host_bound` ones are slowed where the device waits for the host. `virtual` is whether it wants
    a virtual machine, or real hardware; `counts_heat` whether its processor must do that. `profiled` tells whether
    there always are kernel profiles, and not by chance.
    """

    kind: str
    prepare: Prepare
    shown_by: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    gpus: bool = True
    cpu: bool = False
    host_bound: bool = False
    ranks: int | None = None
    virtual: bool | None = None
    counts_heat: bool = False
    several_nodes: bool = False
    profiled: bool = False
    can_be_hidden: bool = True

    @property
    def right(self) -> tuple[str, ...]:
        """The kinds that are right to name."""
        return self.named or (self.kind,)


def on_host(change: Callable[[Host, float], Host], events: tuple[Happens, ...] = ()) -> Effect:
    """Something of the host alone."""
    return Effect(lambda state, dose: replace(state, host=change(state.host, dose)), events=events)


def on_service(
    change: Callable[[Service, float], Service], events: tuple[Happens, ...] = (), *, restarted: bool = False
) -> Effect:
    """Something of the server itself."""
    return Effect(
        lambda state, dose: replace(state, service=change(state.service, dose)), events=events, restarted=restarted
    )


def on_gpu(random: np.random.Generator, node: Node, change: Callable[[Gpu, float], Gpu]) -> Effect:
    """Something of one GPU of the server; the others wait for it."""
    index = node.own[int(random.integers(len(node.own)))]
    return Effect(lambda state, dose: state.with_gpu(index, change(state.gpus[index], dose)), device=f"gpu{index}")
