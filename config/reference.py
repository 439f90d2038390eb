"""The settings as a documented TOML file, made from the model so that it is never out of date."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from cyclewatch.config.settings import Settings, Target


def settings_reference() -> str:
    """A TOML text with every key, its description and its default, all commented out."""
    lines = ["# cyclewatch: every setting with its default.", ""]
    sections = []
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            sections.append((name, type(field.default)))
        elif name != "targets":
            lines += [f"# {field.description}", f"# {name} = {_toml(field.default)}", ""]
    lines += [f"# {(Target.__doc__ or '').splitlines()[0]}", "# [[targets]]"]
    lines += [f"# {key} = ...  # {field.description}" for key, field in Target.model_fields.items()]
    for name, model in sections:
        lines += ["", f"# {(model.__doc__ or '').splitlines()[0]}", f"[{name}]", *_keys(model)]
    return "\n".join(lines) + "\n"


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for key, field in model.model_fields.items():
        yield f"# {field.description}"
        yield f"# {key} = {_toml(field.default)}"


def _toml(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value)
