import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.store.unit import Unit
from cyclewatch.detectors.watching.online import Direction
from cyclewatch.detectors.watching.tracking import State
from shell import Shell
from units import REGRESSION, SECOND, stored, unit

GOLDEN = Path(__file__).parents[2] / "golden"
COMMANDS = (
    "",
    "run",
    "demo",
    "detect",
    "backtest",
    "compare",
    "status",
    "doctor",
    "install",
    "uninstall",
    "kernels",
    "metrics",
    "probe",
    "profile",
    "profiles",
    "profiles list",
    "profiles show",
    "profiles on",
    "profiles off",
    "roofline",
    "model",
    "model show",
    "regressions",
    "regressions list",
    "regressions show",
    "expect",
    "incidents",
    "incidents list",
    "incidents show",
    "incidents ack",
    "incidents resolve",
    "incidents rebase",
    "incidents reopen",
    "silences",
    "silences list",
    "silences add",
    "silences end",
    "expectations",
    "expectations list",
    "expectations end",
    "db",
    "db upgrade",
    "db check",
    "db backup",
    "db prune",
    "db stats",
    "sink",
    "sink list",
    "sink test",
    "outbox",
    "outbox list",
    "outbox resend",
    "config",
    "config check",
    "config show",
    "config reference",
)
TERMINAL = {"COLUMNS": "100", "TERM": "dumb"}
BEGAN_NS = 1_800_000_000 * SECOND
CAUSE = {
    "rank": 1,
    "kind": "stage_launch_busy",
    "subject": "run_batch [1]: takes longer",
    "device": "",
    "score": 0.9,
    "share": 0.87,
    "status": "measured",
    "evidence": ["launch: 4.000 ms before, 5.000 ms after"],
}
PART = {"part": "launch", "before_us": 4000.0, "after_us": 5000.0, "delta_us": 1000.0}


@pytest.fixture(name="shell")
def _shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, columns=100)


@pytest.fixture(name="found")
def _found(shell: Shell) -> Shell:
    """A store with an open slowdown and an improvement before it."""
    slower = replace(REGRESSION, started_at_ns=BEGAN_NS, detected_at_ns=BEGAN_NS + 40 * SECOND)
    faster = replace(
        REGRESSION, key="f", direction=Direction.FASTER, state=State.NOTED, started_at_ns=BEGAN_NS - 900 * SECOND
    )
    shell.store(unit(regressions=[stored(slower, split=(PART,), causes=(CAUSE,)), stored(faster, split=(), causes=())]))
    return shell


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_the_golden_text(command: str) -> None:
    """What people read first."""
    name = f"help {command}".strip().replace(" ", "-")
    words = [*command.split(), "--help"]
    result = CliRunner().invoke(app, words, env=TERMINAL, prog_name="cyclewatch")
    text = "".join(f"{line.rstrip()}\n" for line in result.stdout.splitlines())
    assert result.exit_code == 0
    assert text == (GOLDEN / f"{name}.txt").read_text()


def test_every_command_has_a_golden_help() -> None:
    """A command that is added is added here as well."""
    listed = (GOLDEN / "help.txt").read_text().partition("Commands:\n")[2]
    assert set(re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)) == {
        command.split()[0] for command in COMMANDS if command
    }


