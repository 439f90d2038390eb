"""Vectors that others computed: printed in a specification, or made by the `openssl` commands beside them."""

import json
from urllib.parse import parse_qs, urlsplit

from alert_messages import MESSAGE, NOW_NS, sender
from cyclewatch.daemon.alerts.senders import dingtalk, feishu, webhook


def test_feishu() -> None:
    r"""The key is time and secret, the message is empty.

    printf '' | openssl dgst -sha256 -mac HMAC -binary \
        -macopt "hexkey:$(printf '1599360473\nan example secret' | xxd -p | tr -d '\n')" | base64
    """
    assert feishu.signature("an example secret", 1_599_360_473) == "POnNj0uLA3lnaaOyBnp1hN8+j27gRDVZ340BEHfkTbg="


def test_dingtalk() -> None:
    r"""The key is the secret, the message is time and secret.

    printf '1577262236757\nSECa1b2c3d4e5f6' | openssl dgst -sha256 -hmac SECa1b2c3d4e5f6 -binary | base64
    """
    assert dingtalk.signature("SECa1b2c3d4e5f6", 1_577_262_236_757) == "E/ncciRMVPo6R56MSFcH2PfBbu4geZa2jdW62zDjFdw="


def test_the_webhook() -> None:
    """The example of Standard Webhooks and of Svix, whose libraries check themselves by it."""
    said = webhook.signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
    )
    assert said == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_of_the_webhook_that_is_no_base64_is_taken_as_it_is() -> None:
    """Printf 'msg_1.1614265330.{}' | openssl dgst -sha256 -hmac 'plain secret' -binary | base64."""
    said = webhook.signature("plain secret", "msg_1", 1_614_265_330, b"{}")
    assert said == "v1,C5ubqbTBZ8i/l1lkQbwICQ7g7acl3F/5ea9vZjveiyY="


def test_feishu_signs_by_the_second_in_the_body() -> None:
    body = json.loads(sender("feishu").payload(MESSAGE, NOW_NS).body)
    assert body["timestamp"] == "1800000600"
    assert body["sign"] == feishu.signature(sender("feishu").destination.key, 1_800_000_600)


def test_dingtalk_signs_by_the_millisecond_in_the_address() -> None:
    """Percent-encoded: a plus sign would be read as a space."""
    url = sender("dingtalk", key="SECa1b2c3d4e5f6").payload(MESSAGE, 1_577_262_236_757_000_000).url
    assert "sign=E%2FncciRMVPo6R56MSFcH2PfBbu4geZa2jdW62zDjFdw%3D" in url
    assert parse_qs(urlsplit(url).query)["timestamp"] == ["1577262236757"]
    assert parse_qs(urlsplit(url).query)["access_token"] == ["pathSecretPathSecret"]


def test_without_a_key_nothing_is_signed() -> None:
    """The robot may know its senders by address or keyword."""
    assert "sign" not in json.loads(sender("feishu", key="").payload(MESSAGE, NOW_NS).body)
    assert "sign=" not in sender("dingtalk", key="").payload(MESSAGE, NOW_NS).url
    assert "webhook-signature" not in sender("webhook", key="").payload(MESSAGE, NOW_NS).headers
