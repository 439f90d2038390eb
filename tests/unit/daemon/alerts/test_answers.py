"""What the services really answer. Sources: their pages, as FIELD-NOTES and docs/alerts.md name them."""

import pytest

from alert_messages import NOW_NS, sender
from cyclewatch.daemon.alerts.exchange import Delivered, Outcome, Refused, Response, Retry


def outcome(kind: str, status: int, body: bytes, **headers: str) -> Outcome:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return sender(kind).outcome(Response(status, named, body, NOW_NS))


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        ("slack", 200, b"ok"),
        ("discord", 204, b""),
        ("discord", 200, b'{"id": "1"}'),
        ("teams", 202, b""),
        ("teams", 200, b"1"),
        ("feishu", 200, b'{"code":0,"data":{},"msg":"success"}'),
        ("feishu", 200, b'{"Extra":null,"StatusCode":0,"StatusMessage":"success"}'),
        ("dingtalk", 200, b'{"errcode":0,"errmsg":"ok"}'),
        ("pagerduty", 202, b'{"status":"success","message":"Event processed","dedup_key":"k"}'),
        ("alertmanager", 200, b""),
        ("webhook", 204, b""),
    ],
)
def test_delivered(kind: str, status: int, body: bytes) -> None:
    assert outcome(kind, status, body) == Delivered()


@pytest.mark.parametrize(
    ("kind", "status", "body", "part"),
    [
        ("slack", 404, b"no_service", "HTTP 404: 'no_service'"),
        ("slack", 410, b"channel_is_archived", "channel_is_archived"),
        ("discord", 404, b'{"message": "Unknown Webhook", "code": 10015}', "Unknown Webhook"),
        ("feishu", 200, b'{"code":9499,"msg":"Bad Request","data":{}}', "not as it should be"),
        ("feishu", 400, b'{"code":9499,"msg":"Bad Request","data":{}}', "not as it should be"),
        ("feishu", 400, b'{"code":19001,"msg":"param invalid: incoming webhook access token invalid"}', "the address"),
        ("feishu", 404, b'{"code":0}', "HTTP 404"),
        ("feishu", 200, b'{"code":19024,"data":{},"msg":"Key Words Not Found"}', "wants a keyword"),
        ("dingtalk", 200, b'{"errcode":400101,"errmsg":"access_token"}', "the access token is wrong"),
        ("pagerduty", 400, b'{"status":"invalid event","errors":["\'routing_key\' is missing"]}', "invalid event"),
        ("alertmanager", 400, b'"start time must be before end time"', "start time"),
    ],
)
def test_refused(kind: str, status: int, body: bytes, part: str) -> None:
    refused = outcome(kind, status, body)
    assert isinstance(refused, Refused)
    assert part in refused.reason


@pytest.mark.parametrize(
    ("kind", "status", "body", "after_s"),
    [
        ("discord", 429, b'{"message": "You are being rate limited.", "retry_after": 0.65, "global": false}', 0.65),
        ("discord", 429, b'{"retry_after": "soon"}', 3),
        ("feishu", 200, b'{"code":11232,"data":{},"msg":"frequency limited psm"}', 3),
        ("feishu", 200, b'{"code":99991400,"msg":"request trigger frequency limit"}', 3),
        ("feishu", 200, b'{"code":9499,"msg":"too many request","data":{}}', 3),
        ("feishu", 400, b'{"code":9499,"msg":"too many request","data":{}}', 3),
        ("feishu", 400, b'{"code":11232,"data":{},"msg":"frequency limited psm"}', 3),
        ("feishu", 200, b"<html>a proxy's page</html>", 3),
        ("dingtalk", 200, b'{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}', 600),
        ("dingtalk", 400, b'{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}', 600),
        ("dingtalk", 200, b'{"errcode":-1,"errmsg":"busy"}', 3),
        ("dingtalk", 200, b"", 3),
        ("dingtalk", 200, b'{"errcode":"0"}', 3),
        ("slack", 429, b"rate_limited", 3),
        ("pagerduty", 429, b"", 3),
    ],
)
def test_to_be_tried_again(kind: str, status: int, body: bytes, after_s: float) -> None:
    """A success that is none is no success; the header says 3 s."""
    retry = outcome(kind, status, body, retry_after="3")
    assert isinstance(retry, Retry)
    assert retry.after_s == after_s


@pytest.mark.parametrize("status", [200, 400, 403])
@pytest.mark.parametrize(
    ("kind", "body", "part"),
    [
        ("feishu", b'{"code":19021,"data":{},"msg":"sign match fail"}', "the signature or the clock is wrong"),
        ("dingtalk", b'{"errcode":310000,"errmsg":"sign not match"}', "the signature, the clock"),
    ],
)
def test_a_signature_may_be_wrong_for_the_clock_alone(kind: str, body: bytes, part: str, status: int) -> None:
    retry = outcome(kind, status, body)
    assert isinstance(retry, Retry)
    assert part in retry.reason
