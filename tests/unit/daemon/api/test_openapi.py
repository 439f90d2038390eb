"""openapi.json says what is so."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from api import Api, a_file
from cyclewatch.daemon.web.api.app import PREFIX
from cyclewatch.daemon.web.api.operations import Nothing


@pytest.fixture(name="api", scope="module")
def _api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with Api(a_file(tmp_path_factory.mktemp("openapi"))) as api:
        yield api


@pytest.fixture(name="document")
def _document(api: Api) -> Any:
    return api.document("GET", "/openapi.json")


def test_it_has_every_operation_and_no_other(api: Api, document: Any) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(one.method, f"{PREFIX}{one.path}") for one in api.operations}


def test_every_operation_has_a_name_of_its_own_and_a_summary(document: Any) -> None:
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"] and "\n" not in one["summary"] for one in operations)


def test_every_reference_leads_somewhere(document: Any) -> None:
    references = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document))
    assert references
    assert set(references) <= set(document["components"]["schemas"])


def test_bodies_and_parameters_are_those_that_are_checked(api: Api, document: Any) -> None:
    for one in api.operations:
        described = document["paths"][f"{PREFIX}{one.path}"][one.method.lower()]
        assert ("requestBody" in described) == (one.body is not Nothing)
        names = {part["name"] for part in described["parameters"] if part["in"] == "query"}
        assert names == set(one.query.model_fields)
        assert ("{number}" in one.path) == any(part["in"] == "path" for part in described["parameters"])


def test_what_is_sent_is_named_as_in_json(document: Any) -> None:
    """`from`, not the name that Python needs for it."""
    schemas = document["components"]["schemas"]
    assert {"from", "for", "who", "why", "target", "cause"} == set(schemas["SilenceRequest"]["properties"])
    assert {"id", "from", "until", "who", "why", "target"} == set(schemas["ExpectationDocument"]["properties"])


def test_the_token_is_asked_for(document: Any) -> None:
    assert document["security"] == [{"token": []}]
    assert document["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
