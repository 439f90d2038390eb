import contextlib
import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cyclewatch.daemon.store.unit import StoredLevel, Unit
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.watching.shift_watch import Change, Kind
from cyclewatch.detectors.watching.tracking import Regression, Tracker
from shell import Shell
from units import RUN, SECOND, stored

GOLDEN = Path(__file__).parents[2] / "golden/backtest.json"
BEGAN_NS = 1_800_000_000 * SECOND
WINDOWS = 1500
STEP_AT = 800


def levels(*, rank: str = "tp0", phase: str = "decode", run: str = RUN.key, step: float = 0.03) -> list[StoredLevel]:
    """Noise of 1 %, and a step after `STEP_AT` of the windows."""
    values = np.random.default_rng(5).normal(0, 0.01, WINDOWS)
    values[STEP_AT:] += np.log1p(step)
    return [
        StoredLevel(run, rank, phase, Level(at_ns, float(value), 0.002, 50.0, 0.1, 50, 50), suspected=False)
        for at_ns, value in zip(range(BEGAN_NS, BEGAN_NS + WINDOWS * 5 * SECOND, 5 * SECOND), values, strict=True)
    ]


def flagged_then() -> Regression:
    """What the daemon made of the step, with the key that it gives."""
    change = Change(
        direction=Direction.SLOWER,
        started_at_ns=BEGAN_NS + STEP_AT * 5 * SECOND,
        detected_at_ns=BEGAN_NS + (STEP_AT + 15) * 5 * SECOND,
        before=0.0,
        after=0.03,
        effect=0.0305,
        ci=(0.02, 0.04),
        probability=0.9999,
        windows_after=15,
        kind=Kind.TAIL,
    )
    tracker = Tracker(f"server|tp0|decode|{RUN.fingerprint}", Parameters(1, 1, 1, 0.02, 0.1, 0.03, 0.1, 10, 5 * SECOND))
    return tracker.update(change)


@pytest.fixture(name="past")
def _past(tmp_path: Path) -> Shell:
    """A store with levels of simulated windows."""
    past = Shell(tmp_path, "backtest")
    past.store(Unit(0, runs=[RUN], levels=levels(), regressions=[stored(flagged_then())]))
    return past


def approximate(value: Any) -> Any:
    """The same, with fractions compared roughly: they may differ in their last digits between machines."""
    if isinstance(value, dict):
        return {key: approximate(one) for key, one in value.items()}
    if isinstance(value, list):
        return [approximate(one) for one in value]
    return pytest.approx(value, rel=1e-2, abs=1e-4) if isinstance(value, float) else value


def test_the_document_is_the_golden_one(past: Shell) -> None:
    """The machine-readable contract; users build on it."""
    assert past.json("--clean") == approximate(json.loads(GOLDEN.read_text()))


def test_a_step_is_found_with_one_setting_and_not_with_another(past: Shell) -> None:
    """And what was found then stands beside it either way."""
    (one,) = past.json("--set", "detection.min_effect=0.02")["series"]
    (found,) = one["now"]
    assert found["kind"] == "level"
    assert found["effect"] == pytest.approx(0.03, abs=0.005)
    document = past.json("--set", "detection.min_effect=0.05")
    assert document["series"][0]["now"] == []
    assert document["settings"]["min_effect"] == {"now": 0.05, "configured": 0.02}
    assert [then["kind"] for then in document["series"][0]["then"]] == ["tail"]


def test_people_get_both_in_one_table(past: Shell) -> None:
    text = past.run("--set", "detection.min_effect = 0.01", "--clean").stdout
    assert "with detection.min_effect = 0.01 (configured: 0.02)" in text
    assert "server, tp0, decode (configuration f00d): 1,500 windows, 1.9 hours after the baseline" in text
    assert re.search(r"now +│ level │ 2027-01-15T09:0\d:\d\dZ │ open +│ \+3\.\d% .* s ", text)
    assert re.search(r"then +│ tail +│ 2027-01-15T09:06:40Z │ open +│ \+3\.0% \(\+2\.0% to \+4\.0%\) │ 75 s", text)
    assert "1 series, 1,500 windows, 1.9 hours: 1 flagged with these settings, 1 then" in text
    assert "false alarms in 1,000 hours of a series: 521.74 with these settings, 521.74 then" in text


def test_a_baseline_reaches_over_a_restart_of_the_same_configuration(tmp_path: Path) -> None:
    """Not over one with another."""
    past = Shell(tmp_path, "backtest")
    same, other = replace(RUN, key="k1"), replace(RUN, key="k2", fingerprint="beef")
    first, second = levels()[:900], [replace(one, run_key="k1") for one in levels()[900:]]
    past.store(Unit(0, runs=[RUN, same, other], levels=[*first, *second, *levels(run="k2", step=0.0)]))
    document = past.json()
    found = {one["fingerprint"]: (one["windows"], len(one["now"])) for one in document["series"]}
    assert found == {"f00d": (1500, 1), "beef": (1500, 0)}


