"""Whatever comes, the API answers with what was asked for or with one sentence."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api import Api, a_file, problem
from made_incidents import incident

NAMES = ("regressions", "incidents", "silences", "expectations", "acknowledge", "reopen", "openapi.json")
NUMBERS = ("1", "2", "0", "-1", "9223372036854775807", "9223372036854775808")
ODD = ("..", ".", "%2e%2e", "%00", "*", "")
QUERY_KEYS = ("limit", "before", "ended", "over", "improvements", "who")
BODY_KEYS = ("who", "why", "target", "cause", "from", "for")
TIMES = st.sampled_from(["now", "1h", "-1h", "+1h", "366d", "999999w", "0s", "2027-01-15T08:00Z", "0001-01-01"])

WORDS = st.sampled_from([*NAMES, *NUMBERS, *ODD]) | st.binary(max_size=20).map(quote)
PATHS = st.lists(WORDS, max_size=4).map(lambda words: "/" + "/".join(words))
KEYS = st.sampled_from([*QUERY_KEYS, *BODY_KEYS]) | st.text(max_size=8)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200) | TIMES
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=8
)
BODIES = st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode())
QUERIES = st.dictionaries(KEYS, PLAIN, max_size=3).map(
    lambda query: "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in query.items())
)
ALMOST = st.fixed_dictionaries(
    {"who": st.text(max_size=140), "why": st.text(max_size=1100), "for": TIMES | st.text(max_size=70)},
    optional={"target": st.text(max_size=140), "cause": st.text(max_size=70), "from": TIMES | st.text(max_size=70)},
)


def _quoted(value: object) -> str:
    return quote(str(value).encode("utf-8", "replace"))


@pytest.fixture(name="api", scope="module")
def _api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Api(a_file(tmp_path_factory.mktemp("hostile"))) as api:
        api.keep(incident())
        yield api


def answered(api: Api, method: str, path: str, body: bytes | None) -> None:
    """A fault of ours would be raised here; a refusal is checked for its form."""
    answer = api.ask(method, path, body)
    if not answer.is_success and method != "HEAD":
        assert 400 <= answer.status_code < 500, answer.text
        problem(answer, answer.status_code)


@given(st.sampled_from(["GET", "HEAD", "POST", "DELETE", "PUT", "TRACE"]), PATHS, QUERIES, st.none() | BODIES)
def test_any_question_is_answered(api: Api, method: str, path: str, query: str, body: bytes | None) -> None:
    answered(api, method, f"{path}?{query}", body)


@given(st.sampled_from(["/silences", "/expectations", "/incidents/1/acknowledge", "/incidents/1/reopen"]), JSON)
@example("/incidents/1/acknowledge", {"\n": None})
def test_any_body_is_taken_or_refused(api: Api, path: str, body: Any) -> None:
    answered(api, "POST", path, json.dumps(body).encode())


@given(st.sampled_from(["/silences", "/expectations"]), ALMOST)
def test_what_is_taken_can_be_shown(api: Api, path: str, body: dict[str, str]) -> None:
    """On any terminal, and again by the API."""
    answer = api.ask("POST", path, body)
    if answer.status_code != 201:
        problem(answer, 422)
        return
    made = answer.json()
    assert made["who"].isprintable()
    assert made["why"].isprintable()
    assert made in api.document("GET", f"{path}?over=true&limit=1")
