"""What every sender does: a new one is tested the moment it stands in the registry."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alert_messages import EVERY_MESSAGE, HOSTILE, MESSAGE, NOW_NS, SECRETS, URLS, filled, sender
from cyclewatch.daemon.alerts.exchange import Delivered, Refused, Response, Retry
from cyclewatch.daemon.alerts.message import State, trial
from cyclewatch.daemon.alerts.senders.registry import SENDERS

KINDS = tuple(str(kind) for kind in SENDERS)
MOST_BYTES = {
    "feishu": 20_000,  # open.feishu.cn/document/client-docs/bot-v3/add-custom-bot: 20 KB
    "dingtalk": 20_000,  # the robot's own limit, about 20 KB
    "teams": 28_000,  # learn.microsoft.com/connectors/teams: about 28 KB
    "pagerduty": 512_000,  # support.pagerduty.com, Events API v2: 512 KB
}


def answer(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Response:
    return Response(status, headers or {}, body, NOW_NS)


@pytest.fixture(name="kind", params=KINDS)
def _kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_sender_has_a_place_in_these_tests(kind: str) -> None:
    assert kind in URLS


@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_whatever_a_message_holds_it_can_be_sent(kind: str, name: str) -> None:
    """Valid JSON in UTF-8, small enough, and the same each time."""
    request = sender(kind).payload(EVERY_MESSAGE[name], NOW_NS)
    json.loads(request.body.decode(), parse_constant=pytest.fail)
    assert len(request.body) <= MOST_BYTES.get(kind, 64_000)
    assert request == sender(kind).payload(EVERY_MESSAGE[name], NOW_NS)
    for header, value in request.headers.items():
        assert (header + value).isascii()
        assert (header + value).isprintable()


@given(text=st.text(max_size=200), state=st.sampled_from(State))
def test_any_text_can_be_sent(text: str, state: State) -> None:
    for kind in KINDS:
        body = sender(kind).payload(replace(filled(text), state=state), NOW_NS).body
        json.loads(body.decode())


def test_secrets_are_only_where_the_service_wants_them(kind: str) -> None:
    """The routing key in PagerDuty's body, the login in a header; nowhere else, and in no repr."""
    one = sender(kind)
    request = one.payload(MESSAGE, NOW_NS)
    seen = f"{one!r} {request!r} {one.destination.shown} {one.destination.host}"
    if kind != "pagerduty":
        seen += request.body.decode()
    assert not [secret for secret in SECRETS if secret in seen]


def test_a_dry_run_knows_no_secret(kind: str) -> None:
    masked = sender(kind).destination.without_secrets()
    request = {str(name): make for name, make in SENDERS.items()}[kind](masked).payload(MESSAGE, NOW_NS)
    seen = f"{request.url} {request.body.decode()} {request.headers}"
    assert not [secret for secret in SECRETS if secret in seen]
    assert sender(kind).destination.host in request.url


def test_the_host_is_the_configured_one_whatever_the_message(kind: str) -> None:
    for message in HOSTILE.values():
        assert sender(kind).payload(message, NOW_NS).url.startswith(URLS[kind])


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_a_service_in_trouble_is_tried_again(kind: str, status: int) -> None:
    assert isinstance(sender(kind).outcome(answer(status)), Retry)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_what_is_wrong_with_the_request_is_not_tried_again(kind: str, status: int) -> None:
    assert isinstance(sender(kind).outcome(answer(status, b"no_service")), Refused)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_refused(kind: str, status: int) -> None:
    outcome = sender(kind).outcome(answer(status, headers={"location": "https://evil.example/"}))
    assert isinstance(outcome, Refused)
    assert "never followed" in outcome.reason


def test_the_time_to_wait_is_the_services(kind: str) -> None:
    """In seconds and as a date, by the service's own clock."""
    for given_as in (
        {"retry-after": "7"},
        {"retry-after": "Fri, 15 Jan 2027 08:00:07 GMT", "date": "Fri, 15 Jan 2027 08:00:00 GMT"},
        {"retry-after": "Fri, 15 Jan 2027 08:10:07 GMT"},
    ):
        outcome = sender(kind).outcome(answer(429, headers=given_as))
        assert isinstance(outcome, Retry)
        assert outcome.after_s == 7


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "Fri, 99 Jan 2027 99:00:07 GMT", "9" * 5000, "-", "\x00"])
def test_a_time_to_wait_that_is_none_is_none(kind: str, value: str) -> None:
    outcome = sender(kind).outcome(answer(429, headers={"retry-after": value}))
    assert isinstance(outcome, Retry)
    assert outcome.after_s is None


@pytest.mark.parametrize(("value", "seconds"), [("-5", 0), ("1e9", 900), ("Fri, 15 Jan 1999 08:00:00 GMT", 0)])
def test_a_time_to_wait_is_within_a_quarter_of_an_hour(kind: str, value: str, seconds: float) -> None:
    outcome = sender(kind).outcome(answer(503, headers={"retry-after": value}))
    assert isinstance(outcome, Retry)
    assert outcome.after_s == seconds


@pytest.mark.parametrize("status", [200, 302, 400, 429, 500])
def test_a_service_that_quotes_the_secrets_does_not_make_us_tell_them(kind: str, status: int) -> None:
    destination = sender(kind).destination
    parts = f"{destination.url} {destination.key}" + (" pathSecretPathSecret" if destination.url_is_secret else "")
    said = f'{{"code": 1, "errcode": 1, "seen": "{parts}", "retry_after": 1}}'
    outcome = sender(kind).outcome(answer(status, said.encode()))
    assert not [secret for secret in SECRETS if secret in repr(outcome)]


@given(status=st.integers(200, 599), body=st.binary(max_size=300) | st.just(b"[" * 100_000))
def test_no_answer_is_too_strange(status: int, body: bytes) -> None:
    for kind in KINDS:
        outcome = sender(kind).outcome(answer(status, body))
        if not isinstance(outcome, Delivered):
            assert outcome.reason.isprintable()
            assert len(outcome.reason) < 2500


def test_the_rates_are_whole(kind: str) -> None:
    for rate in sender(kind).rates:
        assert rate.count > 0
        assert rate.seconds > 0


def test_a_test_alarms_nobody(kind: str) -> None:
    body = sender(kind).payload(trial("oncall", "n1", NOW_NS), NOW_NS).body.decode()
    assert "test" in body.lower()
    assert "% slower" not in body
