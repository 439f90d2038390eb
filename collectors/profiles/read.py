"""Read a profile of any kind; its format is found by its content, not by its name."""

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from cyclewatch.collectors.profiles.kineto import read_kineto
from cyclewatch.collectors.profiles.nsys import read_nsys
from cyclewatch.collectors.profiles.records import Profile, ProfileError
from cyclewatch.collectors.profiles.rocprofv3 import read_rocprofv3
from cyclewatch.collectors.profiles.torch_table import is_header, read_torch_table
from cyclewatch.collectors.profiles.unpack import Limits, unpacked

_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*[{\]])')
_ROCPROFV3 = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')

MAX_LINE_CHARS = 100_000


def read_profile(path: Path, *, limits: Limits = Limits()) -> Profile:  # noqa: B008 (frozen)
    """The profile in a file: a trace of Kineto, a kernel summary of nsys, a table of torch, or rocprofv3's JSON.

    What can be read but is not as it should be is in its `flaws`; `flaws.validity` says whether it is evidence.

    Raises:
        ProfileError: it is none of these, is damaged or cut off, or exceeds the limits.
    """
    try:
        with unpacked(path, limits) as chunks:
            return _read(chunks, limits)
    except ProfileError as error:
        name = "".join(character if character.isprintable() else "?" for character in str(path))
        raise ProfileError(f"{name}: {error}") from None


def _read(chunks: Iterator[bytes], limits: Limits) -> Profile:
    head = next(chunks, b"").removeprefix(codecs.BOM_UTF8)
    chunks = chain([head], chunks)
    if _ROCPROFV3.match(head):
        return read_rocprofv3(_whole(chunks, limits.document_bytes), limits)
    if _JSON.match(head):
        return read_kineto(chunks, limits)
    text = _text(_whole(chunks, limits.text_bytes))
    longest = max(map(len, text.splitlines()), default=0)
    if longest > MAX_LINE_CHARS:
        raise ProfileError(f"a line of {longest} characters: no table of kernels")
    is_torch_table = any(is_header(line) for line in text.splitlines())
    return read_torch_table(text, limits) if is_torch_table else read_nsys(text, limits)


def _whole(chunks: Iterator[bytes], limit_bytes: int) -> bytes:
    pieces, size = [], 0
    for piece in chunks:
        size += len(piece)
        if size > limit_bytes:
            raise ProfileError(f"no trace of Kineto, and larger than {limit_bytes >> 20} MB: give less of it")
        pieces.append(piece)
    return b"".join(pieces)


def _text(data: bytes) -> str:
    """Text as tools and shells write it, PowerShell's UTF-16 included."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if utf16 else "utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ProfileError(
            "neither a trace of Kineto, a kernel summary of nsys, a table of torch, nor JSON of rocprofv3"
        )
    return text
