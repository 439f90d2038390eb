"""`cyclewatch incidents`, `silences`, `expect` and `expectations`."""

import contextlib
import getpass
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from cyclewatch.daemon.cli import triage
from cyclewatch.daemon.incidents.incident import Act, Incident, IncidentState
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_rows import write_incident
from cyclewatch.daemon.store.incidents import IncidentStore
from made_incidents import MEMBER, MINUTE, START_NS, incident, keep_regressions
from shell import Shell
from units import unit

GOLDEN = Path(__file__).parents[2] / "golden"
TWO = incident(
    change="SGLang 0.5.22 to 0.5.23",
    members=(MEMBER, replace(MEMBER, target="other", regression="gone", effect=0.08)),
)
OVER = incident(
    key="k2",
    state=IncidentState.RESOLVED,
    ended_at_ns=START_NS + 60 * MINUTE,
    cause=None,
    members=(replace(MEMBER, rank="tp1", ended_at_ns=START_NS + 45 * MINUTE),),
)
HOUR_NS = 3600 * 10**9


@pytest.fixture(name="shell")
def _shell(tmp_path: Path) -> Shell:
    """With an open incident of two servers, and one that is over."""
    shell = Shell(tmp_path)
    with storing(shell) as connection:
        keep_regressions(connection, "r1")
    keep(shell, TWO, OVER)
    return shell


@contextlib.contextmanager
def storing(shell: Shell) -> Iterator[Connection]:
    engine = open_database(f"sqlite:///{shell.database}", create=True)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def keep(shell: Shell, *incidents: Incident) -> None:
    with storing(shell) as connection:
        for one in incidents:
            write_incident(connection, one)


def noted(shell: Shell, number: int) -> list[tuple[str, str, str]]:
    """What, who and why of the book, read back."""
    engine = open_database(f"sqlite:///{shell.database}", create=False)
    notes = [(note.what, note.who, note.why) for note in IncidentStore(engine).notes(number)]
    engine.dispose()
    return notes


def test_a_list_that_is_cut_says_so_and_fails_for_what_it_does_not_show(shell: Shell) -> None:
    """The open incident is older than the one that is listed; JSON stays a list."""
    result = shell.run("incidents", "list", "--ended", "--limit", "1", "--fail", "--json")
    assert result.exit_code == 3
    assert [one["id"] for one in json.loads(result.stdout)] == [2]
    assert result.stderr == "cyclewatch: there are more than the 1 listed: --limit lists up to 10000\n"
    assert shell.run("incidents", "list", "--ended", "--limit", "2").stderr == ""


@pytest.mark.parametrize(("kind", "words"), [("silences", ("silences", "add")), ("expectations", ("expect", "server"))])
def test_lists_of_spans_say_that_they_are_cut(shell: Shell, kind: str, words: tuple[str, ...]) -> None:
    for _ in range(3):
        shell.run(*words, "--for", "1h", "--why", "x", "--who", "ada")
    result = shell.run(kind, "list", "--limit", "2", "--json")
    assert [one["id"] for one in json.loads(result.stdout)] == [3, 2]
    assert "there are more than the 2 listed" in result.stderr


def test_the_list_has_what_is_not_over(shell: Shell) -> None:
    text = shell.run("incidents", "list").stdout
    assert "decode on server and 1" in text
    assert "the power limit of gpu3" in text
    assert "SGLang 0.5.22 to 0.5.23" in text
    assert [one["id"] for one in shell.json("incidents", "list")] == [1]
    assert [one["id"] for one in shell.json("incidents", "list", "--ended")] == [2, 1]


def test_the_documents_have_the_documented_shape(shell: Shell) -> None:
    """The machine-readable contract; users build on it."""
    assert shell.json("incidents", "show", "1") == json.loads((GOLDEN / "incident.json").read_text())
    (listed,) = shell.json("incidents", "list")
    shown = shell.json("incidents", "show", "1")
    assert listed == {key: value for key, value in shown.items() if key not in {"felt", "members", "notes"}}


