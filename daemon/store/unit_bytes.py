"""Units as bytes, for the time in which the database is away."""

import zlib

import msgspec

from cyclewatch.daemon.store.unit import Unit

_LARGEST_BYTES = 2**28
_FASTEST = 1


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
    inflate = zlib.decompressobj()
    try:
        return msgspec.msgpack.decode(inflate.decompress(packed, _LARGEST_BYTES), type=Unit)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"not a unit: {error}") from None
