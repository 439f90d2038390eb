"""`cyclewatch compare` on files: what it says of them, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cyclewatch.collectors.records import RECORD
from cyclewatch.daemon.cli.app import app
from profile_files import kernel, launch, mark, trace, write
from recordings import recorded
from rings import PlainRing, payload
from shared_data import SHARED, seed

RUNNER = CliRunner()
GOLDEN = Path(__file__).parents[2] / "golden"
REPORTS = Path(__file__).parents[2] / "fixtures/reports"
TERMINAL = {"COLUMNS": "140", "TERM": "dumb"}


def run(*words: object) -> Result:
    return RUNNER.invoke(app, ["compare", *map(str, words)], env=TERMINAL)


def document(*words: object) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*words: object) -> str:
    """The one sentence with which the command fails."""
    result = run(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def steps(name: str, *, dur: float, gpu: str = "NVIDIA H200", gap: float = 20) -> Any:
    """A trace of twenty decode steps of two kernels."""
    events = []
    for number in range(20):
        at = (dur + 300) * number
        events += [
            mark("step[DECODE bs=8]", at, dur + 200, on_device=True, number=number + 1),
            launch(2 * number, at - 5, 1),
            launch(2 * number + 1, at - 3, 1),
            kernel(name, at, dur + number % 3, 2 * number),
            kernel("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)", at + dur + gap, 50, 2 * number + 1),
        ]
    return trace(*events, deviceProperties=[{"id": 0, "name": gpu}])


@pytest.mark.parametrize("form", ["json", "md", "html"])
def test_the_comparison_of_a_report_is_the_golden_one(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three forms, of a report made by hand."""
    monkeypatch.chdir(REPORTS)
    words = {"json": ["--json"], "md": ["--markdown", "-"], "html": ["--html", "-"]}[form]
    result = run("memory_clock.md", *words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (GOLDEN / f"compare.{form}").read_text()


def test_the_document_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    made = document(recorded(tmp_path / "a.xz"), recorded(tmp_path / "b.xz", factor=1.3, seed=2))
    contract = {"comparable", "warnings", "summary", "split", "kernels", "substitutions", "suspicions", "causes"}
    assert contract <= set(made)
    assert set(made["split"][0]) == {"part", "before_us", "after_us", "delta_us"}
    cause = {"rank", "kind", "subject", "device", "score", "share", "status", "evidence"}
    assert set(made["causes"][0]) == cause


def test_recordings_are_compared_at_the_same_load(tmp_path: Path) -> None:
    made = document(recorded(tmp_path / "a.xz"), recorded(tmp_path / "b.xz", factor=1.3, seed=2))
    assert made["comparable"] is True
    assert made["summary"]["of"] == "decode"
    assert made["summary"]["cycles"] == {"before": 1200, "after": 1200}
    assert made["summary"]["slower"] == pytest.approx(1.3, abs=0.05)
    low, high = made["summary"]["ci"]
    assert low < 0.3 < high
    split = {part["part"]: part for part in made["split"]}
    whole = sum(part["delta_us"] for part in made["split"])
    assert split["launch"]["delta_us"] == pytest.approx(whole)
    assert {row["function"] for row in made["suspicions"]} >= {"launch", "wait"}


def test_equal_recordings_have_no_cause(tmp_path: Path) -> None:
    made = document(recorded(tmp_path / "a.xz", seed=3), recorded(tmp_path / "b.xz", seed=4))
    assert made["causes"] == []
    assert "no difference that can be told from the noise" in made["findings"][0]


def test_another_model_is_shown_and_not_claimed(tmp_path: Path) -> None:
    other = recorded(tmp_path / "b.xz", factor=1.5, server={"model_path": "other"})
    made = document(recorded(tmp_path / "a.xz"), other)
    assert made["comparable"] is False
    assert "other models" in made["warnings"][0]
    assert made["causes"] == []
    assert "no regression can be told" in made["findings"][0]
    assert made["split"]


def test_a_ring_is_read_to_its_newest_record(tmp_path: Path) -> None:
    ring = PlainRing(tmp_path, 4096)
    for number in range(1, 61):
        ring.write(payload(end_ns=number * 10**9))
    ring.close()
    made = document(ring.path, ring.path)
    assert made["summary"]["cycles"] == {"before": 60, "after": 60}
    assert made["summary"]["slower"] == 1.0


def test_a_slower_kernel_is_named(tmp_path: Path) -> None:
    gemm = "nvjet_tst_128x64_64x8_1x2_h_bz_TNT"
    before = write(tmp_path / "a.json", steps(gemm, dur=500))
    made = document(before, write(tmp_path / "b.json.gz", steps(gemm, dur=600)))
    assert made["comparable"] is True
    (slower,) = [one for one in made["kernels"] if one["verdict"] == "slower"]
    assert slower["short"] == gemm
    assert slower["delta_us"] == pytest.approx(100)
    assert any(gemm in finding for finding in made["findings"])
    assert made["causes"][0]["kind"] == "kernel_slower"


def test_an_equal_profile_has_no_findings_against_it(tmp_path: Path) -> None:
    before = write(tmp_path / "a.json", steps("nvjet_tst_64x8", dur=500))
    made = document(before, before)
    assert {one["verdict"] for one in made["kernels"]} == {"same"}
    assert made["causes"] == []


def test_other_hardware_is_shown_and_not_claimed(tmp_path: Path) -> None:
    before = write(tmp_path / "a.json", steps("nvjet_tst_64x8", dur=500))
    made = document(before, write(tmp_path / "b.json", steps("nvjet_tst_64x8", dur=900, gpu="AMD Instinct MI300X")))
    assert made["comparable"] is False
    assert made["causes"] == []
    assert "hardware" in " ".join(made["warnings"])
    assert made["families"]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("nothing.json", "no such file"),
        ("regression:x", "is no number"),
        ("2026-11-21T10:00/2026-11-21T09:00", "ends before it begins"),
        ("-1h/-2h", "ends before it begins"),
        ("1600-01-01/1700-01-01", "is the year right"),
        ("yesterday/today", "no such file"),
        ("\x1b[31m/\0", "no such file"),
        (".", "no regular file"),
    ],
)
def test_what_is_not_known_is_refused_with_the_mend(word: str, reason: str, tmp_path: Path) -> None:
    sentence = refused(word, recorded(tmp_path / "a.xz"))
    assert reason in sentence
    assert "\x1b" not in sentence


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "a.xz").read_bytes()
    (tmp_path / "cut.xz").write_bytes(whole[:-20])
    assert "not a recording" in refused(tmp_path / "cut.xz", tmp_path / "a.xz")
    (tmp_path / "1-2-3.ring").write_bytes(b"CYCWATCH" + b"\xff" * 5000)
    assert "ring" in refused(tmp_path / "1-2-3.ring", tmp_path / "a.xz")


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=8 * RECORD.itemsize, max_size=8 * RECORD.itemsize), st.sampled_from(RECORD.names or ()))
def test_any_records_are_compared_or_refused(tmp_path: Path, noise: bytes, kept: str) -> None:
    """Files of strangers: one column is plausible, all others are anything."""
    records = np.frombuffer(noise, RECORD).copy()
    records["kind"], records["flags"], records["mode"] = 1, 0, 2
    records[kept] = 1
    path = recorded(tmp_path / "a.xz", records=records)
    result = run(path, recorded(tmp_path / "b.xz"), "--json")
    assert result.exit_code in {0, 1}
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_two_of_a_kind_are_asked_for(tmp_path: Path) -> None:
    one, report = recorded(tmp_path / "a.xz"), REPORTS / "memory_clock.md"
    assert "name what it is to be compared with" in refused(one)
    assert "give two of one kind" in refused(one, report)
    assert "give two of one kind" in refused(report, report)


