import math
from dataclasses import replace

import pytest

from cyclewatch.collectors.records import NODE, Reading
from cyclewatch.config.settings import Probe
from cyclewatch.daemon.probing.decide import GpuState, Reason, Situation, cpu_pressure, gpu_states, reason_for

SETTINGS = Probe(interval_s=3600, suspicion_interval_s=300, max_cpu_pressure=0.2)
QUIET = Situation(suspected=False, age_s=1000, known=20, cpu_pressure=0.01)
FREE = GpuState(free_bytes=8 * 2**30, load=0.1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"age_s": 3600}, Reason.BASELINE),
        ({"age_s": math.inf, "known": 0}, Reason.BASELINE),
        ({"known": 7}, Reason.BASELINE),
        ({"known": 7, "age_s": 299}, None),
        ({"known": 7, "cpu_pressure": 0.3}, None),
        ({"known": 7, "cpu_pressure": None}, Reason.BASELINE),
        ({"age_s": 3600, "cpu_pressure": 0.3}, None),
        ({"suspected": True}, Reason.SUSPICION),
        ({"suspected": True, "cpu_pressure": 0.9}, Reason.SUSPICION),
        ({"suspected": True, "age_s": 299}, None),
    ],
)
def test_when_a_probe_is_taken(changes: dict[str, float], reason: Reason | None) -> None:
    """A suspicion is worth one on a busy node too; whatever the reason, five minutes lie between two."""
    assert reason_for(replace(QUIET, **changes), SETTINGS) is reason  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "obstacle"),
    [
        (FREE, ""),
        (GpuState(), "its memory or its load is not known"),
        (GpuState(load=0.1), "its memory or its load is not known"),
        (GpuState(free_bytes=8 * 2**30), "its memory or its load is not known"),
        (replace(FREE, free_bytes=2**30), "1.0 GiB of its memory are free, 2.0 are needed"),
        (replace(FREE, load=0.97), "97% of it are in use, at most 50% may be"),
        (replace(FREE, sliced=True), "it is cut into MIG slices"),
    ],
)
def test_which_gpus_may_be_touched(state: GpuState, obstacle: str) -> None:
    """What is not known is a reason against it."""
    assert state.obstacle(SETTINGS) == obstacle


def reading(name: str, value: float, **labels: str) -> Reading:
    return Reading(NODE, name, value, tuple(labels.items()))


def test_gpus_as_they_were_last_read() -> None:
    """The share of the multiprocessors says more than that some kernel ran; other readings of a GPU do not matter."""
    readings = [
        reading("gpu.memory_total_bytes", 80e9, gpu="10"),
        reading("gpu.memory_used_bytes", 70e9, gpu="10"),
        reading("gpu.utilization_ratio", 1.0, gpu="10"),
        reading("gpu.sm_ratio", 0.3, gpu="10"),
        reading("gpu.memory_total_bytes", 80e9, gpu="2"),
        reading("gpu.utilization_ratio", 0.4, gpu="2"),
        reading("gpu.event_reason_ratio", 1.0, gpu="3", reason="thermal"),
        reading("gpu.memory_used_bytes", 5e9, gpu="4", mig="1"),
        reading("gpu.nvml_busy_ratio", 0.1),
        reading("host.load", 3),
    ]
    assert list(gpu_states(readings).items()) == [
        ("2", GpuState(load=0.4)),
        ("4", GpuState(sliced=True)),
        ("10", GpuState(free_bytes=10e9, load=0.3)),
    ]


def test_cpu_pressure_is_that_of_the_node() -> None:
    of_server = Reading("server", "host.pressure_ratio", 0.9, (("resource", "cpu"), ("kind", "some")))
    of_memory = reading("host.pressure_ratio", 0.8, resource="memory", kind="some")
    of_node = reading("host.pressure_ratio", 0.3, resource="cpu", kind="some")
    assert cpu_pressure([of_server, of_memory]) is None
    assert cpu_pressure([of_server, of_memory, of_node]) == 0.3