def test_windows_that_the_daemon_did_not_judge_are_left_out(past: Shell) -> None:
    """A load that it had not seen, and a level that is not known."""
    one = levels()[0]
    blind = [replace(one, level=replace(one.level, known=9)), levels()[1]]
    blind[1] = replace(blind[1], level=replace(blind[1].level, log_ratio=float("nan")))
    past.store(Unit(0, levels=blind))
    assert past.json()["totals"]["windows"] == 1498
    assert past.json("--set", "detection.min_cycles=51")["totals"]["windows"] == 0


def test_series_and_time_can_be_chosen(past: Shell) -> None:
    """`--until` is not part of it, and without a zone it is UTC."""
    past.store(Unit(0, levels=[*levels(rank="tp1"), *levels(phase="extend")]))
    chosen = past.json("--target", "server", "--rank", "tp0", "--phase", "extend")["series"]
    assert [(one["rank"], one["phase"]) for one in chosen] == [("tp0", "extend")]
    words = ("--rank", "tp1", "--since", "2027-01-15T08:10:00", "--until", "2027-01-15T09:20:00+01:00")
    (one,) = past.json(*words)["series"]
    assert (one["from"], one["to"], one["windows"]) == ("2027-01-15T08:10:00Z", "2027-01-15T08:19:59Z", 120)
    (whole,) = past.json("--phase", "decode", "--rank", "tp0", "--until", "2027-01-15T09:00:00Z")["series"]
    assert (whole["windows"], len(whole["now"]), len(whole["then"])) == (720, 0, 0)


def test_too_short_a_time_says_so(past: Shell) -> None:
    text = past.run("--until", "2027-01-15T08:05:00Z").stdout
    assert "too few windows for a baseline: nothing can be flagged" in text


def test_a_fortnight_is_read_by_the_day(past: Shell) -> None:
    """Levels of far apart times are all there, once each."""
    later = [replace(one, level=replace(one.level, at_ns=one.level.at_ns + 14 * 86_400 * SECOND)) for one in levels()]
    past.store(Unit(0, levels=later))
    assert past.json()["totals"]["windows"] == 2 * WINDOWS


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--target", "nope"], 1, "no target nope in the store; there is server"),
        (["--rank", "tp9"], 1, "no rank tp9 in the store; there is tp0"),
        (["--phase", "extend"], 1, "no phase extend in the store; there is decode"),
        (
            ["--since", "2030-01-01"],
            1,
            "no levels in that time; there are some from 2027-01-15T08:00:00Z to 2027-01-15T10:04:55Z",
        ),
        (
            ["--set", "detection.min_efect=0.1"],
            2,
            "--set detection.min_efect: no such setting; did you mean detection.min_effect?",
        ),
        (["--set", "rings.enabled=no"], 2, "--set rings.enabled: no such setting"),
        (
            ["--set", "detection.min_effect"],
            2,
            "--set detection.min_effect: write it as KEY=VALUE, as detection.min_effect=0.01",
        ),
        (["--set", "detection.min_effect=7"], 2, "--set detection.min_effect: input should be less than 1"),
        (
            ["--set", "detection.warmup_s=7"],
            2,
            (
                "--set detection.warmup_s: changes nothing of what is stored; can be set: reference_s, min_effect, "
                "min_tail_effect, persistence_s, false_alarms_per_hour, history_s, min_cycles"
            ),
        ),
    ],
)
def test_wrong_words_are_one_sentence(past: Shell, words: list[str], code: int, sentence: str) -> None:
    result = past.run(*words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"cyclewatch: {sentence}\n"


@pytest.mark.parametrize("words", [["--since", "yesterday"], ["--since", "2027-01-16", "--until", "2027-01-15"]])
def test_a_wrong_time_is_a_wrong_option(past: Shell, words: list[str]) -> None:
    result = past.run(*words)
    assert result.exit_code == 2
    assert "write it as 2026-11-21T10:00:00Z" in result.stderr or "--since must be before --until" in result.stderr


def test_an_empty_database_is_one_sentence(tmp_path: Path) -> None:
    past = Shell(tmp_path, "backtest")
    past.store()
    result = past.run()
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "cyclewatch: the store has no levels yet: they begin when a baseline stands; see `cyclewatch status`\n"
    )


def test_a_missing_database_is_one_sentence_and_none_is_made(tmp_path: Path) -> None:
    past = Shell(tmp_path, "backtest")
    result = past.run()
    assert result.exit_code == 1
    assert result.stderr.startswith(f"cyclewatch: {past.database}: no database yet")
    assert not past.database.exists()


def test_looking_changes_nothing(past: Shell) -> None:
    with contextlib.closing(sqlite3.connect(past.database)) as connection:
        before = "\n".join(connection.iterdump())
    past.run("--set", "detection.min_effect=0.01")
    with contextlib.closing(sqlite3.connect(past.database)) as connection:
        assert "\n".join(connection.iterdump()) == before
