"""Who may use the API, and who may not."""

import asyncio
import hmac
import math
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from api import TOKEN, Api, a_file, problem
from cyclewatch.daemon.secrets import SecretError
from cyclewatch.daemon.web.api.access import Access, access_or_nobody, access_with
from cyclewatch.daemon.web.api.app import build_api

HOW = "name one in web.token (docs/api.md says how) and start the daemon again"
SECRET = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(name="locked", scope="module")
def _locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """With a token."""
    with Api(a_file(tmp_path_factory.mktemp("locked"))) as api:
        yield api


@pytest.fixture(name="plain", scope="module")
def _plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Without one."""
    with Api(a_file(tmp_path_factory.mktemp("plain")), Access()) as api:
        yield api


def questions(api: Api) -> list[tuple[str, str]]:
    """Every operation, and some that are none."""
    known = [(one.method, one.path.replace("{number}", "1")) for one in api.operations]
    return [*known, ("GET", "/openapi.json"), ("GET", "/"), ("GET", "/nothing"), ("PATCH", "/incidents")]


def test_with_a_token_everything_needs_it(locked: Api) -> None:
    """What there is, and what is not: a stranger learns nothing."""
    for method, path in questions(locked):
        answer = locked.ask(method, path, token="")
        assert problem(answer, 401) == "say the token of web.token in the header Authorization: Bearer TOKEN"
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "said",
    [
        TOKEN,
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN.upper()}",
        b"Bearer \xe9\xff",
    ],
)
def test_a_wrong_token_is_none(locked: Api, said: str | bytes) -> None:
    problem(locked.ask("GET", "/incidents", token="", headers={"authorization": said}), 401)


@pytest.mark.parametrize(
    ("access", "question", "reason"),
    [
        (Access(TOKEN), {"token": ""}, "no_token"),
        (Access(TOKEN), {"token": "wrong"}, "wrong_token"),
        (Access(), {"method": "POST"}, "act"),
        (Access(), {"client": "203.0.113.7"}, "address"),
        (Access(), {"host": "evil.example"}, "host"),
        (Access(usable=False), {}, "unusable"),
    ],
)
def test_what_is_refused_is_counted_by_its_reason(
    tmp_path: Path, access: Access, question: dict[str, Any], reason: str
) -> None:
    with Api(a_file(tmp_path), access) as api:
        api.ask(**{"method": "GET", "path": "/incidents", **question})
        assert api.refused == [reason]


def test_many_wrong_tokens_wait_for_each_other_and_the_right_one_for_none(tmp_path: Path) -> None:
    """Four are late for ever here; neither the next wrong one nor the right one notices."""
    with Api(a_file(tmp_path)) as api:
        app = build_api(api.operations, Access(TOKEN), api.refused.append, late_s=math.inf)

        async def story() -> list[int]:
            transport = httpx.ASGITransport(app, client=("127.0.0.1", 50_000))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9472") as asker:

                def ask(token: str) -> Coroutine[None, None, httpx.Response]:
                    return asker.get("/incidents", headers={"authorization": f"Bearer {token}"})

                late = [asyncio.create_task(ask("wrong")) for _ in range(4)]
                while len(api.refused) < len(late):  # noqa: ASYNC110 (what it looks at is a plain list)
                    await asyncio.sleep(0)
                answers = [await ask("wrong"), await ask(TOKEN)]
                assert not any(task.done() for task in late)
                for task in late:
                    task.cancel()
                return [answer.status_code for answer in answers]

        assert asyncio.run(story()) == [401, 200]


@pytest.mark.parametrize("said", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Bearer  {TOKEN} "])
def test_whoever_says_it_is_let_in_from_anywhere(locked: Api, said: str) -> None:
    """Behind a proxy the host is another."""
    answer = locked.ask(
        "GET", "/incidents", token="", headers={"authorization": said}, client="203.0.113.7", host="watch.example.com"
    )
    assert answer.status_code == 200


def test_tokens_are_compared_in_constant_time(locked: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(said: bytes, own: bytes) -> bool:
        compared.append((said, own))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    problem(locked.ask("GET", "/incidents"), 401)
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_without_a_token_this_node_may_read(plain: Api) -> None:
    for method, path in questions(plain):
        if method == "GET":
            assert plain.ask(method, path, token="").status_code in {200, 404}


def test_without_a_token_nothing_can_be_changed(plain: Api) -> None:
    """Whatever is said."""
    for method, path in questions(plain):
        if method != "GET":
            for headers in ({}, SECRET):
                sentence = problem(plain.ask(method, path, {"who": "ada"}, token="", headers=headers), 403)
                assert sentence == f"nothing can be changed without a token: {HOW}"


@pytest.mark.parametrize("client", ["203.0.113.7", "192.168.0.2", "::2", "127.0.0.1.example.com", ""])
def test_without_a_token_nobody_else_may_read(plain: Api, client: str) -> None:
    answer = plain.ask("GET", "/incidents", token="", client=client)
    assert problem(answer, 403) == f"without a token it can be read from this node only: {HOW}"


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.8.8", "::1"])
@pytest.mark.parametrize("host", ["127.0.0.1:9472", "localhost", "LOCALHOST:80", "[::1]:9472", "127.1.2.3"])
def test_loopback_has_many_names(plain: Api, client: str, host: str) -> None:
    assert plain.ask("GET", "/incidents", token="", client=client, host=host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example:9472",
        "127.0.0.1.nip.io",
        "[::1",
        "a@localhost@b",
        "0.0.0.0",
        "",
        "[v1.x]",
    ],
)
def test_a_page_of_elsewhere_cannot_read_by_a_name_that_leads_here(plain: Api, host: str) -> None:
    """DNS rebinding: the browser believes it talks to the page's own host."""
    sentence = problem(plain.ask("GET", "/incidents", token="", host=host), 421)
    assert sentence == "without a token the host asked for must be 127.0.0.1, [::1] or localhost"


