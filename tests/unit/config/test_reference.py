import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from cyclewatch.config.alerts import Sink
from cyclewatch.config.load import load_settings
from cyclewatch.config.reference import settings_reference
from cyclewatch.config.routes import Route
from cyclewatch.config.section import Section
from cyclewatch.config.settings import Settings, Target


def fields() -> Iterator[tuple[str, FieldInfo]]:
    """Every key that can be set, with its place."""
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, Section):
            for key, inner in type(field.default).model_fields.items():
                yield f"{name}.{key}", inner
        else:
            yield name, field
    for key, inner in Target.model_fields.items():
        yield f"targets.{key}", inner
    for key, inner in Sink.model_fields.items():
        yield f"alerts.sinks.{key}", inner
    for key, inner in Route.model_fields.items():
        yield f"alerts.routes.{key}", inner


KEYS = dict(fields())


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_described_by_a_sentence(key: str) -> None:
    description = KEYS[key].description or ""
    assert description.endswith("."), description
    assert "\n" not in description


@pytest.mark.parametrize(
    "key", [key for key in KEYS if key != "targets" and not key.startswith(("alerts.sinks.", "alerts.routes."))]
)
def test_every_key_is_in_the_reference_with_its_description(key: str) -> None:
    reference = settings_reference()
    assert re.search(rf"^# {key.rpartition('.')[2]} = ", reference, re.MULTILINE)
    assert f"# {KEYS[key].description}\n" in reference


@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if KEYS.get(name) is None])
def test_every_table_is_explained(name: str) -> None:
    """The first line of its class, and whether a running daemon takes it over."""
    section = Settings.model_fields[name].default
    reloads = " Read again on SIGHUP." if section.reloads else ""
    assert f"# {section.__doc__.splitlines()[0]}{reloads}\n[{name}]\n" in settings_reference()


def test_the_reference_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    """All of it is commented out, but for empty tables."""
    path = tmp_path / "cyclewatch.toml"
    path.write_text(settings_reference())
    assert load_settings(path, {}).model_dump() == Settings().model_dump()


def test_the_reference_with_its_comments_taken_off_gives_the_defaults(tmp_path: Path) -> None:
    """Every default is written as TOML reads it."""
    text = re.sub(r"^# (\w+ = (?!\.\.\.).*)$", r"\1", settings_reference(), flags=re.MULTILINE)
    path = tmp_path / "cyclewatch.toml"
    path.write_text(text)
    assert load_settings(path, {}).model_dump() == Settings().model_dump()
    given = tomllib.loads(text)
    found = {f"{name}.{key}" for name, table in given.items() if isinstance(table, dict) for key in table}
    found |= {name for name, value in given.items() if not isinstance(value, dict)}
    assert found == {key for key in KEYS if not key.startswith(("targets", "alerts.sinks.", "alerts.routes."))}
