"""Reading the settings from a TOML file and the environment, with errors that name the key."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from cyclewatch.config.settings import Settings

DEFAULT_PATH = Path("/etc/cyclewatch/cyclewatch.toml")
MAX_FILE_BYTES = 1 << 20

# Read by the plugin inside SGLang and by the command line, not settings of the daemon.
FOREIGN_VARIABLES = frozenset(
    {"CYCLEWATCH_RING_DIR", "CYCLEWATCH_RING_RECORDS", "CYCLEWATCH_RING_GROUP", "CYCLEWATCH_CONFIG"}
)


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
    if path is None and DEFAULT_PATH.is_file():
        path = DEFAULT_PATH
    values = {} if path is None else _read_toml(path)
    _refuse_unknown_variables(environ)

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
            return env_settings, InitSettingsSource(settings_cls, values)

    try:
        return FileThenEnvironment()
    except ValidationError as error:
        raise ConfigError(_explain(error, str(path) if path else "the environment")) from None


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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    """A misspelt section in a variable's name would otherwise be ignored in silence."""
    known = {name.upper() for name in Settings.model_fields}
    for name in environ:
        if not name.startswith("CYCLEWATCH_") or name in FOREIGN_VARIABLES:
            continue
        section = name.removeprefix("CYCLEWATCH_").split("__")[0]
        if section not in known:
            raise ConfigError(
                f"environment variable {name}: no such setting; known sections are {', '.join(sorted(known))}"
            )


def _explain(error: ValidationError, origin: str) -> str:
    lines = []
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            near = _nearest(detail["loc"])
            lines.append(f"{origin}: {key}: no such key" + (f"; did you mean {near}?" if near else ""))
        else:
            lines.append(f"{origin}: {key}: {detail['msg'][:1].lower()}{detail['msg'][1:]}")
    return "\n".join(lines)


def _nearest(loc: tuple[int | str, ...]) -> str:
    """The existing key most like the unknown one, or an empty text."""
    import difflib  # noqa: PLC0415 (only on the way to an error)

    model: type[BaseModel] = Settings
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return ""
        model = field.annotation
    found = difflib.get_close_matches(str(loc[-1]), model.model_fields, n=1)
    return ".".join([*(str(part) for part in loc[:-1]), *found]) if found else ""
