from pathlib import Path

import pytest

from cyclewatch.config.load import ConfigError, load_settings
from cyclewatch.config.settings import Settings

SECRET = "T000-B000-abcdefghijkl"


def load(tmp_path: Path, text: str, **variables: str) -> Settings:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return load_settings(path, variables)


def error(tmp_path: Path, sink: str, above: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[alerts]\n{above}\n[alerts.sinks.oncall]\n{sink}")
    return str(caught.value).replace(str(tmp_path), "DIR")


@pytest.mark.parametrize(
    "sink",
    [
        "type = 'slack'\nurl = 'credential:slack-url'",
        "type = 'teams'\nurl = 'env:TEAMS_URL'",
        "type = 'feishu'\nurl = 'file:/run/secrets/feishu url'\nkey = 'file:/run/secrets/feishu'",
        "type = 'pagerduty'\nkey = 'env:PAGERDUTY_KEY'",
        "type = 'pagerduty'\nurl = 'https://events.eu.pagerduty.com/v2/enqueue'\nkey = 'env:PAGERDUTY_KEY'",
        "type = 'alertmanager'\nurl = 'http://[::1]:9093/prefix'",
        "type = 'webhook'\nurl = 'https://example.com/hook'",
        "type = 'webhook'\nurl = 'env:HOOK'\nkey = 'env:HOOK_KEY'",
    ],
)
def test_sinks_that_name_where_their_secrets_are(tmp_path: Path, sink: str) -> None:
    settings = load(tmp_path, f"[alerts.sinks.oncall]\n{sink}")
    assert list(settings.alerts.sinks) == ["oncall"]


@pytest.mark.parametrize("kind", ["slack", "discord", "teams", "feishu", "dingtalk"])
def test_the_address_of_a_chat_never_stands_in_the_configuration(tmp_path: Path, kind: str) -> None:
    """The sentence has the mend, and not the secret."""
    said = error(tmp_path, f"type = '{kind}'\nurl = 'https://hooks.example.com/{SECRET}'")
    assert said == (
        f"DIR/c.toml: alerts.sinks.oncall: the address of {kind} is a secret: "
        'write it into a file and say url = "file:/PATH", "credential:NAME" or "env:NAME"'
    )


@pytest.mark.parametrize(
    ("sink", "part"),
    [
        (f"type = 'pagerduty'\nkey = '{SECRET}'", "key is a secret: write it into a file"),
        (f"type = 'webhook'\nurl = 'https://h/'\nkey = '{SECRET}'", "key is a secret"),
        (f"type = 'webhook'\nurl = 'https://u:{SECRET}@h/'", "url seems to hold a secret"),
        (f"type = 'webhook'\nurl = 'https://h/?token={SECRET}'", "url seems to hold a secret"),
        (f"type = 'webhook'\nurl = 'https://h/#{SECRET}'", "url seems to hold a secret"),
        (f"type = 'webhook'\nurl = 'https://h:{SECRET}/'", "url is not an address"),
        (f"type = 'webhook'\nurl = 'ftp://h/{SECRET}'", "url is neither an http address"),
        ("type = 'webhook'", "webhook needs a url"),
        ("type = 'pagerduty'", "pagerduty needs a key"),
        ("type = 'slack'\nurl = 'env:URL'\nkey = 'env:KEY'", "slack takes no key: remove it"),
        ("type = 'slack'\nurl = 'env:CYCLEWATCH_SLACK'", "give the secret's variable another name"),
        ("type = 'slack'\nurl = 'file:relative'", "the address of slack is a secret"),
        ("type = 'smoke'\nurl = 'env:URL'", "oncall.type: input should be 'slack'"),
        ("type = 'slack'\nurll = 'env:URL'", "oncall.urll: no such key; did you mean alerts.sinks.oncall.url?"),
    ],
)
def test_what_is_wrong_is_said_without_the_secret(tmp_path: Path, sink: str, part: str) -> None:
    said = error(tmp_path, sink)
    assert part in said
    assert SECRET not in said


def test_a_proxy_with_a_password_is_named_too(tmp_path: Path) -> None:
    said = error(tmp_path, "type = 'webhook'\nurl = 'http://h'", f"proxy = 'http://u:{SECRET}@proxy:3128'")
    assert "alerts.proxy: proxy seems to hold a secret" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("sinks = ['nobody']", "alerts: a route names the sink 'nobody', which is not configured"),
        ("quiet_from = '22:00'", "alerts.routes.0: quiet hours need quiet_from and quiet_until"),
        ("quiet_from = '22:00'\nquiet_until = '22:00'", "two different times"),
        ("quiet_from = '25:00'\nquiet_until = '07:00'", "alerts.routes.0.quiet_from"),
        ("cause = ''", 'alerts.routes.0.cause: an empty text fits no cause: write "unexplained" for what has none'),
        ("severities = ['urgent']", "alerts.routes.0.severities.0"),
        ("digest = ['critical']", "alerts.routes.0.digest.0"),
        ("sink = ['oncall']", "alerts.routes.0.sink: no such key; did you mean alerts.routes.0.sinks?"),
    ],
)
def test_what_is_wrong_with_a_route_is_said(tmp_path: Path, lines: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[alerts.sinks.oncall]\ntype = 'slack'\nurl = 'env:URL'\n[[alerts.routes]]\n{lines}")
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "", "\\u0000", "x" * 60]
)
def test_a_time_zone_that_is_none_is_said(tmp_path: Path, zone: str) -> None:
    with pytest.raises(ConfigError, match=r"alerts\.time_zone: no time zone of that name"):
        load(tmp_path, f'[alerts]\ntime_zone = "{zone}"')


def test_routes_in_the_order_of_the_file(tmp_path: Path) -> None:
    sink = "[alerts.sinks.oncall]\ntype = 'slack'\nurl = 'env:URL'"
    routes = "[[alerts.routes]]\nseverities = ['critical']\nsinks = ['oncall']\n[[alerts.routes]]\nsinks = []"
    settings = load(tmp_path, f"[alerts]\ntime_zone = 'Asia/Tokyo'\n{sink}\n{routes}")
    assert [route.sinks for route in settings.alerts.routes] == [("oncall",), ()]


def test_sinks_can_be_given_in_the_environment(tmp_path: Path) -> None:
    """As JSON, like every table of tables."""
    settings = load(tmp_path, "", CYCLEWATCH_ALERTS__SINKS='{"a": {"type": "slack", "url": "env:SLACK"}}')
    assert settings.alerts.sinks["a"].type == "slack"


def test_the_name_of_a_sink_is_one_word(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"alerts\.sinks"):
        load(tmp_path, "[alerts.sinks.'two words']\ntype = 'slack'\nurl = 'env:URL'")


@pytest.mark.parametrize("value", ["[1", "no json", SECRET])
def test_an_environment_that_is_no_json_is_one_sentence(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "", CYCLEWATCH_ALERTS__SINKS=value)
    assert "CYCLEWATCH_ALERTS__SINKS" in str(caught.value)
    assert SECRET not in str(caught.value)
