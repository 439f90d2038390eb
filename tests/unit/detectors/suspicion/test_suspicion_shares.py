import math
from dataclasses import replace
from pathlib import Path

import pytest

from cyclewatch.collectors.registry import known_quantities
from cyclewatch.collectors.suspicion_records import Change, Side, SuspicionReport, SuspicionRow
from cyclewatch.collectors.suspicion_report import read_suspicion_report
from cyclewatch.config.catalogues import report_functions, report_metrics
from cyclewatch.detectors.suspicion.evidence import STARTED_AT_NS, changed, evidence_of_report, quantity_of
from cyclewatch.detectors.suspicion.shares import REST, read_shares
from shared_data import seed

REPORT = Path(__file__).parents[3] / "fixtures/reports/memory_clock.md"


def change(before: float, after: float, p_value: float = 0.0) -> Change:
    return Change(before, after, after - before, (after - before) or 0.0, p_value, p_value)


def kernel(name: str, before: float, after: float, device: str = "GPU 0", p_value: float = 0.0) -> SuspicionRow:
    return SuspicionRow(name, "gpu_usage", device, 1.0, change(before, after, p_value), change(50, 50, 1.0), 0.0)


def report(*rows: SuspicionRow, cycles: tuple[int, int] = (100, 100), mean_us: tuple[float, float]) -> SuspicionReport:
    before, after = (Side(name, n, mean) for name, n, mean in zip(("a", "b"), cycles, mean_us, strict=True))
    return SuspicionReport("", before, after, rows)


def test_cycles_of_like_work_are_compared_by_their_time() -> None:
    """Kernels of 30 % and 15 % of 10 ms that keep their time in cycles of 20 ms."""
    shares = read_shares(report(kernel("f", 30, 15), kernel("g", 10, 5), mean_us=(10_000, 20_000)))
    assert (shares.factor, shares.uniform, shares.same_unit, shares.slower) == (2.0, True, True, 2.0)
    assert sum(part.before_us for part in shares.parts) == pytest.approx(10_000)
    assert sum(part.after_us for part in shares.parts) == pytest.approx(20_000)
    assert shares.parts[-1].part == REST
    assert shares.parts[-1].delta_us == pytest.approx(10_000)


def test_cycles_of_other_work_are_not_compared() -> None:
    """The same kernels take a tenth of the time in a cycle: that is no faster kernel, it is another cycle."""
    shares = read_shares(report(kernel("f", 30, 15), kernel("g", 10, 5), cycles=(10, 200), mean_us=(10_000, 2_000)))
    assert shares.same_unit is False
    assert shares.slower == 2.0
    assert "shares" in shares.slower_by


def test_kernels_that_grew_against_the_rest_made_the_step_longer() -> None:
    """Half of the step becomes twice as long: a step and a half. The cycles are of other work, so only shares tell."""
    shares = read_shares(report(kernel("f", 50, 200 / 3), cycles=(10, 200), mean_us=(10_000, 1_000)))
    assert shares.same_unit is False
    assert shares.slower == pytest.approx(1.5)


def test_one_kernel_that_grew_is_not_uniform() -> None:
    shares = read_shares(report(kernel("f", 30, 50), kernel("g", 30, 20), mean_us=(10_000, 15_000)))
    assert not shares.uniform


def test_gpus_work_at_the_same_time() -> None:
    rows = [kernel("f", 60, 30, f"GPU {number}") for number in range(4)]
    shares = read_shares(report(*rows, mean_us=(10_000, 20_000)))
    assert [part.before_us for part in shares.parts] == pytest.approx([6_000, 4_000])


def test_a_report_without_kernels_is_compared_by_its_cycles() -> None:
    row = SuspicionRow("oncpu", "cpu_frequency", "Host", 1.0, change(90, 95), change(90, 40), -9.0)
    shares = read_shares(report(row, mean_us=(10_000, 20_000)))
    assert (shares.factor, shares.same_unit, shares.slower, shares.parts) == (None, None, 2.0, ())


def test_a_report_without_a_summary_is_read_by_its_shares() -> None:
    bare = replace(report(kernel("f", 30, 15), mean_us=(1, 1)), before=Side("a"), after=Side("b"))
    shares = read_shares(bare)
    assert (shares.same_unit, shares.slower) == (None, 2.0)


def test_metrics_become_readings_of_their_means() -> None:
    source = read_suspicion_report(REPORT)
    evidence = evidence_of_report(source, read_shares(source))
    means = {}
    for trace in evidence.traces:
        late = trace.at_ns >= STARTED_AT_NS
        means[trace.name] = (trace.values[~late].mean(), trace.values[late].mean(), trace.labels)
    before, after, labels = means["gpu.memory_clock_hertz"]
    assert (before, after) == (pytest.approx(2619e6), pytest.approx(1593e6))
    assert labels == {"gpu": "0"}
    assert means["host.cpu_frequency_ratio"][:2] == (pytest.approx(0.88), pytest.approx(0.88))
    assert means["gpu.utilization_ratio"][:2] == (pytest.approx(0.9), pytest.approx(0.9))  # p is 0.6
    assert means["host.on_cpu_ratio"][:2] == (pytest.approx(0.99), pytest.approx(0.96))


def test_without_a_p_value_the_distance_decides() -> None:
    assert changed(Change(1, 2, 1, 5.0, math.nan, math.nan))
    assert not changed(Change(1, 2, 1, 0.5, math.nan, math.nan))


def test_the_source_document_s_step_grew_by_the_factor_of_all_kernels() -> None:
    """14 cycles of 631 ms against 238 of 38.5 ms: not the same unit; every kernel's share fell by 3.3 to 3.8."""
    source = read_suspicion_report(seed("001"))
    shares = read_shares(source)
    assert shares.same_unit is False
    assert shares.uniform
    assert shares.low == pytest.approx(3.3, abs=0.05)
    assert shares.high == pytest.approx(3.8, abs=0.05)
    assert shares.slower == pytest.approx(3.7, abs=0.1)
    frequency = next(
        trace for trace in evidence_of_report(source, shares).traces if trace.name == "host.cpu_frequency_ratio"
    )
    late = frequency.at_ns >= STARTED_AT_NS
    assert frequency.values[~late].mean() / frequency.values[late].mean() == pytest.approx(3.81, abs=0.01)


def test_names_of_reports_lead_to_quantities_that_exist() -> None:
    known = {str(one if isinstance(one, str) else one.name) for one in known_quantities()}
    assert {one.quantity for one in (*report_metrics(), *report_functions())} <= known


@pytest.mark.parametrize(
    ("metric", "device", "quantity"),
    [
        ("gpu_frequency", "GPU 3", "gpu.sm_clock_hertz"),
        ("GPU SM Clock", "GPU 3", "gpu.sm_clock_hertz"),
        ("gpu_mem_frequency", "GPU 3", "gpu.memory_clock_hertz"),
        ("cpu_frequency", "Host", "host.cpu_frequency_ratio"),
        ("disk_usage", "Host", "host.disk_usage_ratio"),
        ("no_such_thing", "Host", None),
    ],
)
def test_metrics_are_known_by_name_and_device(metric: str, device: str, quantity: str | None) -> None:
    found = quantity_of(metric, device, report_metrics())
    assert (found.quantity if found else None) == quantity
