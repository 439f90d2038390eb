"""The parts of benchmarks/gpu_check.py that need no GPU."""

import math
from typing import cast

import pytest
from gpu_check import COMPARED, Compared, Result, TimingDoor, collector_on, compare, parse_smi, provenance, read, values
from gpu_cost import ConstantDoor, measure
from gpu_load import Effect, effect, parse_rates, throughput

from cyclewatch.collectors.gpu.door import NvmlDoor
from cyclewatch.collectors.gpu.recorder import RecordingDoor
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.collectors.records import Fact, Reading
from nvml_lab import lab, recording

SMI = "0, 1975, 3201, 1980, 401.10, 700.00, 47, 58, 143771, 1049, 0, 5, 16\n"


def test_readings_are_found_by_gpu_and_agree_with_nvidia_smi() -> None:
    """The recorded H200 against what nvidia-smi would print of it."""
    with lab("h200") as one:
        samples = [sample for _ in range(2) for sample in list(one.turn().samples)]
    found = {one.reading: one for one in compare(samples, [parse_smi(SMI)])}
    assert [one.reading for one in found.values() if not one.good] == ["gpu.power_watts"]
    assert found["gpu.power_watts"].ours == pytest.approx((120 + 402.5) / 2)
    assert found["gpu.power_limit_watts"].theirs == 700


def test_what_only_one_of_both_tells_differs() -> None:
    smi = [{"0": {"temperature.gpu": 46.0}}]
    (temperature,) = [one for one in compare([], smi) if one.reading == "gpu.temperature_celsius"]
    assert (temperature.ours, temperature.theirs, temperature.good) == (None, 46.0, False)
    assert all(one.good for one in compare([], smi) if one.theirs is None)


def test_slices_and_other_limits_are_not_the_gpu() -> None:
    samples = [
        Reading("node", "gpu.memory_used_bytes", 1, (("gpu", "0"), ("mig", "1"))),
        Reading("node", "gpu.power_limit_watts", 2, (("gpu", "0"), ("limit", "default"))),
        Reading("node", "gpu.power_limit_watts", 3, (("gpu", "0"), ("limit", "enforced"))),
        Reading("node", "gpu.power_watts", 4, (("gpu", "1"),)),
    ]
    assert values(samples, "0") == {"gpu.power_limit_watts": [3]}


def test_what_nvidia_smi_cannot_tell_is_left_out() -> None:
    assert parse_smi("0, [N/A], 3201" + ", N/A" * (len(COMPARED) - 2)) == {"0": {"clocks.mem": 3201e6}}


def test_every_compared_reading_exists() -> None:
    with lab("h200") as one:
        told = {sample.name for _ in range(2) for sample in one.turn().samples if isinstance(sample, Reading)}
    assert {one.reading for one in COMPARED} <= told
    assert all(isinstance(one, Compared) for one in COMPARED)


def test_calls_are_timed_and_taken_down_through_the_collector() -> None:
    """The same doors one before the other as on a real GPU."""
    timing = TimingDoor(RecordedDoor(recording("h200")))
    recorder = RecordingDoor(cast("NvmlDoor", timing), provenance({"driver": "1"}))
    collector = collector_on(recorder)
    samples = read(collector, 0.01)
    collector.close()
    assert [one.value for one in samples if isinstance(one, Fact) and one.subject == "gpu0.model"] == ["NVIDIA H200"]
    slowest = timing.slowest()
    assert {"sm_clock", "fields", "memory"} <= {name for name, *_ in slowest}
    assert all(0 <= median <= longest for _, _, median, longest in slowest)
    assert recorder.recording.answers["gpu0 sm_clock"] == [1980]
    assert recorder.recording.provenance["driver"] == "1"
    with lab(RecordedDoor(recorder.recording)) as one:
        assert one.turn().value("gpu.sm_clock_hertz") == 1.98e9


def test_throughput_is_that_of_the_stretches_inside() -> None:
    rates = parse_rates("0 1 100.0\n1 2 200.0\n2 4 50.0\n4 5 1")
    assert rates == [(0, 1, 100), (1, 2, 200), (2, 4, 50)]
    assert throughput(rates, 0.5, 4.0) == pytest.approx((200 + 2 * 50) / 3)


def test_the_effect_is_over_pairs() -> None:
    one = effect([99.0, 196.0], [100.0, 200.0])
    assert one.change == pytest.approx(-0.015)
    assert one.standard_error == pytest.approx(0.005)
    assert one.pairs == 2
    assert not effect([99.0], [100.0]).good
    assert effect([100.2], [100.0]).good
    assert math.isnan(effect([1.0], [1.0]).standard_error)


def test_the_result_is_printed_with_all_its_parts() -> None:
    with lab("h200") as one:
        agreements = compare(list(one.turn().samples), [parse_smi(SMI)])
    result = Result(
        {"driver": "1", "gpu0.uuid": "GPU-x"}, Effect(0.001, 0.0005, 20), agreements, [("memory", 3, 1.0, 2.0)], ["p"]
    )
    text = str(result)
    assert "GPU-x" not in text
    for part in ("driver 1", "+0.100%, within 0.5%", "DIFFERS", "memory", "problem: p"):
        assert part in text
    assert not result.good


def test_the_cost_is_measured() -> None:
    cost = measure(ConstantDoor(1), 1)
    assert cost.fast_us > 0
    assert cost.slow_us > 0
    assert cost.readings_per_s > 1