def test_the_list_of_commands_is_short_and_loads_none_of_them() -> None:
    """All of them together took ten times as long as the list itself."""
    code = (
        "import atexit, sys; from cyclewatch.daemon.__main__ import main\n"
        "heavy = ('numpy', 'sqlalchemy', 'pydantic', 'httpx', 'cyclewatch.config')\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules]))\n"
        "sys.argv[1:] = ['--help']; main()"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert answer.stdout.endswith("\n[]\n")
    assert "..." not in answer.stdout.partition("Commands:")[2]


def test_without_a_command_it_says_what_there_is() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "regressions" in result.output


def test_regressions_as_json_have_the_documented_shape(found: Shell) -> None:
    """The machine-readable contract; users build on it."""
    (one,) = found.json("regressions", "list")
    assert one == {
        "id": 1,
        "node": "node",
        "target": "server",
        "rank": "tp0",
        "phase": "decode",
        "state": "open",
        "direction": "slower",
        "kind": "level",
        "started_at": "2027-01-15T08:00:00Z",
        "detected_at": "2027-01-15T08:00:40Z",
        "ended_at": None,
        "effect": 0.22,
        "ci": [0.2, 0.24],
        "probability": 0.9999,
        "causes": [CAUSE],
    }


def test_improvements_are_listed_where_asked_for(found: Shell) -> None:
    """Newest first."""
    assert [one["direction"] for one in found.json("regressions", "list", "--improvements")] == ["slower", "faster"]


def test_one_regression_as_json_has_its_split_too(found: Shell) -> None:
    one = found.json("regressions", "show", "1")
    assert one["split"] == [PART]
    assert one["causes"] == [CAUSE]


def test_the_list_for_people_is_a_table(found: Shell) -> None:
    """A cause with brackets in it is no markup."""
    text = found.run("regressions", "list").stdout
    assert "+22.0% (+20.0% to +24.0%)" in text
    assert "run_batch [1]: takes longer" in text


def test_one_regression_for_people_has_split_cause_and_evidence(found: Shell) -> None:
    text = found.run("regressions", "show", "1").stdout
    assert "# server: decode is 22.0% slower" in text
    assert "| launch | 4.000 | 5.000 | +1.000 |" in text
    assert "run_batch [1]: takes longer (stage_launch_busy; measured, 87% of the slowdown)" in text
    assert "launch: 4.000 ms before, 5.000 ms after" in text


def test_fail_gives_exit_code_three_while_one_is_open(found: Shell) -> None:
    """For scripts and CI."""
    assert found.run("regressions", "list").exit_code == 0
    assert found.run("regressions", "list", "--fail").exit_code == 3
    assert found.run("regressions", "list", "--fail", "--json").exit_code == 3


def test_without_a_regression_it_says_so_and_does_not_fail(shell: Shell) -> None:
    shell.store(unit(regressions=[]))
    result = shell.run("regressions", "list", "--fail")
    assert (result.exit_code, result.stdout) == (0, "no regression found\n")
    assert shell.json("regressions", "list") == []


@pytest.mark.parametrize("number", ["99", "99999999999999999999"])
def test_an_unknown_number_is_one_sentence(found: Shell, number: str) -> None:
    result = found.run("regressions", "show", number)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"cyclewatch: no regression {number}; see `cyclewatch regressions list`\n"


@pytest.mark.parametrize("words", [("status",), ("regressions", "list"), ("regressions", "show", "1")])
def test_a_missing_database_is_one_sentence_and_exit_code_one(shell: Shell, words: tuple[str, ...]) -> None:
    """And none is made by asking."""
    result = shell.run(*words)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"cyclewatch: {shell.database}: no database yet: has `cyclewatch run` been started")
    assert len(result.stderr.splitlines()) == 1
    assert not shell.database.exists()


@pytest.mark.parametrize("words", [("status",), ("config", "check"), ("doctor",), ("run",), ("regressions", "list")])
def test_a_misspelt_key_is_named_with_exit_code_two(shell: Shell, words: tuple[str, ...]) -> None:
    """By every command that reads the configuration."""
    shell.config.write_text("[detection]\nmin_efect = 0.1\n")
    result = shell.run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"cyclewatch: {shell.config}: detection.min_efect: no such key; did you mean detection.min_effect?\n"
    )


def test_a_good_configuration_is_said_to_be_good(shell: Shell) -> None:
    assert shell.run("config", "check").stdout == "configuration is good\n"


def test_the_settings_that_hold_are_shown_without_passwords(shell: Shell) -> None:
    """They end up in bug reports."""
    shell.config.write_text(
        "[store]\nurl = 'postgresql+psycopg://u:s3cret@h/db'\n"
        "[[targets]]\nname = 'a'\nurl = 'http://u:s3cret@127.0.0.1:30000'\n"
    )
    text = shell.run("config", "show").stdout
    assert json.loads(text)["store"]["url"] == "postgresql+psycopg://u:***@h/db"
    assert json.loads(text)["web"]["port"] == 9472
    assert "s3cret" not in text


