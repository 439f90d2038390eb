"""Which settings a running daemon can change, and which wait for its restart."""

from dataclasses import dataclass

from pydantic import BaseModel

from cyclewatch.config.section import Section
from cyclewatch.config.settings import Settings


@dataclass(frozen=True)
class Reloaded:
    """What comes of a configuration that was read again.

    `settings` hold from now on; `changed` are the keys that differ in them, `waiting` those that need a restart.
    """

    settings: Settings
    changed: tuple[str, ...]
    waiting: tuple[str, ...]


def reloaded(running: Settings, wanted: Settings) -> Reloaded:
    """Take over from `wanted` the sections that are read again, and name what else differs."""
    sections, changed, waiting = {}, [], []
    for name in Settings.model_fields:
        before, after = getattr(running, name), getattr(wanted, name)
        if isinstance(after, Section) and after.reloads:
            sections[name] = after
            changed += _different(name, before, after)
        else:
            waiting += _different(name, before, after)
    return Reloaded(running.model_copy(update=sections), tuple(changed), tuple(waiting))


def _different(name: str, before: object, after: object) -> list[str]:
    """Names of the keys that differ; none of their values, which may be secret."""
    if not isinstance(before, BaseModel) or not isinstance(after, BaseModel):
        return [] if before == after else [name]
    keys = type(after).model_fields
    return [f"{name}.{key}" for key in keys if getattr(before, key) != getattr(after, key)]
