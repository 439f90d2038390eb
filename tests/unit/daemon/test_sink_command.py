import json
import time
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from cyclewatch.daemon.alerts.senders.registry import SENDERS
from cyclewatch.daemon.clock import boot_id
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_models import AttemptRow
from fake_http import Answer, closed_port, http_server
from shell import Shell

SECRET = "T000SECRET000"


def shell(tmp_path: Path, **sinks: str) -> Shell:
    """Each sink by the lines of its table."""
    return Shell(tmp_path, "sink", settings=tables(**sinks))


def tables(**sinks: str) -> str:
    return "".join(f"[alerts.sinks.{name}]\n{lines}\n" for name, lines in sinks.items())


def slack(tmp_path: Path, url: str) -> str:
    """A sink whose address is in a file."""
    (tmp_path / "url").write_text(f"{url}\n")
    return f"type = 'slack'\nurl = 'file:{tmp_path}/url'"


def test_without_a_sink_it_says_where_to_read(tmp_path: Path) -> None:
    assert "docs/alerts.md" in shell(tmp_path).run("list").stdout
    assert shell(tmp_path).json("list") == []


def test_sinks_are_listed_without_their_secrets(tmp_path: Path) -> None:
    one = shell(tmp_path, oncall=slack(tmp_path, f"https://hooks.slack.com/{SECRET}"))
    assert one.json("list") == [
        {
            "sink": "oncall",
            "type": "slack",
            "url": "https://hooks.slack.com/***",
            "rates": [{"count": 1, "seconds": 1.0}],
            "resend_s": None,
            "problem": None,
        }
    ]
    text = one.run("list").stdout
    assert "ready" in text
    assert SECRET not in text


def test_a_sink_that_cannot_be_used_is_listed_with_the_reason(tmp_path: Path) -> None:
    """Exit code 3, as of `doctor`; the others are listed all the same."""
    one = shell(tmp_path, pager="type = 'pagerduty'\nkey = 'env:NO_SUCH'", oncall=slack(tmp_path, "https://h/x"))
    result = one.run("list")
    assert result.exit_code == 3
    assert "env:NO_SUCH: the environment has no variable NO_SUCH" in result.stdout
    assert "ready" in result.stdout


def test_a_test_is_delivered(tmp_path: Path) -> None:
    with http_server({f"/{SECRET}": Answer(b"ok")}) as server:
        one = shell(tmp_path, oncall=slack(tmp_path, f"{server.url}/{SECRET}"))
        document = one.json("test", "oncall")
        text = one.run("test", "oncall").stdout
    assert document == {
        "sink": "oncall",
        "type": "slack",
        "url": f"{server.url}/***",
        "outcome": "delivered",
        "retry_after_s": None,
        "reason": None,
    }
    assert text == f"oncall: taken by {server.url}/***\n"
    assert "this is a test" in server.bodies[0].decode()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(SECRET.encode(), 404), "oncall: refused: HTTP 404: '***'\n"),
        (
            Answer(b"slow down", 429, headers=(("Retry-After", "7"),)),
            "oncall: not now, to be tried again after 7 s: HTTP 429: 'slow down'\n",
        ),
        (Answer(b"", 500), "oncall: not now, to be tried again: HTTP 500\n"),
    ],
)
def test_a_test_that_is_not_taken_says_why(tmp_path: Path, answer: Answer, said: str) -> None:
    with http_server({f"/{SECRET}": answer}) as server:
        result = shell(tmp_path, oncall=slack(tmp_path, f"{server.url}/{SECRET}")).run("test", "oncall")
    assert result.exit_code == 1
    assert result.stdout == said


def attempts(one: Shell) -> list[tuple[str, bool, int]]:
    """Sink, whether it is over, and how long the sink is to be left alone, of each attempt that was counted."""
    engine = open_database(f"sqlite:///{one.database}", create=False)
    with engine.connect() as connection:
        rows = connection.execute(select(AttemptRow.sink, AttemptRow.ended, AttemptRow.wait_ns).order_by(AttemptRow.id))
        found = [(row.sink, row.ended, row.wait_ns) for row in rows]
    engine.dispose()
    return found


