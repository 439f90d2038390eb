"""The causal graph of causes.toml: what can make a step slower, how it shows, and what follows from it."""

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from typing import Any, TypeVar

W = TypeVar("W", bound=StrEnum)


class CausesError(ValueError):
    """The causal graph is not one; a sentence that names the kind and what is wrong with it."""


class Layer(StrEnum):
    """Where a cause lives. A symptom is none: something is behind it."""

    HARDWARE = "hardware"
    HOST = "host"
    GPU = "gpu"
    ENGINE = "engine"
    SOFTWARE = "software"
    SYMPTOM = "symptom"


class Size(StrEnum):
    """How a reading becomes time; the words are explained in causes.toml."""

    LOST = "lost"
    LOST_AT_MOST = "lost_at_most"
    LOST_OF_NODE = "lost_of_node"
    FACTOR = "factor"
    PER_EVENT = "per_event"
    UNSIZED = "unsized"


class Way(StrEnum):
    """Whether the scheduler's thread computes or is off the CPU in the time that a cause adds."""

    EITHER = ""
    BUSY = "busy"
    BLOCKED = "blocked"


class Direction(StrEnum):
    """Which way a reading moves when the cause is there."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Sign:
    """A reading that shows a cause: its name, and patterns that its labels must fit.

    `least` is the smallest change that means anything, in the reading's unit; `least_factor` the same as a factor, more
    than 1; `from` (here `level`) what the reading must have reached afterwards, None for anything; `silent` that it is
    told only while it is not zero.
    """

    reading: str
    direction: Direction
    labels: Mapping[str, str] = field(default_factory=dict)
    least: float = 0.0
    least_factor: float = 1.0
    level: float | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class EventSign:
    """A change or happening that shows a cause, by patterns of its kind and subject; `alone`: only without others."""

    kind: str
    subject: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class CauseKind:
    """One kind of cause; the fields are explained in causes.toml. `explains` has no patterns any more."""

    kind: str
    subject: str
    layer: Layer
    lengthens: tuple[str, ...]
    size: Size
    way: Way = Way.EITHER
    event_s: float = 0.0
    sign: tuple[Sign, ...] = ()
    event: tuple[EventSign, ...] = ()
    through: tuple[str, ...] = ()
    needs_effect: bool = False
    refuted_by: tuple[str, ...] = ()
    yields_to: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()


@dataclass(frozen=True)
class CausalGraph:
    """All kinds by name, in the order in which those without a size are believed, and what the split shows.

    `failures` are the kinds that show hardware to be failing, `next_steps` what to do about each, of `shown` too.
    """

    kinds: Mapping[str, CauseKind]
    shown: tuple[str, ...]
    failures: frozenset[str] = frozenset()
    next_steps: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def readings(self) -> frozenset[str]:
        """Names of all readings that the graph asks for."""
        return frozenset(
            name
            for kind in self.kinds.values()
            for name in (
                *(sign.reading for sign in kind.sign),
                *kind.refuted_by,
                *kind.yields_to,
                *kind.unless,
            )
        )

    def explains(self, cause: str, effect: str) -> bool:
        """Whether `effect` follows from `cause`, over any number of steps."""
        return effect in self._effects.get(cause, frozenset())

    @functools.cached_property
    def _effects(self) -> Mapping[str, frozenset[str]]:
        effects: dict[str, frozenset[str]] = {}
        for name in TopologicalSorter(_edges(self.kinds)).static_order():
            direct = self.kinds[name].explains if name in self.kinds else ()
            effects[name] = frozenset(direct).union(*(effects[effect] for effect in direct))
        return effects


@functools.cache
def causal_graph() -> CausalGraph:
    """The graph of causes.toml."""
    return parse_causes(tomllib.loads(resources.files(__package__).joinpath("causes.toml").read_text(encoding="utf-8")))


def parse_causes(document: Mapping[str, Any]) -> CausalGraph:
    """The graph of such a document.

    Raises:
        CausesError: a key or a word is unknown or missing, a kind stands twice or is named and not there, or a cause
            follows from itself.
    """
    _only(document, {"shown", "failures", "next", "cause"}, "the file")
    shown = tuple(document.get("shown", ()))
    kinds: dict[str, CauseKind] = {}
    for table in document.get("cause", ()):
        kind = _kind(table)
        if kind.kind in kinds or kind.kind in shown:
            raise CausesError(f"{kind.kind}: it stands twice")
        kinds[kind.kind] = kind
    names = (*kinds, *shown)
    failures, next_steps = frozenset(document.get("failures", ())), dict(document.get("next", {}))
    _only({**dict.fromkeys(failures), **next_steps}, set(names), "failures and next")
    kinds = {name: _resolved(kind, names) for name, kind in kinds.items()}
    try:
        TopologicalSorter(_edges(kinds)).prepare()
    except CycleError as error:
        raise CausesError(f"these follow from each other: {', '.join(error.args[1])}") from None
    return CausalGraph(kinds, shown, failures, next_steps)


def _edges(kinds: Mapping[str, CauseKind]) -> dict[str, tuple[str, ...]]:
    return {name: kind.explains for name, kind in kinds.items()}


def _kind(table: Mapping[str, Any]) -> CauseKind:
    name = str(table.get("kind", "a cause without a kind"))
    _only(table, {one.name for one in fields(CauseKind)}, name)
    missing = [key for key in ("kind", "subject", "layer", "lengthens", "size") if key not in table]
    if missing:
        raise CausesError(f"{name}: {missing[0]} is missing")
    given: dict[str, Any] = {
        **table,
        "layer": _word(Layer, table["layer"], name),
        "size": _word(Size, table["size"], name),
        "way": _word(Way, table.get("way", ""), name),
        "sign": tuple(_sign(one, name) for one in table.get("sign", ())),
        "event": tuple(_event(one, name) for one in table.get("event", ())),
    }
    for key in ("lengthens", "through", "refuted_by", "yields_to", "unless", "explains"):
        given[key] = tuple(table.get(key, ()))
    kind = CauseKind(**given)
    if (kind.size is Size.PER_EVENT) != (kind.event_s > 0):
        raise CausesError(f"{name}: event_s belongs to the size per_event, and must be more than 0")
    return kind


def _sign(table: Mapping[str, Any], name: str) -> Sign:
    _only(table, {"reading", "direction", "labels", "least", "least_factor", "silent", "from"}, f"{name}: a sign")
    if "reading" not in table or "direction" not in table:
        raise CausesError(f"{name}: a sign needs a reading and a direction")
    rest = {key: value for key, value in table.items() if key not in {"direction", "from"}}
    return Sign(**rest, direction=_word(Direction, table["direction"], name), level=table.get("from"))


def _event(table: Mapping[str, Any], name: str) -> EventSign:
    _only(table, {"kind", "subject", "alone"}, f"{name}: an event")
    if "kind" not in table or "subject" not in table:
        raise CausesError(f"{name}: an event needs a kind and a subject")
    return EventSign(**table)


def _resolved(kind: CauseKind, names: Sequence[str]) -> CauseKind:
    """With what it explains by name, `through` among them."""
    explained: dict[str, None] = {}
    for pattern in (*kind.through, *kind.explains):
        fitting = [name for name in names if fnmatchcase(name, pattern) and name != kind.kind]
        if not fitting:
            raise CausesError(f"{kind.kind}: there is no kind {pattern} that it could explain")
        explained.update(dict.fromkeys(fitting))
    values = {one.name: getattr(kind, one.name) for one in fields(CauseKind)}
    return CauseKind(**{**values, "explains": tuple(explained)})


def _only(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise CausesError(f"{where}: {unknown[0]} is not known; known are {', '.join(sorted(known))}")


def _word(words: type[W], given: str, where: str) -> W:
    try:
        return words(given)
    except ValueError:
        raise CausesError(f"{where}: {given} is none of {', '.join(words)}") from None