def test_the_reference_can_be_written_to_a_file(shell: Shell) -> None:
    """As the README says: `cyclewatch config reference > cyclewatch.toml`."""
    result = CliRunner().invoke(app, ["config", "reference"])
    shell.config.write_text(result.stdout)
    assert shell.run("config", "check").exit_code == 0


PHASE = {
    "rank": "tp0",
    "phase": "decode",
    "median_s": 0.00512,
    "ratio": 1.2,
    "baseline_progress": 1.0,
    "regression_open": True,
}
RANK = {
    "rank": "tp0",
    "alive": True,
    "disabled": 1,
    "heartbeat_age_s": 0.4,
    "read": 1000,
    "lost": 7,
    "torn": 1,
}


def fresh(**status: Any) -> Unit:
    """What a living daemon stored a moment ago."""
    written = unit(status={"targets": {"[fe80::1]:30000": {"ranks": [RANK], "phases": [PHASE]}}}, **status)
    written.at_ns = time.time_ns()
    return written


def test_status_shows_targets_phases_and_what_is_wrong(shell: Shell) -> None:
    """A target's name is shown as it is."""
    shell.store(fresh())
    text = shell.run("status").stdout
    assert "[fe80::1]:30000" in text
    assert re.search(r"tp0 .* decode .* 5\.120 ms .* \+20\.0% .* 100% .* open", text)
    assert "the hook switched itself off" in text
    assert "7 records lost, 1 torn" in text
    assert "the server was restarted" in text
    assert "open regressions: 1; see `cyclewatch regressions list`" in text
    assert "is it running?" not in text


def test_status_as_json_has_the_same(shell: Shell) -> None:
    shell.store(fresh())
    document = shell.json("status")
    assert document["targets"]["[fe80::1]:30000"]["phases"] == [PHASE]
    assert (document["stale"], document["open_regressions"]) == (False, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["updated_at"])


def test_status_says_that_the_daemon_has_been_silent(shell: Shell) -> None:
    """A stopped daemon's last state is not passed off as the present one."""
    written = fresh()
    written.at_ns -= 600 * SECOND
    shell.store(written)
    assert re.search(r"last stored something 60[01] s ago: is it running\?", shell.run("status").stdout)
    assert shell.json("status")["stale"] is True


def test_status_of_an_empty_database_says_so(shell: Shell) -> None:
    shell.store()
    assert shell.run("status").stdout == "the daemon has not stored anything yet\n"
    document = shell.json("status")
    assert (document["updated_at"], document["stale"], document["targets"]) == (None, True, {})


def test_status_without_a_server_points_to_the_doctor(shell: Shell) -> None:
    written = unit(status={"targets": {}}, regressions=[])
    written.at_ns = time.time_ns()
    shell.store(written)
    assert "no server is being watched; `cyclewatch doctor` says why" in shell.run("status").stdout


def test_the_doctor_ends_with_three_where_something_is_bad(shell: Shell) -> None:
    """Each finding with its mend, for people and as JSON."""
    result = shell.run("doctor")
    assert result.exit_code == 3
    assert f"ring directory {shell.directory}/rings: does not exist" in result.stdout
    assert "      mend: " in result.stdout
    checks = json.loads(shell.run("doctor", "--json").stdout)
    assert {frozenset(check) for check in checks} == {frozenset({"subject", "level", "finding", "mend"})}
    assert {"bad", "note"} <= {check["level"] for check in checks}


def test_a_run_that_cannot_listen_ends_with_one_sentence(shell: Shell) -> None:
    shell.config.write_text(f"{shell.config.read_text()}[web]\nhost = '203.0.113.1'\n")
    answer = command_line("run", "-c", str(shell.config))
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("cyclewatch: web.host and web.port: cannot listen on 203.0.113.1")
    assert "Traceback" not in answer.stderr


def test_a_database_that_breaks_in_the_midst_is_one_sentence(shell: Shell) -> None:
    """A table that somebody dropped: no traceback."""
    shell.store(unit())
    with contextlib.closing(sqlite3.connect(shell.database)) as connection, connection:
        connection.execute("DROP TABLE status")
    answer = command_line("status", "-c", str(shell.config))
    assert answer.returncode == 1
    assert answer.stderr == "cyclewatch: the database does not answer: no such table: status\n"


def command_line(*words: str) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    command = [sys.executable, "-m", "cyclewatch.daemon", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
