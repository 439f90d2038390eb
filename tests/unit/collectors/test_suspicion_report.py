import gzip
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.suspicion_report import (
    MAX_BYTES,
    SuspicionReportError,
    looks_like_suspicion_report,
    parse_suspicion_report,
    read_suspicion_report,
)
from shared_data import seed

REPORT = Path(__file__).parents[2] / "fixtures/reports/memory_clock.md"
TEXT = REPORT.read_text()


def test_the_two_runs_have_names_cycles_and_times() -> None:
    """Times come in microseconds, whatever unit the report has."""
    report = read_suspicion_report(REPORT)
    assert report.title.startswith("Cross Performance Comparison")
    assert (report.before.name, report.after.name) == ("steady", "throttled")
    assert (report.before.cycles, report.after.cycles) == (400, 320)
    assert (report.before.mean_cycle_us, report.after.mean_cycle_us) == (25_000.0, 31_250.0)
    assert report.before.cycle_times_us == (27_500.0, 25_000.0, 24_000.0)
    assert report.after.cycle_times_us == (34_000.0, 31_250.0, 30_000.0, 29_500.0)


def test_a_row_has_every_column() -> None:
    row = read_suspicion_report(REPORT).rows[0]
    assert (row.metric, row.device, row.score, row.log_z) == ("gpu_mem_frequency", "GPU 0", 250.8, -50.0)
    assert (row.beta.before, row.beta.after, row.beta.delta, row.beta.z) == (40.0, 44.0, 4.0, 12.7)
    assert (row.mu.before, row.mu.after, row.mu.delta, row.mu.p_value) == (2619.0, 1593.0, -1026.0, 0.0)


def test_a_name_with_a_bar_in_it_stays_whole() -> None:
    row = read_suspicion_report(REPORT).rows[3]
    assert row.function == "lambda(a | b)"
    assert math.isnan(row.beta.u_p_value)
    assert math.isnan(row.mu.u_p_value)


def test_rows_that_are_cut_off_are_counted() -> None:
    assert read_suspicion_report(REPORT).warnings == ("rows of its table that cannot be read, and were left out: 1",)


def test_columns_may_come_in_another_order_and_spelling() -> None:
    table = """
| Device | Metric Name | Function Name | beta_a b(%) | beta_c(%) | mu_a b | mu_c | Suspicion Score |
|---|---|---|---|---|---|---|---|
| Host | cpu_frequency | oncpu | 10 | 11.5% | **3** | 2 | 5 |
"""
    report = parse_suspicion_report(table)
    assert (report.before.name, report.after.name) == ("a b", "c")
    assert report.before.cycles is None
    (row,) = report.rows
    assert (row.beta.delta, row.mu.delta) == (1.5, -1.0)
    assert math.isnan(row.beta.z)


def test_a_packed_report_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "report.md.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert repr(read_suspicion_report(packed)) == repr(read_suspicion_report(REPORT))  # NaN is not equal to itself


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# nothing\n| a | b |\n|---|---|\n| 1 | 2 |\n", "no table with the columns"),
        (TEXT.encode()[: TEXT.encode().index(b"| void")], "no row with numbers"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"", "empty"),
        (gzip.compress(b"x" * (MAX_BYTES + 1)), "more than"),
    ],
)
def test_what_is_no_report_is_refused_in_one_sentence(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(content)
    with pytest.raises(SuspicionReportError, match=reason) as caught:
        read_suspicion_report(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SuspicionReportError, match="no regular file"):
        read_suspicion_report(tmp_path / "pipe")


@given(st.text(alphabet="|-: \\\n#aβμΔ1.,%", max_size=300), st.integers(0, len(TEXT)))
def test_any_text_is_a_report_or_refused(noise: str, place: int) -> None:
    for text in (noise, TEXT[:place] + noise + TEXT[place:]):
        try:
            assert parse_suspicion_report(text).rows
        except SuspicionReportError:
            continue


def test_a_report_is_told_from_a_profile_by_its_beginning() -> None:
    assert looks_like_suspicion_report(TEXT.encode()[:100])
    assert looks_like_suspicion_report(b"a preface\n" + TEXT.encode())
    assert not looks_like_suspicion_report(b'{"traceEvents": []}')
    assert not looks_like_suspicion_report(b" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):")


def test_the_source_document_is_read_whole() -> None:
    report = read_suspicion_report(seed("001"))
    assert len(report.rows) == 264
    assert not report.warnings
    assert (report.before.cycles, len(report.before.cycle_times_us)) == (14, 14)
    assert (report.after.cycles, len(report.after.cycle_times_us)) == (238, 238)
    assert report.before.mean_cycle_us == 631_394.91
