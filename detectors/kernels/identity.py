"""What a kernel is, whatever tool spelled its name.

Profilers print one kernel in several ways, all of which have one `key` here:

    void flash::prepare<(int)8, (bool)1>(int, const T1 *)     Nsight Systems, which numbers the types of a template
    void flash::prepare<8, true>(int, int const*)             Kineto, in the spelling of c++filt
    _ZN5flash7prepareILi8ELb1EEviPKi                          a mangled name

`normal_form` removes what says the same in other words (casts of template arguments, suffixes of numbers, spaces,
`const`, unnamed namespaces and those of a version) and what tools leave out or number (return types, parameter lists).
Two kernels that differ in nothing else share a key: overloads, and templates over `T` and `const T`.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cyclewatch.detectors.kernels.spelling import spelled

MAX_NAME = 16_384
"""Characters of a name that are looked at; what is longer counts as cut. The longest seen in the field has 1,646."""

MAX_REMEMBERED = 2048
"""Characters of a name whose form is kept; longer ones would fill the memory, and are rare."""

_CUT_MARKS = ("...", "…")
_SUFFIX = re.compile(r"(?: \[clone [^\]]{1,80}\]|\.kd)$")
_MANGLED = re.compile(r"_Z[A-Z0-9]")
_NO_CPP = re.compile(r"Mem(?:cpy|set) |\[CUDA ")
"""Copies and fills have names in words, with brackets and arrows of their own."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """The name of a kernel, freed from the habits of the tool that wrote it.

    `key` is equal for two spellings of one kernel; `head` is the key without template arguments. `truncated` means that
    the name was cut before all of that was told: then `key` is where the whole key begins.
    """

    key: str
    head: str
    truncated: bool


def normal_form(name: str) -> NormalForm:
    """The normal form of a kernel's name; never fails, however odd the name.

    A name ends in "..." or "…" where a table cut it: torch at 55 characters by default, Nsight Systems' own at 100.
    """
    return _remembered(name) if len(name) <= MAX_REMEMBERED else _form(name)


def _form(name: str) -> NormalForm:
    truncated = len(name) > MAX_NAME
    text = name[:MAX_NAME].strip()
    for mark in _CUT_MARKS:
        if text.endswith(mark):
            text, truncated = text.removesuffix(mark).rstrip("."), True
    if found := _SUFFIX.search(text, max(0, len(text) - 100)):
        text = text[: found.start()]
    if _NO_CPP.match(text):
        plain = " ".join(text.split())
        return NormalForm(plain, plain, truncated)
    if _MANGLED.match(text) and not truncated:
        text = _demangled(text)
    spelling = spelled(text, truncated=truncated)
    return NormalForm(spelling.key, spelling.head, truncated and not spelling.whole)


_remembered = functools.lru_cache(maxsize=8192)(_form)


def same_kernel(one: str, other: str) -> bool:
    """Whether two spellings surely name one kernel: both are whole, and their keys are equal."""
    first, second = normal_form(one), normal_form(other)
    return not first.truncated and not second.truncated and first.key == second.key


def match_truncated(name: str, candidates: Iterable[str]) -> str | None:
    """The one among `candidates` that a cut name can stand for, or None where none or several kernels can.

    Candidates that spell one kernel count as one; a candidate that is cut itself is none. A match is an inference, and
    whoever shows it says so.
    """
    form = normal_form(name)
    found: dict[str, str] = {}
    for candidate in candidates:
        other = normal_form(candidate)
        if not other.truncated and (other.key.startswith(form.key) if form.truncated else other.key == form.key):
            found.setdefault(other.key, candidate)
    return next(iter(found.values())) if len(found) == 1 else None


def _demangled(name: str) -> str:
    """The name in c++filt's spelling, or as it is where that cannot be.

    The library bounds depth and output: forty characters of nested substitutions would otherwise fill the memory.
    """
    from demangle import DemanglingError, demangle_strict  # noqa: PLC0415 (3 MB that few profiles need)

    try:
        return demangle_strict(name, language="itanium", style="gnu")
    except DemanglingError:
        return name