def test_one_incident_is_shown_with_all_that_a_person_needs(shell: Shell) -> None:
    assert shell.run("incidents", "show", "1").stdout == (GOLDEN / "incident.md").read_text()


def test_its_book_says_who_did_what(shell: Shell) -> None:
    shell.run("incidents", "ack", "1", "--who", "ada", "--why", "I am on it")
    text = shell.run("incidents", "show", "1").stdout
    assert "; acknowledged by ada (I am on it)" in text
    assert re.search(r"^- \S+ acknowledge by ada: I am on it$", text, re.MULTILINE)
    assert "incidents ack" not in text


def test_what_was_announced_says_by_whom(shell: Shell) -> None:
    shell.run("expect", "server", "--for", "1h", "--why", "driver 580", "--who", "ada")
    keep(shell, incident(key="k3", state=IncidentState.REBASED, ended_at_ns=START_NS, expectation=1))
    text = shell.run("incidents", "show", "3").stdout
    assert "; announced by ada (driver 580)" in text
    assert "- announced: expectation 1\n" in text


@pytest.mark.parametrize(
    ("word", "act", "state"),
    [
        ("ack", Act.ACKNOWLEDGE, "acknowledged"),
        ("resolve", Act.RESOLVE, "resolved"),
        ("rebase", Act.REBASE, "rebased"),
    ],
)
def test_acts_are_done_and_noted(shell: Shell, word: str, act: Act, state: str) -> None:
    result = shell.run("incidents", word, "1", "--who", "ada", "--why", "because")
    assert (result.exit_code, result.stdout) == (0, f"incident 1 is {state}\n")
    assert noted(shell, 1) == [(act.value, "ada", "because")]


def test_what_is_over_can_be_opened_again(shell: Shell) -> None:
    assert shell.json("incidents", "reopen", "2", "--who", "ada")["state"] == "open"
    assert noted(shell, 2) == [("reopen", "ada", "")]


def test_the_login_is_named_where_nobody_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind sudo it is the person, not root."""
    monkeypatch.setenv("SUDO_USER", "grace")
    monkeypatch.setenv("LOGNAME", "root")
    shell.run("incidents", "ack", "1")
    monkeypatch.delenv("SUDO_USER")
    shell.run("incidents", "resolve", "1")
    assert [who for _, who, _ in noted(shell, 1)] == ["grace", "root"]


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container."""
    monkeypatch.delenv("SUDO_USER", raising=False)

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert re.fullmatch(r"user \d+", triage.name_of(""))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("incidents", "ack", "2"), "incident 2 is resolved: reopen it first"),
        (("incidents", "reopen", "1"), "incident 1 is open: there is nothing to reopen"),
        (
            ("incidents", "show", "99999999999999999999"),
            "there is no incident 99999999999999999999: `cyclewatch incidents list --ended` shows all",
        ),
        (("incidents", "ack", "7"), "there is no incident 7: `cyclewatch incidents list --ended` shows all"),
        (
            ("incidents", "ack", "1", "--why", "a\x1b[31mb"),
            "why: holds characters that cannot be shown: write one line of plain text",
        ),
        (("incidents", "ack", "1", "--who", "a" * 129), "who: string should have at most 128 characters"),
        (("silences", "end", "7"), "there is no silence 7: `cyclewatch silences list` shows those that are"),
        (
            ("expectations", "end", "7"),
            "there is no expectation 7: `cyclewatch expectations list` shows those that are",
        ),
        (
            ("expect", "server", "--for", "soon", "--why", "x"),
            "for: 'soon' is no length of time up to 366d: say 90s, 15m, 1h, 2d or 1w",
        ),
        (
            ("expect", "server", "--for", "1h", "--from", "-2h", "--why", "x"),
            "from: '-2h' for 1h is over already: begin later or make it longer",
        ),
        (
            ("expect", "server", "--for", "1h", "--from", "9999-12-31", "--why", "x"),
            "from: '9999-12-31' is more than 366 days away: has the year been mistyped?",
        ),
        (("silences", "add", "--for", "1h", "--why", " "), "why: string should have at least 1 character"),
        (
            ("silences", "add", "--for", "1h", "--why", "x", "--target", ""),
            "target: string should have at least 1 character",
        ),
    ],
)
def test_what_cannot_be_done_is_one_sentence(shell: Shell, words: tuple[str, ...], sentence: str) -> None:
    result = shell.run(*words)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"cyclewatch: {sentence}\n")


