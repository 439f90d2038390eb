"""What the API answers."""

import asyncio
import math
import re
import threading
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from api import TOKEN, Api, a_file, problem
from cyclewatch.daemon.incidents.incident import Act, IncidentState
from cyclewatch.daemon.triage.documents import Document
from cyclewatch.daemon.web.api import app as api_app
from cyclewatch.daemon.web.api.access import Access
from cyclewatch.daemon.web.api.app import MOST_BYTES, build_api
from cyclewatch.daemon.web.api.operations import Call, Nothing, Operation
from made_incidents import MINUTE, START_NS, incident, keep_regressions
from shell import Shell

ADA = {"who": "ada", "why": "because"}


@pytest.fixture(name="api")
def _api(address: str) -> Iterator[Api]:
    """With three regressions and one incident of the first."""
    with Api(address) as api:
        with api.begin() as connection:
            keep_regressions(connection, "r1", "r2")
            keep_regressions(connection, "r3", started_at_ns=START_NS - MINUTE, direction="faster", state="noted")
        api.keep(incident())
        yield api


def test_the_documents_are_those_of_the_command_line(tmp_path: Path) -> None:
    """One contract for both."""
    shell = Shell(tmp_path)
    (tmp_path / "state").mkdir()
    with Api(a_file(tmp_path / "state")) as api:
        with api.begin() as connection:
            keep_regressions(connection, "r1", "r2")
        api.keep(incident(), incident(key="k2", state=IncidentState.REBASED))
        for path, words in (
            ("/regressions", ("regressions", "list")),
            ("/regressions/2", ("regressions", "show", "2")),
            ("/incidents", ("incidents", "list")),
            ("/incidents?ended=true", ("incidents", "list", "--ended")),
            ("/incidents/1", ("incidents", "show", "1")),
            ("/silences?over=true", ("silences", "list", "--over")),
            ("/expectations?over=true", ("expectations", "list", "--over")),
        ):
            assert api.document("GET", path) == shell.json(*words), path


def test_regressions_and_improvements(api: Api) -> None:
    assert [one["id"] for one in api.document("GET", "/regressions")] == [2, 1]
    assert [one["id"] for one in api.document("GET", "/regressions?improvements=true")] == [2, 1, 3]
    assert api.document("GET", "/regressions/1")["split"]


def test_lists_come_in_pages_that_link_to_each_other(api: Api) -> None:
    """Every entry once, whatever the size of a page; with the words that were said."""
    api.keep(*(incident(key=f"more {number}", state=IncidentState.RESOLVED) for number in range(4)))
    for list_of, expected in (
        ("/incidents?ended=true", [5, 4, 3, 2, 1]),
        ("/regressions?improvements=true", [2, 1, 3]),
    ):
        for limit in (1, 2, 3, 5, 200):
            path, seen = f"{list_of}&limit={limit}", []
            while path:
                answer = api.ask("GET", path)
                assert len(answer.json()) <= limit
                seen += [one["id"] for one in answer.json()]
                link = re.fullmatch(r'<(\?[^>]+)>; rel="next"', answer.headers.get("link", ""))
                path = list_of.partition("?")[0] + link.group(1) if link else ""
            assert seen == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("limit=0", "limit: input should be greater than or equal to 1"),
        ("limit=201", "limit: input should be less than or equal to 200"),
        ("limit=many", "limit: input should be a valid integer, unable to parse string as an integer"),
        ("before=9223372036854775808", "before: input should be less than or equal to 9223372036854775807"),
        ("endet=true", "endet: extra inputs are not permitted"),
    ],
)
def test_wrong_words_are_refused_by_name(api: Api, words: str, sentence: str) -> None:
    """A misspelt one must never pass for a default."""
    assert problem(api.ask("GET", f"/incidents?{words}"), 422) == sentence


@pytest.mark.parametrize(
    ("act", "state"),
    [(Act.ACKNOWLEDGE, "acknowledged"), (Act.RESOLVE, "resolved"), (Act.REBASE, "rebased")],
)
def test_acts_are_done_and_noted(api: Api, act: Act, state: str) -> None:
    assert api.document("POST", f"/incidents/1/{act}", ADA)["state"] == state
    shown = api.document("GET", "/incidents/1")
    assert shown["state"] == state
    assert shown["notes"] == [{"at": "2027-01-15T08:10:00Z", "what": act.value, "who": "ada", "why": "because"}]


def test_what_is_over_can_be_opened_again(api: Api) -> None:
    api.document("POST", "/incidents/1/resolve", ADA)
    assert api.document("POST", "/incidents/1/reopen", {"who": "bob"})["state"] == "open"


