"""openapi.json, made from the operations and the models that check and show."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from cyclewatch.daemon.web.api.operations import Nothing, Operation

_PROBLEM = {
    "description": "It cannot be had; `detail` is one sentence.",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                },
            }
        }
    },
}


def openapi_document(operations: Iterable[Operation[Any, Any]], prefix: str) -> dict[str, Any]:
    """The document (OpenAPI 3.1) of these operations, whose paths begin with `prefix`."""
    operations = list(operations)
    answers: dict[type[BaseModel], JsonSchemaMode] = {one.answer: "serialization" for one in operations}
    bodies: dict[type[BaseModel], JsonSchemaMode] = {
        one.body: "validation" for one in operations if one.body is not Nothing
    }
    _, schemas = models_json_schema(
        [*answers.items(), *bodies.items()], ref_template="#/components/schemas/{model}", by_alias=True
    )
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(f"{prefix}{one.path}", {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "cyclewatch", "version": "1", "description": "What was found, and what people do about it."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation[Any, Any]) -> dict[str, Any]:
    schema = _reference(one.answer)
    summary = (one.run.__doc__ or "").strip()
    described: dict[str, Any] = {
        "operationId": one.run.__name__,
        "summary": summary,
        "parameters": [*_path_parameters(one.path), *_query_parameters(one.query)],
        "responses": {
            str(one.status): {
                "description": summary,
                "content": {"application/json": {"schema": {"type": "array", "items": schema} if one.many else schema}},
            },
            "default": _PROBLEM,
        },
    }
    if one.body is not Nothing:
        content = {"application/json": {"schema": _reference(one.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    if "{number}" not in path:
        return []
    return [{"name": "number", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}}]


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": part.pop("description", ""),
            "schema": part,
        }
        for name, part in schema.get("properties", {}).items()
    ]
