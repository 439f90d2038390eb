"""docs/api.md says what is so: its examples are asked, in their order, and answered as it says."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

from api import Api, a_file
from cyclewatch.config.web import Web
from cyclewatch.daemon.web.api.app import PREFIX
from made_incidents import incident, keep_regressions

PAGE = (Path(__file__).parents[4] / "docs/api.md").read_text()
EXAMPLE = re.compile(r"```sh\n(curl [^\n]*)\n```\n(?:\n```json\n(.*?)```)?", re.DOTALL)


def prepared(api: Api) -> None:
    """Store what the examples show."""
    with api.begin() as connection:
        keep_regressions(connection, "r1")
    api.keep(incident(change="SGLang 0.5.22 to 0.5.23"))


def request_of(command: str) -> tuple[str, str, Any]:
    """Method, path below the prefix, and body of a call of curl with a token."""
    words = shlex.split(command)
    assert words[:3] == ["curl", "-H", "Authorization: Bearer $TOKEN"]
    options, address = words[3:-1], words[-1]
    body = json.loads(options[1]) if "--json" in options else None
    method = options[1] if "-X" in options else "POST" if body else "GET"
    return method, address.removeprefix("$API"), body


def test_every_example_is_answered_as_the_page_says(tmp_path: Path) -> None:
    with Api(a_file(tmp_path)) as api:
        prepared(api)
        for command, said in EXAMPLE.findall(PAGE):
            answer = api.ask(*request_of(command))
            assert answer.is_success, (command, answer.text)
            if said:
                assert answer.json() == json.loads(said), command


def test_every_operation_has_an_example(tmp_path: Path) -> None:
    asked = {request_of(command)[:2] for command, _ in EXAMPLE.findall(PAGE)}
    shapes = {(method, re.sub(r"/\d+", "/{number}", path.partition("?")[0])) for method, path in asked}
    with Api(a_file(tmp_path)) as api:
        assert shapes == {(one.method, one.path) for one in api.operations} | {("GET", "/openapi.json")}


def test_the_settings_shown_are_good() -> None:
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL):
        Web.model_validate(tomllib.loads(block)["web"])


def test_the_address_is_the_one_of_the_settings() -> None:
    assert f"http://{Web().host}:{Web().port}{PREFIX}" in PAGE