def test_what_cannot_be_done_is_a_conflict(api: Api) -> None:
    assert problem(api.ask("POST", "/incidents/1/reopen", ADA), 409) == "incident 1 is open: there is nothing to reopen"


@pytest.mark.parametrize(
    "number", ["7", "0", "9223372036854775807", "9" * 19, "9" * 5000, "-1", "1e3", "१", "one", "1.0"]
)
def test_what_is_not_there_is_not_found(api: Api, number: str) -> None:
    for method, path, body in (
        ("GET", f"/regressions/{number}", None),
        ("GET", f"/incidents/{number}", None),
        ("POST", f"/incidents/{number}/acknowledge", ADA),
        ("DELETE", f"/silences/{number}?who=ada", None),
        ("DELETE", f"/expectations/{number}?who=ada", None),
    ):
        problem(api.ask(method, path, body), 404)


def test_silences_are_made_listed_and_ended(api: Api) -> None:
    asked = {"target": "node7:*", "cause": "gpu_*", "from": "+10m", "for": "2h", "who": "ada", "why": "racks"}
    answer = api.ask("POST", "/silences", asked)
    made = {
        "id": 1,
        "target": "node7:*",
        "cause": "gpu_*",
        "from": "2027-01-15T08:20:00Z",
        "until": "2027-01-15T10:20:00Z",
        "who": "ada",
        "why": "racks",
    }
    assert (answer.status_code, answer.json()) == (201, made)
    assert api.document("GET", "/silences") == [made]
    ended = api.document("DELETE", "/silences/1?who=bob")
    assert ended["why"] == "racks (ended by bob)"
    assert api.document("GET", "/silences") == []
    assert problem(api.ask("DELETE", "/silences/1?who=bob"), 409) == "silence 1 is over already"
    assert problem(api.ask("DELETE", "/silences/1"), 422) == "who: field required"


def test_changes_are_announced_listed_and_ended(api: Api) -> None:
    asked = {"target": "server", "from": "2027-01-15T09:00:00+01:00", "for": "1h", "who": "ada", "why": "driver 580"}
    answer = api.ask("POST", "/expectations", asked)
    made = {
        "id": 1,
        "target": "server",
        "from": "2027-01-15T08:00:00Z",
        "until": "2027-01-15T09:00:00Z",
        "who": "ada",
        "why": "driver 580",
    }
    assert (answer.status_code, answer.json()) == (201, made)
    assert api.document("GET", "/expectations") == [made]
    assert api.document("DELETE", "/expectations/1?who=bob")["until"] == "2027-01-15T08:10:00Z"
    assert api.document("GET", "/expectations") == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "who: field required"),
        ({"who": ""}, "who: string should have at least 1 character"),
        ({"who": " \t "}, "who: string should have at least 1 character"),
        ({"who": 7}, "who: input should be a valid string"),
        ({"who": "a" * 129}, "who: string should have at most 128 characters"),
        ({"who": "a\nb"}, "who: holds characters that cannot be shown: write one line of plain text"),
        ({"who": "ada", "why": "a" * 1001}, "why: string should have at most 1000 characters"),
        ({"who": "ada", "wy": "typo"}, "wy: extra inputs are not permitted"),
        ([], "input should be an object"),
        (b"", "invalid JSON: "),
        (b"\xff\xfe", "invalid JSON: "),
        (b"[" * 5000, "invalid JSON: "),
        (b'{"who": "\\ud800"}', "invalid JSON: "),
    ],
)
def test_a_wrong_body_is_one_sentence_that_names_the_part(api: Api, body: object, sentence: str) -> None:
    assert problem(api.ask("POST", "/incidents/1/acknowledge", body), 422).startswith(sentence)
    assert api.store.notes(1) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"for": "1y"}, "for: '1y' is no length of time up to 366d: say 90s, 15m, 1h, 2d or 1w"),
        ({"for": "0s"}, "for: '0s' is no length of time up to 366d: say 90s, 15m, 1h, 2d or 1w"),
        ({"for": "367d"}, "for: '367d' is no length of time up to 366d: say 90s, 15m, 1h, 2d or 1w"),
        ({"from": "then"}, "from: 'then' is no instant: say now, +30m, -10m or 2027-01-15T08:00Z"),
        ({"from": "-1h"}, "from: '-1h' for 1h is over already: begin later or make it longer"),
        ({"from": "9999-12-31"}, "from: '9999-12-31' is more than 366 days away: has the year been mistyped?"),
        ({"from": "-999999w", "for": "1s"}, "from: '-999999w' is more than 366 days away: has the year been mistyped?"),
    ],
)
def test_a_wrong_time_is_one_sentence(api: Api, changes: dict[str, str], sentence: str) -> None:
    asked = {"target": "*", "for": "1h", "who": "ada", "why": "racks", **changes}
    assert problem(api.ask("POST", "/silences", asked), 422) == sentence
    assert problem(api.ask("POST", "/expectations", asked), 422) == sentence


