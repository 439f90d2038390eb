"""What is said of reports of other faults than the one at hand, with cycles of like work and of other work."""

from dataclasses import replace

import pytest

from cyclewatch.daemon.compare.document import comparison_document
from cyclewatch.daemon.compare.html import comparison_html
from cyclewatch.daemon.compare.report import compare_report
from cyclewatch.daemon.compare.sources import ReportSource
from cyclewatch.detectors.kernels.comparison import Verdict
from simulated_reports import Fault, simulated_report

IDLE = {"gpu_usage": 0.4, "process_gpu_usage": 0.4, "gpu_power": 0.7}
CLOCKED = {"gpu_frequency": 1 / 2.2, "gpu_power": 0.5}
FAULTS = {
    "cpu_frequency": Fault(host=3.0, metrics={"cpu_frequency": 1 / 3, **IDLE}),
    "cpu_frequency beside a GPU that clocks down": Fault(
        host=3.0, metrics={"cpu_frequency": 1 / 3, "gpu_frequency": 0.8, **IDLE}
    ),
    "run_queue_wait": Fault(waits={"runq": 150.0}, metrics={"host_cpu_usage": 15.0, **IDLE}),
    "disk": Fault(waits={"write": 120.0, "read": 30.0}, metrics={"disk_usage": 9.0, **IDLE}),
    "gpu_clock": Fault({"": 2.2}, metrics={"gpu_frequency": 1 / 2.2, "gpu_power": 0.5}),
    "gpu_clock of a busy GPU": Fault(
        {"": 2.2}, metrics={"gpu_frequency": 1 / 2.2, "gpu_power": 0.5}, kernels_part=10.0
    ),
    "gpu_memory_clock": Fault({"": 1.6}, metrics={"gpu_mem_frequency": 1 / 1.64}, kernels_part=10.0),
    "gpu_slower": Fault({"": 1.8}, metrics={"gpu_usage": 2.4, "gpu_mem_used": 1.1}, kernels_part=10.0),
    "kernel_slower": Fault({"ampere": 1.5}, kernels_part=10.0),
    "unexplained": Fault(host=2.0, metrics=IDLE),
}


@pytest.mark.parametrize("unit", [1.0, 1 / 16])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", FAULTS)
def test_the_first_cause_is_the_fault(name: str, seed: int, unit: float) -> None:
    report, slower = simulated_report(FAULTS[name], unit=unit, seed=seed)
    found = compare_report(ReportSource("report", report))
    assert found.slower == pytest.approx(slower, rel=0.03)
    assert found.causes[0].kind == name.partition(" ")[0]
    assert bool(found.warnings) == (unit < 1)
    assert found.cycles[0].alike == (unit == 1)


@pytest.mark.parametrize("unit", [1.0, 1 / 16])
def test_where_nothing_became_slower_nothing_is_blamed(unit: float) -> None:
    report, _ = simulated_report(Fault(), unit=unit, seed=1)
    found = compare_report(ReportSource("report", report))
    assert found.causes == ()
    assert found.kernels is None or {one.verdict for one in found.kernels.kernels} == {Verdict.SAME}


def test_a_gpu_that_is_always_busy_is_read_by_what_is_left_to_others() -> None:
    """96 % of a step and then 98 %: the shares hardly grew, but the rest halved."""
    fault = replace(FAULTS["gpu_clock of a busy GPU"], kernels_part=13.5)
    report, slower = simulated_report(fault, unit=1 / 16, seed=1)
    found = compare_report(ReportSource("report", report))
    assert found.slower == pytest.approx(slower, rel=0.25)
    assert found.causes[0].kind == "gpu_clock"


def test_a_report_without_its_list_of_cycles_has_their_mean() -> None:
    report, slower = simulated_report(FAULTS["disk"], unit=1.0, seed=1)
    bare = replace(
        report, before=replace(report.before, cycle_times_us=()), after=replace(report.after, cycle_times_us=())
    )
    found = compare_report(ReportSource("report", bare))
    document = comparison_document(found)
    assert document["summary"]["cycles"]["before"] == 200
    assert document["cycles"][0]["before"]["quantiles_us"]["p50"] is None
    assert found.slower == pytest.approx(slower, rel=0.03)
    assert "<polyline" not in comparison_html(found)


def test_a_slower_kernel_is_told_from_the_others() -> None:
    report, _ = simulated_report(FAULTS["kernel_slower"], unit=1 / 16, seed=1)
    found = compare_report(ReportSource("report", report))
    assert found.kernels is not None
    verdicts = {one.name.partition("_")[0]: one.verdict for one in found.kernels.kernels}
    assert verdicts["ampere"] is Verdict.SLOWER
    assert set(verdicts.values()) == {Verdict.SLOWER, Verdict.SAME}
