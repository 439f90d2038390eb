"""What the services that take a picture are sent with it, held against what they publish."""

import base64
import json
from dataclasses import replace
from email import message_from_bytes
from email.message import Message as Form
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alert_messages import EVERY_MESSAGE, KEY, MESSAGE, NOW_NS, SECRETS, URLS, sender
from cyclewatch.daemon.alerts.deliver import deliver
from cyclewatch.daemon.alerts.exchange import Delivered, Part, Request, Response, form_request
from cyclewatch.daemon.alerts.message import Picture
from cyclewatch.daemon.alerts.picture.illustrator import picture_of
from cyclewatch.daemon.alerts.senders.registry import SENDERS
from cyclewatch.daemon.alerts.senders.sender import Illustrated
from made_timelines import timeline

KINDS = tuple(kind for kind in SENDERS if isinstance(sender(kind), Illustrated))
DISCORD_BYTES = 10 * 2**20  # discord.com/developers/docs/reference#uploading-files: 10 MiB for the whole request
DISCORD_DESCRIPTION = 1024  # discord.com/developers/docs/resources/message#attachment-object
TEAMS_BYTES = 28_000  # learn.microsoft.com/connectors/teams: about 28 KB


@pytest.fixture(name="picture", scope="module")
def _picture() -> Picture:
    made = picture_of(timeline())
    assert made is not None
    return made


def illustrated(kind: Any, picture: Picture, name: str = "good opened") -> Request:
    one = sender(kind)
    assert isinstance(one, Illustrated)
    return one.illustrated(EVERY_MESSAGE[name], picture, NOW_NS)


def parts_of(request: Request) -> dict[str, Form]:
    """The parts of a form by name, read by the standard library."""
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    form = message_from_bytes(head + request.body)
    assert not form.defects
    parts = form.get_payload()
    assert isinstance(parts, list)
    return {str(part.get_param("name", header="content-disposition")): part for part in parts if isinstance(part, Form)}


def content(part: Form) -> bytes:
    found = part.get_payload(decode=True)
    assert isinstance(found, bytes)
    return found


def test_these_take_one() -> None:
    assert KINDS == ("discord", "teams", "apprise")


def test_discord_gets_a_form_with_the_picture_as_a_file(picture: Picture) -> None:
    request = illustrated("discord", picture)
    parts = parts_of(request)
    assert list(parts) == ["payload_json", "files[0]"]
    assert parts["payload_json"].get_content_type() == "application/json"
    assert parts["payload_json"].get_filename() is None
    assert parts["files[0]"].get_content_type() == "image/png"
    assert parts["files[0]"].get_filename() == "timeline.png"
    assert content(parts["files[0]"]) == picture.png
    document = json.loads(content(parts["payload_json"]))
    assert document["attachments"] == [{"id": 0, "filename": "timeline.png", "description": picture.alternative}]
    assert document["embeds"][0].pop("image") == {"url": "attachment://timeline.png"}
    del document["attachments"]
    assert document == json.loads(sender("discord").payload(MESSAGE, NOW_NS).body)


def test_teams_gets_it_within_the_card(picture: Picture) -> None:
    document = json.loads(illustrated("teams", picture).body)
    (image,) = [one for one in document["attachments"][0]["content"]["body"] if one["type"] == "Image"]
    head, _, data = image.pop("url").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data, validate=True) == picture.png
    assert image == {"type": "Image", "altText": picture.alternative, "size": "Stretch"}
    document["attachments"][0]["content"]["body"] = [
        one for one in document["attachments"][0]["content"]["body"] if one["type"] != "Image"
    ]
    assert document == json.loads(sender("teams").payload(MESSAGE, NOW_NS).body)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EVERY_MESSAGE)
def test_every_message_with_it_is_within_the_limits(kind: str, name: str, picture: Picture) -> None:
    """And the same each time, with no secret in it."""
    request = illustrated(kind, picture, name)
    assert len(request.body) <= {"discord": DISCORD_BYTES, "teams": TEAMS_BYTES}.get(kind, 64_000)
    assert request == illustrated(kind, picture, name)
    assert request.url == URLS[kind]
    assert not [secret for secret in (*SECRETS, KEY) if secret.encode() in request.body]
    if kind == "discord":
        (attachment,) = json.loads(content(parts_of(request)["payload_json"]))["attachments"]
        assert len(attachment["description"]) <= DISCORD_DESCRIPTION


def test_a_usual_message_to_teams_has_room_for_it(picture: Picture) -> None:
    assert b'"Image"' in illustrated("teams", picture).body


def test_what_teams_has_no_room_for_is_left_out() -> None:
    large = Picture(b"x" * 21_000, "large")
    assert illustrated("teams", large) == sender("teams").payload(MESSAGE, NOW_NS)


Forms = st.lists(
    st.builds(Part, st.sampled_from(("a", "b[0]")), st.binary(max_size=200), st.just("image/png"), st.just("f.png")),
    min_size=1,
    max_size=1,
)


@given(parts=Forms)
def test_a_form_holds_any_bytes(parts: list[Part]) -> None:
    request = form_request("https://example.com/", parts)
    assert f"\r\n--{request.headers['Content-Type'].partition('=')[2]}".encode() not in parts[0].content
    assert parts[0].content in request.body
    assert request == form_request("https://example.com/", parts)


class Taken:
    """A service that takes everything."""

    def __init__(self) -> None:
        self.posted: list[Request] = []

    def post(self, request: Request) -> Response:
        self.posted.append(request)
        return Response(204, {}, b'{"code": 0, "errcode": 0}', NOW_NS)


@pytest.mark.parametrize("kind", SENDERS)
def test_a_service_that_takes_no_picture_gets_the_message_as_ever(kind: Any, picture: Picture) -> None:
    service = Taken()
    assert deliver(sender(kind), MESSAGE, service, NOW_NS, picture) == Delivered()
    usual = sender(kind).payload(MESSAGE, NOW_NS)
    assert (service.posted == [usual]) == (kind not in KINDS)


def test_a_picture_is_not_in_a_repr(picture: Picture) -> None:
    assert "PNG" not in repr(picture)
    assert repr(replace(picture, png=b"other")) == repr(picture)
