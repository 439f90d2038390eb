import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.cli.detect import sparkline
from cyclewatch.detectors.change_points import offline
from cyclewatch.detectors.change_points.offline import Settings

TESTS = Path(__file__).parents[2]
SERVICE = TESTS / "fixtures/detect/service.csv"
GOLDEN = TESTS / "golden/detect.json"
RUNNER = CliRunner()


def run(*words: str | Path, data: str | bytes = "") -> Result:
    return RUNNER.invoke(app, ["detect", *map(str, words)], input=data)


def document(*words: str | Path, data: str | bytes = "") -> Any:
    result = run(*words, "--json", data=data)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def given_values(values: Any, **columns: Any) -> str:
    """A series as JSON."""
    plain = {name: np.asarray(column).tolist() for name, column in {"values": values, **columns}.items()}
    return json.dumps(plain)


def shifted(seed: int, n: int = 120, at: int = 70, size: float = 0.1) -> Any:
    values = np.random.default_rng(seed).normal(10, 0.2, n)
    values[at:] *= 1 + size
    return values


def approximate(value: Any) -> Any:
    """The same, with fractions compared roughly: they may differ in their last digits between machines."""
    if isinstance(value, dict):
        return {key: approximate(one) for key, one in value.items()}
    if isinstance(value, list):
        return [approximate(one) for one in value]
    return pytest.approx(value, rel=1e-3, abs=1e-6) if isinstance(value, float) else value


def test_the_document_is_the_golden_one() -> None:
    """The machine-readable contract; users build on it."""
    found = document(SERVICE)
    golden = json.loads(GOLDEN.read_text())
    assert found == approximate(golden)
    assert list(found) == list(golden) == ["n", "change_points", "suspicions", "parameters", "warnings"]
    (point,) = found["change_points"]
    assert list(point) == ["index", "time", "before", "after", "effect", "ci", "probability"]
    assert (point["index"], point["time"]) == (90, "2026-11-21T10:11:30Z")


def test_several_files_are_a_document_a_line_in_order(tmp_path: Path) -> None:
    """Each with its file; standard input is one of them."""
    other = tmp_path / "other.json"
    other.write_text(given_values(shifted(1)))
    result = run(SERVICE, "-", other, "--json", data="value\n1\n2\n")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(one["file"], one["n"]) for one in documents] == [(str(SERVICE), 160), ("-", 2), (str(other), 120)]
    assert next(iter(documents[0])) == "file"


def test_a_file_that_cannot_be_used_does_not_stop_the_others(tmp_path: Path) -> None:
    """One sentence on standard error, and exit code 1 in the end."""
    missing = tmp_path / "missing.csv"
    result = run(missing, SERVICE, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["file"] == str(SERVICE)
    reason = "cannot be read: no such file or directory; name a CSV or JSON file, or - for standard input"
    assert result.stderr == f"cyclewatch: {missing}: {reason}\n"


def test_people_get_a_table_in_plain_words() -> None:
    text = run(SERVICE).stdout
    assert f"{SERVICE}: 160 values, 1 change" in text
    assert "ignored column 'host'" in text
    assert "90" in text
    assert "2026-11-21T10:11:30Z" in text
    assert "rises by 4.3% (+3.9% to +4.6%)" in text
    assert "█" in text
    assert "standard input: 3 values, no change" in run("-", data="1\n2\n3\n").stdout


def test_what_does_not_count_is_said_with_its_reason() -> None:
    found = document(SERVICE, "--min-effect", "0.2")
    assert found["change_points"] == []
    (suspicion,) = found["suspicions"][:1]
    assert list(suspicion) == ["index", "time", "effect", "probability", "reason"]
    assert suspicion["reason"] == "smaller than the minimum effect of 20.0%"
    assert "not counted: row 90: +4.3%" in run(SERVICE, "--min-effect", "0.2").stdout


def test_options_are_among_the_parameters() -> None:
    found = document("-", "--min-effect", "0.01", "--false-alarm", "0.2", "--min-length", "9", data="1\n2\n")
    assert found["parameters"] == {"min_effect": 0.01, "false_alarm": 0.2, "min_length": 9}


def test_the_help_tells_the_defaults_of_the_engine() -> None:
    """It is not loaded for the help, so they stand there as text."""
    text = " ".join(run("--help").stdout.split())
    default = Settings()
    assert f"Default {default.min_effect:g}: any." in text
    assert f"Default {default.false_alarm:g}." in text
    assert f"Default {default.min_length}." in text


@pytest.mark.parametrize(
    "words",
    [
        ["-", "-"],
        ["-", "--min-effect", "nan"],
        ["-", "--min-effect", "inf"],
        ["-", "--min-effect", "-1"],
        ["-", "--false-alarm", "0.6"],
        ["-", "--false-alarm", "nan"],
        ["-", "--min-length", "1"],
        [],
    ],
)
def test_wrong_options_end_with_two(words: list[str]) -> None:
    result = run(*words, data="1\n")
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "data",
    [
        "value\n",
        "1\n",
        "nan\nnan\n",
        "7\n" * 50,
        "0\n" * 20 + "1\n" * 20,
        "1e308\n" * 20 + "-1e308\n" * 20,
        "1e-320\n" * 20 + "1e-310\n" * 20,
        '{"values": []}',
        given_values([1.0] * 30, batch_size=[0.0] * 30),
        given_values([0.0] * 30, batch_size=[1.0] * 30),
        given_values([1e-308] * 20 + [1e308] * 20, batch_size=[1e300] * 40),
    ],
    ids=range(11),
)
def test_series_at_the_edge_are_answered(data: str) -> None:
    """With JSON that every parser takes: null where there is no finite number."""
    result = run("-", "--json", data=data)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout, parse_constant=pytest.fail)
    assert {"n", "change_points", "suspicions", "parameters"} <= set(found)
    assert run("-", data=data).exit_code == 0


