"""Reading the settings from a TOML file and the environment, with errors that name the key."""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, PydanticBaseSettingsSource

from cyclewatch.config.settings import Settings

DEFAULT_PATH = Path("/etc/cyclewatch/cyclewatch.toml")
MAX_FILE_BYTES = 1 << 20

# Read by the plugin inside SGLang and by the command line, not settings of the daemon.
FOREIGN_VARIABLES = frozenset(
    {"CYCLEWATCH_RING_DIR", "CYCLEWATCH_RING_RECORDS", "CYCLEWATCH_RING_GROUP", "CYCLEWATCH_CONFIG"}
)
_OF_KUBERNETES = re.compile(r"CYCLEWATCH_(SERVICE|PORT)(_.*)?")
"""Kubernetes sets these in every container beside a service that is named cyclewatch."""


class ConfigError(Exception):
    """The configuration cannot be used; the message says which key, where, and what would be right."""


def load_settings(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from `path` (or the default file, where it exists) and the environment.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or a key or value is wrong.
    """
    environ = os.environ if environ is None else environ
    if path is None and (named := environ.get("CYCLEWATCH_CONFIG")):
        path = Path(named)
    if path is None and _is_there(DEFAULT_PATH):
        path = DEFAULT_PATH
    values = {} if path is None else _read_toml(path)
    variables = {name.upper(): text for name, text in environ.items() if name.upper().startswith("CYCLEWATCH_")}
    _refuse_wrong_variables(variables)

    class FileThenEnvironment(Settings):
        """The settings bound to this file: the environment wins over it."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del init_settings, dotenv_settings, file_secret_settings  # not among our sources
            assert isinstance(env_settings, EnvSettingsSource)
            env_settings.env_vars = {name.lower(): text for name, text in variables.items()}
            return env_settings, InitSettingsSource(settings_cls, values)

    try:
        return FileThenEnvironment()
    except ValidationError as error:
        raise ConfigError(_explain(error, path, variables)) from None


def _is_there(path: Path) -> bool:
    """Whether there is such a file, be it one that must not be looked at: reading it says why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: longer than {MAX_FILE_BYTES} bytes: is this the configuration file?")
    try:
        return tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _refuse_wrong_variables(variables: Mapping[str, str]) -> None:
    """Name what would otherwise be ignored in silence: a misspelt variable; and a table that is not JSON."""
    known = dict(_variables())
    lines = []
    for name, text in variables.items():
        if name in FOREIGN_VARIABLES or _OF_KUBERNETES.fullmatch(name):
            continue
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *FOREIGN_VARIABLES], n=1)
            lines.append(
                f"environment variable {name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
            )
        elif known[name] and not _is_json(text):
            mend = "write the list or the table as JSON" if "__" in name else f"single keys are set by {name}__KEY"
            lines.append(f"environment variable {name}: not JSON; {mend}")
    if lines:
        raise ConfigError("\n".join(lines))


def _variables() -> Iterator[tuple[str, bool]]:
    """Names of all environment variables, and whether their value is JSON: a whole table or list."""
    for name, field in Settings.model_fields.items():
        model = _model(field.annotation)
        yield f"CYCLEWATCH_{name.upper()}", model is not None
        if model is field.annotation and model is not None:
            for key, inner in model.model_fields.items():
                yield f"CYCLEWATCH_{name.upper()}__{key.upper()}", get_origin(inner.annotation) in {dict, tuple}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _explain(error: ValidationError, path: Path | None, variables: Mapping[str, str]) -> str:
    lines = []
    for detail in error.errors():
        loc = detail["loc"]
        key = ".".join(str(part) for part in loc)
        # The environment wins: what it has is what is wrong.
        names = ["CYCLEWATCH_" + "__".join(str(part) for part in loc[:length]).upper() for length in (2, 1)]
        origin = next((f"environment variable {name}" for name in names if name in variables), path)
        if detail["type"] == "extra_forbidden":
            near = _nearest(loc)
            lines.append(f"{origin}: {key}: no such key" + (f"; did you mean {near}?" if near else ""))
        else:
            lines.append(f"{origin}: {key}: {detail['msg'][:1].lower()}{detail['msg'][1:]}")
    return "\n".join(lines)


def _nearest(loc: tuple[int | str, ...]) -> str:
    """The existing key most like the unknown one, or an empty text."""
    model: type[BaseModel] = Settings
    for part in loc[:-1]:
        if isinstance(part, str) and part in model.model_fields:  # a part may be a name in a table of tables
            model = _model(model.model_fields[part].annotation) or model
    found = difflib.get_close_matches(str(loc[-1]), model.model_fields, n=1)
    return ".".join([*(str(part) for part in loc[:-1]), *found]) if found else ""


def _model(annotation: object) -> type[BaseModel] | None:
    """The model of a table, or of a list of tables; None for a plain value."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
