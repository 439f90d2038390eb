"""From settings to senders: secrets from files and the environment, and addresses that may be used."""

import os
import ssl
from pathlib import Path

import pytest

from alert_messages import KEY, SECRETS, URLS
from cyclewatch.config.alerts import Alerts, Sink
from cyclewatch.daemon.alerts.sinks import SinkError, poster_for, sender_for
from cyclewatch.daemon.secrets import MAX_BYTES, SecretError, secret

SLACK = {"SLACK": URLS["slack"]}


def alerts(**options: object) -> Alerts:
    sink = {"type": "slack", "url": "env:SLACK"}
    return Alerts.model_validate({"sinks": {"oncall": sink}, **options})


def error(settings: Alerts, environ: dict[str, str]) -> str:
    with pytest.raises(SinkError) as caught:
        sender_for("oncall", settings, environ)
    assert not [one for one in SECRETS if one in str(caught.value)]
    return str(caught.value)


def one_sink(**keys: str) -> Alerts:
    return Alerts(sinks={"oncall": Sink.model_validate(keys)})


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    path = tmp_path / "the secret"
    path.write_text(f"{KEY}\n")
    return path


def test_a_secret_is_in_a_file(file: Path) -> None:
    """Without the end of its line."""
    assert secret(f"file:{file}", {}) == KEY


def test_a_secret_is_a_credential_of_systemd(file: Path) -> None:
    assert secret(f"credential:{file.name}", {"CREDENTIALS_DIRECTORY": str(file.parent)}) == KEY


def test_a_secret_is_in_the_environment() -> None:
    assert secret("env:NAME", {"NAME": f" {KEY} "}) == KEY


@pytest.mark.parametrize(
    ("reference", "part"),
    [
        ("env:NAME", "the environment has no variable NAME"),
        ("credential:name", "$CREDENTIALS_DIRECTORY is not set"),
        ("file:/no/such/file", "no such file"),
        ("file:/dev/zero", "no such file, or none that may be read"),
        ("file:/" + "x" * 5000, "file:/xxx"),
    ],
)
def test_a_secret_that_is_missing_is_named(reference: str, part: str) -> None:
    with pytest.raises(SecretError) as caught:
        secret(reference, {})
    assert part in str(caught.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SecretError):
        secret(f"file:{tmp_path}/pipe", {})


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * (MAX_BYTES + 1), "longer than"),
        (f"{KEY}\n{KEY}".encode(), "not one line"),
        (f"{KEY}\x07".encode(), "not one line"),
    ],
)
def test_a_file_that_is_no_secret_is_not_quoted(file: Path, content: bytes, part: str) -> None:
    file.write_bytes(content)
    with pytest.raises(SecretError, match=part) as caught:
        secret(f"file:{file}", {})
    assert KEY not in str(caught.value)


def test_a_sender_has_the_secrets_and_does_not_show_them() -> None:
    one = sender_for("oncall", alerts(), SLACK)
    assert one.destination.url == URLS["slack"]
    assert one.destination.shown == "https://hooks.slack.com/***"
    assert not [text for text in SECRETS if text in repr(one)]


def test_pagerduty_has_an_address_of_its_own() -> None:
    one = sender_for("oncall", one_sink(type="pagerduty", key="env:KEY"), {"KEY": KEY})
    assert one.destination.url == "https://events.pagerduty.com/v2/enqueue"
    assert one.destination.shown == "https://events.pagerduty.com/v2/enqueue"


def test_an_unknown_sink_is_said_with_those_there_are() -> None:
    with pytest.raises(SinkError, match="no sink is named 'onkall'; configured: oncall"):
        sender_for("onkall", alerts(), SLACK)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("hooks.slack.com/pathSecretPathSecret", "no http address"),
        ("ftp://h/pathSecretPathSecret", "no http address"),
        ("https://[::1/pathSecretPathSecret", "no http address"),
        ("https:///pathSecretPathSecret", "no http address"),
        ("https://u:pathSecretPathSecret@h/", "holds a user name"),
        ("http://hooks.slack.com/pathSecretPathSecret", "http would show its secret to the network: use https"),
    ],
)
def test_an_address_that_cannot_be_used_is_not_quoted(url: str, part: str) -> None:
    assert part in error(alerts(), {"SLACK": url})


@pytest.mark.parametrize(
    ("keys", "good"),
    [
        ({"type": "alertmanager", "url": "http://alertmanager:9093"}, True),
        ({"type": "alertmanager", "url": "http://alertmanager:9093", "key": "env:KEY"}, False),
        ({"type": "alertmanager", "url": "http://127.0.0.1:9093", "key": "env:KEY"}, True),
        ({"type": "webhook", "url": "http://receiver/", "key": "env:KEY"}, True),  # it signs, and does not show
        ({"type": "pagerduty", "url": "http://relay/", "key": "env:KEY"}, False),
        ({"type": "slack", "url": "env:LOCAL"}, True),
    ],
)
def test_what_is_secret_does_not_travel_in_the_clear(keys: dict[str, str], good: bool) -> None:
    environ = {"KEY": KEY, "LOCAL": "http://localhost:1/pathSecretPathSecret"}
    if good:
        sender_for("oncall", one_sink(**keys), environ)
    else:
        assert "use https" in error(one_sink(**keys), environ)


def test_only_listed_hosts_are_allowed_where_there_is_a_list() -> None:
    sender_for("oncall", alerts(allowed_hosts=["HOOKS.slack.com"]), SLACK)
    said = error(alerts(allowed_hosts=["example.com"]), SLACK)
    assert said == "sink oncall: hooks.slack.com is not in alerts.allowed_hosts: add it there"


def test_the_proxy_may_be_a_secret(file: Path) -> None:
    sender = sender_for("oncall", alerts(), SLACK)
    file.write_text(f"http://user:{KEY}@proxy:3128")
    poster_for(sender, alerts(proxy=f"file:{file}"), {})
    for content in ("socks9://proxy", f"http://[{KEY}"):
        file.write_text(content)
        with pytest.raises(SinkError, match="not the address of an http proxy") as caught:
            poster_for(sender, alerts(proxy=f"file:{file}"), {})
        assert KEY not in str(caught.value)
    with pytest.raises(SinkError, match=r"alerts\.proxy: env:PROXY: the environment has no variable"):
        poster_for(sender, alerts(proxy="env:PROXY"), {})


def test_a_file_of_authorities_that_cannot_be_read_is_named(file: Path) -> None:
    sender = sender_for("oncall", alerts(), SLACK)
    for path in (str(file), "/no/such/file"):
        with pytest.raises(SinkError, match=rf"alerts\.ca_file: {path}: "):
            poster_for(sender, alerts(ca_file=path), {})
    bundle = ssl.get_default_verify_paths().cafile
    if bundle is not None:
        poster_for(sender, alerts(ca_file=bundle), {})