def test_status_counts_those_that_are_not_over(shell: Shell) -> None:
    shell.store(unit(1, status={"targets": {}}))
    assert "open incidents: 1; see `cyclewatch incidents list`\n" in shell.run("status").stdout
    assert shell.json("status")["open_incidents"] == 1
    shell.run("incidents", "resolve", "1")
    assert "open incidents: 0\n" in shell.run("status").stdout


def test_fail_is_for_scripts(shell: Shell) -> None:
    """Acknowledged is not over."""
    assert shell.run("incidents", "list", "--fail").exit_code == 3
    shell.run("incidents", "ack", "1")
    assert shell.run("incidents", "list", "--fail").exit_code == 3
    shell.run("incidents", "resolve", "1")
    result = shell.run("incidents", "list", "--fail")
    assert (result.exit_code, result.stdout) == (0, "no incident; --ended lists those that are over\n")
    assert shell.run("incidents", "list", "--ended", "--fail").exit_code == 0


def test_a_missing_database_is_one_sentence(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for words in (("incidents", "list"), ("silences", "list"), ("expectations", "list"), ("incidents", "ack", "1")):
        result = shell.run(*words)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"cyclewatch: {shell.database}: no database yet")


def test_silences_are_added_listed_and_ended(shell: Shell) -> None:
    assert shell.run("silences", "list").stdout == "nothing is silenced\n"
    added = shell.json("silences", "add", "--target", "node7:*", "--cause", "gpu_*", "--for", "2h", "--why", "racks")
    assert (added["id"], added["target"], added["cause"], added["why"]) == (1, "node7:*", "gpu_*", "racks")
    assert shell.json("silences", "list") == [added]
    assert "node7:*" in shell.run("silences", "list").stdout
    assert shell.run("silences", "end", "1", "--who", "ada").stdout == "silence 1 is over\n"
    assert shell.json("silences", "list") == []
    (over,) = shell.json("silences", "list", "--over")
    assert over["why"] == "racks (ended by ada)"


def test_changes_are_announced_listed_and_ended(shell: Shell) -> None:
    before_ns = time.time_ns()
    result = shell.run("expect", "server", "--from", "+1h", "--for", "90s", "--why", "driver 580", "--who", "ada")
    assert result.stdout.startswith("expectation 1: what begins on server from ")
    engine = open_database(f"sqlite:///{shell.database}", create=False)
    (one,) = IncidentStore(engine).expectations(before_ns)
    engine.dispose()
    assert (one.target, one.who, one.why) == ("server", "ada", "driver 580")
    assert before_ns + HOUR_NS <= one.from_ns <= time.time_ns() + HOUR_NS
    assert one.until_ns - one.from_ns == 90 * 10**9
    (listed,) = shell.json("expectations", "list")
    assert set(listed) == {"id", "target", "from", "until", "who", "why"}
    assert "driver 580" in shell.run("expectations", "list").stdout
    assert shell.run("expectations", "end", "1").stdout == "expectation 1 is over\n"
    assert shell.run("expectations", "list").stdout == "nothing is announced\n"


def test_many_regressions_are_cut_in_the_text_and_whole_in_json(tmp_path: Path) -> None:
    """The worst come first."""
    shell = Shell(tmp_path)
    members = tuple(replace(MEMBER, target=f"server{number}", effect=number / 1000) for number in range(200))
    keep(shell, incident(members=members))
    text = shell.run("incidents", "show", "1").stdout
    assert text.index("server199") < text.index("server198")
    assert "server100 " not in text
    assert "and 160 more: `--json` has all." in text
    assert len(shell.json("incidents", "show", "1")["members"]) == 200