def test_a_body_that_is_too_long_is_refused_before_it_is_whole(api: Api) -> None:
    assert "longer than" in problem(api.ask("POST", "/incidents/1/acknowledge", b" " * (MOST_BYTES + 1)), 413)
    longest = b'{"who": "ada"}'.ljust(MOST_BYTES)
    assert api.ask("POST", "/incidents/1/acknowledge", longest).status_code == 200


def test_a_body_that_never_ends_is_not_waited_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_app, "_BODY_S", 0.05)

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def ask() -> httpx.Response:
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        async with httpx.AsyncClient(transport=_Streaming(api), base_url="http://127.0.0.1") as client:
            return await client.post("/silences", content=slowly(), headers=headers)

    assert "longer than 0 s" in problem(asyncio.run(ask()), 408)


class _Streaming(httpx.AsyncBaseTransport):
    """Hands the body over part by part, as a server does; httpx's own transport waits for the whole."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        parts = aiter(request.stream)
        sent: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": await anext(parts), "more_body": True}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": request.method,
            "path": request.url.path,
            "query_string": b"",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 1),
        }
        await self._api.app(scope, receive, send)  # type: ignore[arg-type]
        start, body = sent[0], sent[1]
        return httpx.Response(start["status"], headers=start["headers"], content=body["body"])  # type: ignore[arg-type]


def test_a_database_that_does_not_answer_is_said_and_logged(api: Api) -> None:
    """Not what it said: that may name hosts and files."""
    with api.begin() as connection:
        connection.exec_driver_sql("DROP TABLE incident_members")
    with capture_logs() as logs:
        answer = api.ask("GET", "/incidents")
    assert problem(answer, 503) == "the database does not answer: ask again later"
    assert answer.headers["retry-after"] == "10"
    (entry,) = logs
    assert "incident_members" in entry["reason"]


def test_a_figure_that_is_none_is_null(api: Api) -> None:
    """JSON knows no NaN."""
    (number,) = api.keep(incident(key="odd", effect=math.inf, ci=(-math.inf, math.inf)))
    shown = api.document("GET", f"/incidents/{number}")
    assert (shown["effect"], shown["ci"]) == (None, [None, None])


def test_a_fault_of_ours_is_a_problem_too_and_is_not_hidden(api: Api) -> None:
    """The caller gets a sentence, the log the traceback."""

    def fail(call: Call[Nothing, Nothing]) -> Document:
        raise ZeroDivisionError("secret detail")

    api.app = build_api([Operation("GET", "/fail", fail, Document, Nothing, Nothing)], Access(TOKEN))
    with pytest.raises(ZeroDivisionError):
        api.ask("GET", "/fail")
    sentence = problem(api.ask("GET", "/fail", raises=False), 500)
    assert sentence == "this is a fault of cyclewatch: the daemon's log has it, please report it"


def hanging(leave: threading.Event, inside: threading.Semaphore) -> Operation[Nothing, Nothing]:
    def hang(call: Call[Nothing, Nothing]) -> Document:
        inside.release()
        leave.wait(10)
        return Document()

    return Operation("GET", "/hang", hang, Document, Nothing, Nothing)


def test_questions_that_hang_are_bounded(api: Api) -> None:
    """Four are answered at once, twelve wait, and the others are told to come back."""
    leave, inside = threading.Event(), threading.Semaphore(0)
    app = build_api([hanging(leave, inside)], Access(TOKEN))
    headers = {"authorization": f"Bearer {TOKEN}"}

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            asking = [asyncio.create_task(client.get("/hang", headers=headers)) for _ in range(16)]
            for _ in range(4):
                await asyncio.to_thread(inside.acquire)
            refused = await client.get("/hang", headers=headers)
            assert not inside.acquire(blocking=False)
            leave.set()
            return [refused, *await asyncio.gather(*asking)]

    refused, *answered = asyncio.run(ask())
    assert problem(refused, 503) == "too many questions at once: ask again in a second"
    assert [one.status_code for one in answered] == [HTTPStatus.OK] * 16


def test_unknown_paths_and_methods_are_problems(api: Api) -> None:
    assert "/api/v1/openapi.json" in problem(api.ask("GET", "/nothing"), 404)
    assert "/api/v1/openapi.json" in problem(api.ask("GET", "/incidents/"), 404)
    answer = api.ask("PUT", "/silences", {})
    assert problem(answer, 405) == "this path does not take that method"
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_head_is_answered_as_get(api: Api) -> None:
    assert api.ask("HEAD", "/incidents").status_code == 200
