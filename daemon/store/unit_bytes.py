"""Units as bytes, for the time in which the database is away."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from cyclewatch.daemon.store.unit import RingPosition, Run, StoredFact, Unit

_Read = TypeVar("_Read")

_LARGEST_BYTES = 2**28
_FASTEST = 1


@dataclass(frozen=True)
class UnitHead:
    """What a unit says of how things are, its states still packed; not what was measured or found."""

    at_ns: int
    runs: list[Run] = field(default_factory=list)
    rings: list[RingPosition] = field(default_factory=list)
    facts: list[StoredFact] = field(default_factory=list)
    states: dict[str, msgspec.Raw] = field(default_factory=dict)
    status: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def unit_to_bytes(unit: Unit) -> bytes:
    """The bytes of a unit.

    Raises:
        TypeError: it holds what is neither a number, nor text, nor made of those.
        ValueError: it holds broken characters.
        OverflowError: it holds a number beyond 64 bits.
    """
    return zlib.compress(msgspec.msgpack.encode(unit), _FASTEST)


def unit_from_bytes(packed: bytes) -> Unit:
    """The unit in these bytes.

    Raises:
        ValueError: there is none in them.
    """
    return _read(packed, Unit)


def head_from_bytes(packed: bytes) -> UnitHead:
    """The head of the unit in these bytes, in a quarter of the time.

    Raises:
        ValueError: there is none in them.
    """
    return _read(packed, UnitHead)


def head_of(unit: Unit) -> UnitHead:
    """The head of a unit.

    Raises:
        TypeError, ValueError, OverflowError: as `unit_to_bytes`.
    """
    states = {key: msgspec.Raw(msgspec.msgpack.encode(state)) for key, state in unit.states.items()}
    return UnitHead(unit.at_ns, unit.runs, unit.rings, unit.facts, states, {**unit.status})


def state_from_bytes(packed: bytes) -> Mapping[str, Any]:
    """A state of a head."""
    return msgspec.msgpack.decode(packed, type=dict[str, Any])


def _read(packed: bytes, kind: type[_Read]) -> _Read:
    inflate = zlib.decompressobj()
    try:
        return msgspec.msgpack.decode(inflate.decompress(packed, _LARGEST_BYTES), type=kind)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"not a unit: {error}") from None
