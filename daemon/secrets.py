"""Secrets from where the settings say they are: files and the environment."""

from collections.abc import Mapping
from pathlib import Path

MAX_BYTES = 4096


class SecretError(Exception):
    """A secret cannot be had; one sentence that names where it should be, and how to mend that."""


def secret(reference: str, environ: Mapping[str, str]) -> str:
    """The secret that `reference` (see `cyclewatch.config.secret_reference`) names, without the end of its line.

    Raises:
        SecretError: it is not there, cannot be read, or is not one line of text.
    """
    kind, _, place = reference.partition(":")
    match kind:
        case "env":
            if place not in environ:
                raise SecretError(f"{reference}: the environment has no variable {place}")
            return _line(reference, environ[place])
        case "credential":
            directory = environ.get("CREDENTIALS_DIRECTORY")
            if not directory:
                raise SecretError(
                    f"{reference}: systemd passed no credentials ($CREDENTIALS_DIRECTORY is not set): "
                    f"add LoadCredential={place}:PATH to the unit, or use file:/PATH"
                )
            return _line(reference, _content(reference, Path(directory) / place))
        case _:
            return _line(reference, _content(reference, Path(place)))


def _content(reference: str, path: Path) -> str:
    try:
        if not path.is_file():  # opening a pipe would wait for somebody to write
            raise SecretError(f"{reference}: no such file, or none that may be read")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SecretError(f"{reference}: cannot be read: {getattr(error, 'strerror', None) or 'no path'}") from None
    if len(content) > MAX_BYTES:
        raise SecretError(f"{reference}: longer than {MAX_BYTES} bytes: is this the file of the secret?")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SecretError(f"{reference}: not UTF-8: is this the file of the secret?") from None


def _line(reference: str, text: str) -> str:
    text = text.strip()
    if not text:
        raise SecretError(f"{reference}: empty: write the secret there")
    if not text.isprintable():
        raise SecretError(f"{reference}: not one line of plain text: only the secret belongs there")
    return text
