"""The settings as a documented TOML file, made from the model so that it is never out of date."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from cyclewatch.config.alerts import Alerts, Sink
from cyclewatch.config.routes import Route
from cyclewatch.config.section import Section
from cyclewatch.config.settings import Settings, Target


def settings_reference() -> str:
    """A TOML text with every key, its description and its default, all commented out."""
    lines = ["# cyclewatch: every setting with its default. A change needs a restart, where not said otherwise.", ""]
    sections = []
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            sections.append((name, type(field.default)))
        elif name != "targets":
            lines += [f"# {field.description}", f"# {name} = {_toml(field.default)}", ""]
    lines += _example("[[targets]]", Target)
    for name, model in sections:
        reloads = " Read again on SIGHUP." if issubclass(model, Section) and model.reloads else ""
        lines += ["", f"# {_meaning(model)}{reloads}", f"[{name}]", *_keys(model)]
        if model is Alerts:
            lines += ["", *_example("[alerts.sinks.NAME]", Sink), "", *_example("[[alerts.routes]]", Route)]
    return "\n".join(lines) + "\n"


def _example(header: str, model: type[BaseModel]) -> Iterator[str]:
    """A table of which there may be several; none of its keys has a value yet."""
    yield f"# {_meaning(model)}"
    yield f"# {header}"
    for key, field in model.model_fields.items():
        yield f"# {key} = ...  # {field.description}"


def _meaning(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").splitlines()[0]


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for key, field in model.model_fields.items():
        yield f"# {field.description}"
        yield f"# {key} = {_toml(field.default)}"


def _toml(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value)
