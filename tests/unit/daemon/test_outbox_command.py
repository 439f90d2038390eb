"""`cyclewatch outbox`: what waits, what was given up, and how it is sent after all."""

from pathlib import Path

import pytest

from couriers import Lab, status
from cyclewatch.daemon.alerts.message import State
from shell import Shell


@pytest.fixture(name="shell")
def _shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, "outbox")
    shell.store()
    return shell


@pytest.fixture(name="lab")
def _lab(shell: Shell) -> Lab:
    """Its outbox, with a message that was refused, one that was told, and one that is held."""
    lab = Lab(shell.database.parent)
    lab.service.answers = lambda request: status(404) if b'"incident":"1"' in request.body else None
    lab.put("1", 1)
    lab.put("2", 1)
    lab.turn_for(1)
    lab.put("3", 1, held_s=3600)
    lab.engine.dispose()
    return lab


def test_an_empty_outbox_says_so(shell: Shell) -> None:
    assert shell.run("list").stdout == "no message waits or was given up\n"
    assert shell.run("list", "--dead").stdout == "no message was given up\n"
    assert shell.json("list") == []


@pytest.mark.usefixtures("lab")
def test_it_lists_what_waits_and_what_was_given_up(shell: Shell) -> None:
    held, dead = shell.json("list")
    assert (held["incident"], held["standing"], held["reason"]) == ("3", "held", "")
    assert dead == {
        "id": 1,
        "key": "1:1:sink",
        "sink": "sink",
        "standing": "dead",
        "incident": "1",
        "state": "opened",
        "severity": "warning",
        "created_at": "2027-01-15T08:00:00Z",
        "not_before": "2027-01-15T08:00:00Z",
        "attempts": 1,
        "last_attempt_at": "2027-01-15T08:00:00Z",
        "done_at": "2027-01-15T08:00:00Z",
        "reason": "HTTP 404",
    }
    assert [one["incident"] for one in shell.json("list", "--dead")] == ["1"]
    assert [one["incident"] for one in shell.json("list", "--all", "--limit", "2")] == ["3", "2"]
    assert "there are more than the 2 listed" in shell.run("list", "--all", "--limit", "2").stderr
    assert "HTTP 404" in shell.run("list").stdout


def test_what_was_given_up_can_be_sent_again(shell: Shell, lab: Lab) -> None:
    assert shell.run("resend", "1").stdout == "1 message will be sent again\n"
    lab.service.answers = lambda _: None
    lab.turn_for(10)
    assert lab.standings()["1:1:sink"] == "delivered"
    lab.engine.dispose()


def test_all_that_was_given_up_can_be_sent_again(shell: Shell, lab: Lab) -> None:
    assert shell.run("resend", "--dead").stdout == "1 message will be sent again\n"
    assert shell.run("resend", "--dead").stdout == "0 messages will be sent again\n"


def test_what_is_no_news_any_more_is_not_sent_again(shell: Shell, lab: Lab) -> None:
    """The incident has been resolved since, and that was told."""
    lab.service.answers = lambda _: None
    lab.put("1", 2, State.RESOLVED)
    lab.turn_for(10)
    lab.engine.dispose()
    refused = shell.run("resend", "1")
    assert refused.exit_code == 1
    assert refused.stderr == "cyclewatch: message 1: what came after it in its incident has been delivered\n"
    assert shell.run("resend", "--dead").stdout == "0 messages will be sent again\n"


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("2",), 1, "message 2 has been told: delivered"),
        (("99",), 1, "no message 99 is in the outbox"),
        (("9" * 30,), 1, "is in the outbox"),
        ((), 2, "give the number of a message, or --dead"),
        (("1", "--dead"), 2, "give the number of a message, or --dead"),
    ],
)
def test_what_cannot_be_sent_again_is_said_in_a_sentence(
    shell: Shell, words: tuple[str, ...], code: int, said: str
) -> None:
    result = shell.run("resend", *words)
    assert result.exit_code == code
    assert said in result.stderr


def test_without_a_database_it_says_what_to_do(tmp_path: Path) -> None:
    result = Shell(tmp_path, "outbox").run("list")
    assert result.exit_code == 1
    assert "no database yet" in result.stderr