@pytest.mark.parametrize("access", [Access(), Access(TOKEN)], ids=["plain", "locked"])
def test_no_page_of_elsewhere_is_allowed_anything(tmp_path: Path, access: Access) -> None:
    """No CORS: what a browser asks beforehand is refused, and no answer can be read by another origin."""
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    with Api(a_file(tmp_path), access) as api:
        assert api.ask("OPTIONS", "/silences", headers=headers).status_code in {403, 405}
        answer = api.ask("GET", "/incidents", headers=headers)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_a_form_of_elsewhere_changes_nothing(locked: Api, kind: str) -> None:
    """A browser sends these types without asking beforehand."""
    answer = locked.ask("POST", "/silences", b"{}", headers={"content-type": kind})
    assert problem(answer, 415) == "the body must be JSON: say Content-Type: application/json"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("short\n", "shorter than 16 characters: openssl rand -hex 32 makes a good one"),
        ("a token with spaces in it\n", "a token is of ASCII without spaces: openssl rand -hex 32 makes a good one"),
        ("sésame-ouvre-toi-sésame\n", "a token is of ASCII without spaces: openssl rand -hex 32 makes a good one"),
        ("", "empty: write the secret there"),
    ],
)
def test_a_bad_token_is_one_sentence_without_it(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(SecretError) as caught:
        access_with(f"file:{file}", {})
    assert str(caught.value) == f"file:{file}: {sentence}"


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert access_with(f"file:{tmp_path}/token", {}) == Access(TOKEN)
    assert access_with("env:API_TOKEN", {"API_TOKEN": TOKEN}) == Access(TOKEN)
    assert access_with("credential:token", {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == Access(TOKEN)
    assert access_with("", {}) == Access()


def test_a_token_that_cannot_be_had_lets_nobody_in(tmp_path: Path) -> None:
    """The daemon goes on, and its log says why."""
    with capture_logs() as logs:
        access = access_or_nobody("file:/nowhere/token", {})
    assert logs == [
        {
            "event": "nobody can use the API",
            "log_level": "error",
            "reason": "web.token: file:/nowhere/token: no such file, or none that may be read",
        }
    ]
    with Api(a_file(tmp_path), access) as api:
        for method, path in questions(api):
            for token in ("", TOKEN):
                sentence = problem(api.ask(method, path, token=token), 503)
                assert sentence == "the token in web.token cannot be used: the daemon's log says why"


def test_the_token_is_not_shown_by_what_holds_it() -> None:
    assert TOKEN not in repr(Access(TOKEN))
