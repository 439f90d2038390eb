import json
from pathlib import Path

import pytest

from cyclewatch.daemon.alerts.senders.registry import SENDERS
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


@pytest.mark.parametrize("kind", SENDERS)
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


def test_the_settings_are_shown_with_the_places_of_secrets(tmp_path: Path) -> None:
    """`cyclewatch config show` has no secret to show."""
    one = Shell(tmp_path, "config", settings=tables(oncall=slack(tmp_path, f"https://h/{SECRET}")))
    shown = one.run("show")
    assert shown.exit_code == 0
    assert f"file:{tmp_path}/url" in shown.stdout
    assert SECRET not in shown.output
