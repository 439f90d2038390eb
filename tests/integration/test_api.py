"""The API of the real daemon, over HTTP."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_rows import write_incident
from daemon_process import COMMAND, Daemon
from made_incidents import incident, keep_regressions

TOKEN = "0123456789abcdef-tokenSecretTokenSecret"
ADA = {"who": "ada", "why": "I am on it"}


@pytest.fixture(name="daemon")
def _daemon(tmp_path: Path) -> Daemon:
    """Not started yet; there is an incident in its store, and it logs all it can."""
    daemon = Daemon(tmp_path / "daemon", tmp_path / "rings", {}, extra='level = "debug"\n')
    (tmp_path / "rings").mkdir()
    engine = open_database(f"sqlite:///{daemon.directory}/cyclewatch.db", create=True)
    with engine.begin() as connection:
        keep_regressions(connection, "r1")
        write_incident(connection, incident())
    engine.dispose()
    return daemon


@pytest.fixture(name="locked")
def _locked(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """With a token from a file."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("CYCLEWATCH_WEB__TOKEN", f"file:{tmp_path}/token")
    with daemon:
        yield daemon


def ask(daemon: Daemon, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return httpx.request(method, f"{daemon.url}/api/v1{path}", json=body, headers=headers, timeout=30)


def test_what_is_done_over_http_is_seen_on_the_command_line(locked: Daemon) -> None:
    """And the token is in nothing that the daemon or a command says."""
    secret = {"authorization": f"Bearer {TOKEN}"}
    answers = [
        ask(locked, "GET", "/incidents"),
        ask(locked, "GET", "/incidents", authorization=f"Bearer {TOKEN}x"),
        ask(locked, "GET", "/incidents", authorization=f"Basic {TOKEN}"),
        ask(locked, "GET", "/incidents", **secret),
        ask(locked, "GET", "/regressions", **secret),
        ask(locked, "GET", "/openapi.json", **secret),
        ask(locked, "POST", "/incidents/1/acknowledge", ADA, **secret),
        ask(locked, "POST", "/incidents/1/acknowledge", ADA, **secret),
        ask(locked, "POST", "/silences", {"for": "1h", **ADA}, **secret),
        ask(locked, "POST", "/silences", {"for": "1h"}, **secret),
        ask(locked, "POST", "/expectations", {"target": "server", "for": "1h", **ADA}, **secret),
        ask(locked, "DELETE", "/expectations/1?who=bob", **secret),
        ask(locked, "GET", "/nothing", **secret),
    ]
    assert [one.status_code for one in answers] == [401, 401, 401, 200, 200, 200, 200, 409, 201, 422, 201, 200, 404]
    shown = locked.command("incidents", "show", "1")
    assert (shown["id"], shown["members"][0]["id"]) == (1, 1)
    assert [(note["who"], note["why"]) for note in shown["notes"] if note["who"]] == [("ada", "I am on it")]
    assert [one["why"] for one in locked.command("silences", "list")] == ["I am on it"]
    assert httpx.get(f"{locked.url}/healthz").text == "ok\n"
    said = [locked.get("/metrics") or "", *(f"{one.headers} {one.text}" for one in answers)]
    for words in (["status", "--json"], ["config", "show"], ["doctor", "--json"], ["incidents", "show", "1"]):
        command = [*COMMAND, *words, "--config", str(locked.config)]
        answer = subprocess.run(command, check=False, capture_output=True, timeout=60, text=True)
        said.append(f"{answer.stdout}{answer.stderr}")
    locked.stop()
    said.append(locked.log_path.read_text())
    assert all(said)
    assert not [one for one in said if TOKEN in one]
    assert "Traceback" not in said[-1]
    assert TOKEN.encode() not in (locked.directory / "cyclewatch.db").read_bytes()


def test_without_a_token_it_can_be_read_here_and_nothing_changed(daemon: Daemon) -> None:
    with daemon:
        assert [one["id"] for one in ask(daemon, "GET", "/incidents").json()] == [1]
        assert ask(daemon, "POST", "/incidents/1/acknowledge", ADA).status_code == 403
        assert ask(daemon, "GET", "/incidents", host="evil.example").status_code == 421
        # A proxy on this node that says for whom it asks.
        assert ask(daemon, "GET", "/incidents", **{"x-forwarded-for": "203.0.113.7"}).status_code == 403
        assert daemon.command("incidents", "show", "1")["state"] == "open"


def test_a_token_that_is_not_there_is_said_in_the_log_and_the_daemon_goes_on(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLEWATCH_WEB__TOKEN", "file:/nowhere/token")
    with daemon:
        assert ask(daemon, "GET", "/incidents").status_code == 503
        assert daemon.get("/readyz") == "ready\n"
    (entry,) = [line for line in daemon.log_path.read_text().splitlines() if "nobody can use the API" in line]
    assert json.loads(entry)["reason"].startswith("web.token: file:/nowhere/token: no such file")