def test_a_level_of_nothing_has_no_relative_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Null as JSON, and words for people."""

    def from_zero(values: Any, options: Settings) -> offline.Detection:
        point = offline.ChangePoint(2, 0.0, 1.0, math.nan, (math.nan, math.inf), 0.999)
        return offline.Detection(len(values), (point,), (), options)

    monkeypatch.setattr(offline, "detect", from_zero)
    (point,) = document("-", data="0\n0\n1\n1\n")["change_points"]
    assert (point["effect"], point["ci"]) == (None, [None, None])
    assert "the level changes" in run("-", data="0\n0\n1\n1\n").stdout


def test_rows_are_those_of_the_file_after_sorting() -> None:
    """Handed in backwards: the first value of the new level in time, by its row in the file."""
    values = shifted(2)
    found = document("-", data=given_values(values[::-1], time=np.arange(120)[::-1]))
    (point,) = found["change_points"]
    assert point["effect"] == pytest.approx(0.1, abs=0.02)
    assert abs(point["time"] - 70) <= 1
    assert point["index"] == 119 - point["time"]
    assert found["warnings"] == ["times go back, first at row 1: sorted by time"]


def test_the_load_is_taken_out_by_phase() -> None:
    """Load swings by half, 3 % more time for the decodes from row 200 on, and none for the prefills."""
    random = np.random.default_rng(3)
    rows = np.arange(400)
    batch = np.round(24 * (1 + 0.5 * np.sin(rows / 20)))
    values = (6 + 0.2 * batch) * np.exp(random.normal(0, 0.01, 400))
    decode = rows % 2 == 0
    values[decode & (rows >= 200)] *= 1.03
    text = "value,phase,batch_size\n" + "".join(
        f"{value:.6f},{'decode' if is_decode else 'extend'},{size:.0f}\n"
        for value, is_decode, size in zip(values, decode, batch, strict=True)
    )
    found = document("-", data=text)
    (point,) = found["change_points"]
    assert point["phase"] == "decode"
    assert abs(point["index"] - 200) <= 8
    assert point["effect"] == pytest.approx(0.03, abs=0.005)
    assert found["parameters"]["costs"]["decode"] == pytest.approx({"fixed": 6, "batch_size": 0.2}, rel=0.1)
    assert "decode" in run("-", data=text).stdout


def test_names_from_a_stranger_cannot_disturb_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J[red].csv"
    path.write_text("time,value,\x1b[31m\n" + "".join(f"\x1b[{i}J,{i // 30},\n" for i in range(60)))
    text = run(path).stdout
    assert "\x1b" not in text
    assert "a\\x1b[2J[red].csv: 60 values" in text


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sets(st.integers(0, 119), max_size=5))
def test_csv_and_json_give_the_same(seed: int, missing: set[int]) -> None:
    """Whatever the form, with gaps and all."""
    values = [None if row in missing else float(one) for row, one in enumerate(shifted(seed))]
    times = [1000 + 5 * row for row in range(len(values))]
    lines = [f"{time},{'' if one is None else repr(one)}" for time, one in zip(times, values, strict=True)]
    as_csv = document("-", data="\n".join(["time,value", *lines]))
    assert as_csv == document("-", data=json.dumps({"values": values, "time": times}))
    assert as_csv == document("-", data="\r\n".join(lines))


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 8.0, 2.0**-40, 2.0**60]), st.sampled_from([0.0, -64.0, 4096.0]))
def test_scaling_and_shifting_moves_nothing(seed: int, scale: float, shift: float) -> None:
    values = np.round(shifted(seed) * 1024) / 1024
    plain, moved = (document("-", data=given_values(one)) for one in (values, (values + shift) * scale))
    assert [one["index"] for one in moved["change_points"]] == [one["index"] for one in plain["change_points"]]


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline(np.array([1.0, math.nan, 2.0, 8.0])) == "▁▂█"
    assert sparkline(np.array([5.0, 5.0])) == "▁▁"
    assert sparkline(np.array([math.inf])) == ""
    assert sparkline(np.array([-1.7e308, 1.7e308])) == "▁█"
    assert len(sparkline(np.arange(10_000.0))) == 72


def test_a_terminal_without_unicode_gets_text() -> None:
    """No crash over a block."""
    command = [sys.executable, "-m", "cyclewatch.daemon", "detect", str(SERVICE)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    answer = subprocess.run(command, check=False, capture_output=True, env=environment)
    assert answer.returncode == 0, answer.stderr
    assert b"1 change" in answer.stdout