def test_a_test_counts_against_the_rate_and_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon counts the same attempts; here one of its own has just been told to wait for a minute."""
    naps = list[float]()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        with engine.begin() as connection:
            connection.execute(update(AttemptRow).values(wait_ns=0, monotonic_ns=0))

    with http_server({f"/{SECRET}": Answer(b"ok")}) as server:
        one = shell(tmp_path, oncall=slack(tmp_path, f"{server.url}/{SECRET}"))
        one.store()
        engine = open_database(f"sqlite:///{one.database}", create=False)
        row = {"sink": "oncall", "at_ns": time.time_ns(), "boot": boot_id(Path("/proc")), "ended": True}
        with engine.begin() as connection:
            asked = {"monotonic_ns": time.monotonic_ns(), "wait_ns": 60 * 10**9}
            connection.execute(insert(AttemptRow).values(**row, **asked))
        monkeypatch.setattr("cyclewatch.daemon.cli.sink.time.sleep", nap)
        result = one.run("test", "oncall")
    engine.dispose()
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(naps) == 1
    assert 0 < naps[0] <= 60
    assert attempts(one) == [("oncall", True, 0)] * 2


def test_a_sink_that_asked_to_be_left_alone_is_left_alone(tmp_path: Path) -> None:
    busy = Answer(b"slow down", 429, headers=(("Retry-After", "600"),))
    with http_server({f"/{SECRET}": busy}) as server:
        one = shell(tmp_path, oncall=slack(tmp_path, f"{server.url}/{SECRET}"))
        one.store()
        first, second = (one.run("test", "oncall") for _ in range(2))
        assert len(server.requests) == 1
    assert first.stdout == "oncall: not now, to be tried again after 600 s: HTTP 429: 'slow down'\n"
    assert second.exit_code == 1
    assert "its rate is used up, or it has asked to be left alone" in second.stdout
    assert attempts(one) == [("oncall", True, 600 * 10**9)]


def test_without_a_database_a_test_is_sent_and_says_that_it_is_not_counted(tmp_path: Path) -> None:
    with http_server({f"/{SECRET}": Answer(b"ok")}) as server:
        result = shell(tmp_path, oncall=slack(tmp_path, f"{server.url}/{SECRET}")).run("test", "oncall")
    assert result.exit_code == 0
    assert result.stderr.startswith("cyclewatch: the test is not counted against the rate of the sink: ")


def test_a_service_that_is_not_there_is_said_in_json_too(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}/{SECRET}"
    result = shell(tmp_path, oncall=slack(tmp_path, url)).run("test", "oncall", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["outcome"] == "retry"
    assert SECRET not in result.output


def test_an_unknown_sink_is_an_error(tmp_path: Path) -> None:
    result = shell(tmp_path, oncall=slack(tmp_path, "https://h/x")).run("test", "onkall")
    assert result.exit_code == 2
    assert result.stderr == "cyclewatch: no sink is named 'onkall'; configured: oncall\n"


@pytest.mark.parametrize("kind", [kind for kind in SENDERS if kind != "apprise"])
def test_a_dry_run_sends_nothing_and_shows_no_secret(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for every type; as text and as JSON."""
    with http_server({}) as server:
        monkeypatch.setenv("SECRET_URL", f"{server.url}/{SECRET}")
        monkeypatch.setenv("SECRET_KEY", f"{SECRET}:{SECRET}")
        keyed = "" if kind in {"slack", "discord", "teams"} else "key = 'env:SECRET_KEY'\n"
        one = shell(tmp_path, oncall=f"type = '{kind}'\nurl = 'env:SECRET_URL'\n{keyed}")
        document = one.json("test", "oncall", "--dry-run")
        text = one.run("test", "oncall", "--dry-run").stdout
    assert server.requests == []
    assert document["method"] == "POST"
    assert document["url"].startswith(f"{server.url}/***")
    assert text.startswith(f"POST {server.url}/***")
    assert "test" in json.dumps(document["body"])
    assert SECRET not in text + json.dumps(document)


def test_a_dry_run_of_apprise_shows_what_kind_of_service_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_URL", f"tgram://{SECRET}/{SECRET}")
    settings = "[alerts]\nallowed_hosts = ['api.telegram.org']\n"
    one = Shell(tmp_path, "sink", settings=settings + tables(oncall="type = 'apprise'\nurl = 'env:SECRET_URL'\n"))
    document = one.json("test", "oncall", "--dry-run")
    assert document["url"] == "apprise://tgram/***"
    assert "nothing has become slower" in document["body"]["body"]
    assert SECRET not in json.dumps(document)


def test_the_settings_are_shown_with_the_places_of_secrets(tmp_path: Path) -> None:
    """`cyclewatch config show` has no secret to show."""
    one = Shell(tmp_path, "config", settings=tables(oncall=slack(tmp_path, f"https://h/{SECRET}")))
    shown = one.run("show")
    assert shown.exit_code == 0
    assert f"file:{tmp_path}/url" in shown.stdout
    assert SECRET not in shown.output