def test_a_phase_that_is_not_there_is_refused(tmp_path: Path) -> None:
    one = recorded(tmp_path / "a.xz")
    assert "phases that both have: decode" in refused(one, one, "--phase", "extend")


def test_the_text_for_people_begins_with_the_findings(tmp_path: Path) -> None:
    text = run(recorded(tmp_path / "a.xz"), recorded(tmp_path / "b.xz", factor=1.3, seed=2)).stdout
    assert text.splitlines()[1].startswith("- decode cycles at the same load")
    assert "Where the time goes" in text
    assert "Suspicion table" in text


def test_several_forms_at_once(tmp_path: Path) -> None:
    page, report = tmp_path / "a.html", tmp_path / "a.md"
    made = document(REPORTS / "memory_clock.md", "--html", page, "--markdown", report)
    assert made["causes"]
    assert page.read_text().startswith("<!doctype html>")
    assert report.read_text().startswith("# steady against throttled")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    assert "cannot be written" in refused(REPORTS / "memory_clock.md", "--html", tmp_path / "no/such/folder.html")


def test_the_source_document_is_read_again() -> None:
    """Cycles are not the same unit, kernels did not slow, and the first cause is the CPU's frequency."""
    made = document(seed("001"))
    assert "not the same unit: 14 x 631.4 ms against 238 x 38.52 ms over 8.84 and 9.17 s" in made["warnings"][0]
    assert made["summary"]["mean_cycle_change"] is None
    assert made["summary"]["slower"] == pytest.approx(3.7, abs=0.1)
    findings = "\n".join(made["findings"])
    assert "share shrank by the same factor (3.3 to 3.8): the kernels did not slow" in findings
    assert "cpu_frequency on Host fell from 85.7 to 22.5, a factor of 3.81" in findings
    first, *others = made["causes"]
    assert (first["kind"], first["status"]) == ("cpu_frequency", "measured")
    assert first["share"] > 0.9
    (usage,) = [one for one in others if one["kind"] == "gpu_utilization"]
    assert "a consequence of cpu_frequency" in usage["evidence"]
    assert len(made["suspicions"]) == 264


@pytest.mark.parametrize(
    ("before", "after", "comparable"),
    [
        ("hta-control-a100", "hta-test-v100-graphs", False),
        ("hf-h100-qwen1.5-0.5b", "hf-mi300x-qwen1.5-0.5b", False),
        ("kineto-v100-resnet50-w4-runA", "kineto-v100-resnet50-w4-runB", True),
    ],
)
def test_shared_pairs(before: str, after: str, comparable: bool) -> None:
    files = [SHARED / f"data/traces/{name}.json.gz" for name in (before, after)]
    if not all(file.exists() for file in files):
        pytest.skip(f"no profiles in {SHARED}/data/traces")
    made = document(*files)
    assert made["comparable"] is comparable
    assert made["families"]
    assert made["causes"] == []
    if comparable:
        assert {one["verdict"] for one in made["kernels"]} == {"same"}
