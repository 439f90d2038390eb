"""The operators of the catalogue: finding one, giving it a shape, and how much of a profile belongs to each."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cyclewatch.collectors.profiles.records import KernelKind, KernelUse
from cyclewatch.config.catalogues import Operator, operators
from cyclewatch.detectors.kernels.families import classify
from cyclewatch.detectors.kernels.roofline import RooflineError

_LARGEST = 10**12
_LONGEST = 200
_SHOWN = 60
_NUMBER = re.compile(r"\d{1,13}")


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """How much of a profile's kernel time one operator had, 0 to 1, beside its importance in production.

    Importances add up to more than 1, since operators hold one another; these shares do not: a kernel has one operator.
    """

    operator: str
    share: float
    importance: float
    total_ns: int
    calls: int
    kernels: int
    """Different kernels."""


def operator_shares(kernels: Iterable[KernelUse]) -> tuple[OperatorShare, ...]:
    """The operators of the catalogue that these kernels come closest to, the largest share first.

    The share is of all kernel time, also of kernels that no operator of the catalogue has (plain matrix products are
    none of them). Copies and CPU operators are left out.
    """
    used = [use for use in kernels if use.kind is KernelKind.KERNEL]
    whole_ns = sum(use.total_ns for use in used)
    by_operator = defaultdict(list)
    for use in used:
        if name := classify(use.name).operator:
            by_operator[name].append(use)
    shares = []
    for name, uses in by_operator.items():
        total_ns = sum(use.total_ns for use in uses)
        share = total_ns / whole_ns if whole_ns else 0.0
        different = len({classify(use.name).key for use in uses})
        calls = sum(use.calls for use in uses)
        shares.append(OperatorShare(name, share, operators()[name].importance, total_ns, calls, different))
    return tuple(sorted(shares, key=lambda one: (-one.total_ns, one.operator)))


def find_operator(name: str) -> Operator:
    """The operator of this name.

    Raises:
        RooflineError: there is none; the message has those whose names are nearest.
    """
    known = operators()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower()[:_SHOWN], known, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; --list shows all that there are"
    raise RooflineError(f"no operator {name[:_SHOWN]!r} in the catalogue{hint}")


def shape_of(operator: Operator, text: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """The dimensions that `text` gives, and the names of those that are assumed.

    A shape is "8192,2048", "(8192, 2048)", "8192x2048", or "tokens=8192,hidden=2048". What the operator has a default
    for may be left out at the end. Where rows come first, more numbers are rows of rows: (15476,1,1152) has 15,476.

    Raises:
        RooflineError: the text is no shape of this operator.
    """
    named = "=" in text
    parts = [part for part in re.split(r"[,\s]+" if named else r"[,x\s]+", text[:_LONGEST].strip(" ()[]")) if part]
    if not parts:
        raise _wrong(operator, text, "is empty")
    given = _by_name(operator, parts, text) if named else _by_place(operator, parts, text)
    complete = _completed(operator, given)
    missing = [name for name in operator.dimensions if name not in complete]
    if missing:
        raise _wrong(operator, text, f"lacks {', '.join(missing)}")
    assumed = tuple(name for name in operator.dimensions if name not in given)
    return {name: complete[name] for name in operator.dimensions}, assumed


def known_s(operator: Operator, shape: Mapping[str, int]) -> float | None:
    """The catalogue's S, measured on XPU-A, of exactly this shape; None where it does not have it."""
    equal = (one.s for one in operator.shapes if one.shape and _completed(operator, one.shape) == shape)
    return next(equal, None)


def _completed(operator: Operator, given: Mapping[str, int]) -> dict[str, int]:
    """The dimensions with the defaults of those that are not given; a default can be another dimension's name."""
    complete = dict(given)
    for name, default in operator.default.items():
        value = given.get(default) if isinstance(default, str) else default
        if value is not None:
            complete.setdefault(name, value)
    return complete


def _by_place(operator: Operator, parts: list[str], text: str) -> dict[str, int]:
    numbers = [_number(operator, part, text) for part in parts]
    names = operator.dimensions
    if len(numbers) > len(names) and _has_rows(operator):
        rows = numbers[: len(numbers) - len(names) + 1]
        numbers = [_product(rows), *numbers[len(rows) :]]
    if len(numbers) > len(names):
        raise _wrong(operator, text, f"has {len(numbers)} numbers")
    return dict(zip(names, numbers, strict=False))


def _by_name(operator: Operator, parts: list[str], text: str) -> dict[str, int]:
    given: dict[str, int] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in operator.dimensions:
            near = difflib.get_close_matches(name[:_SHOWN], operator.dimensions, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise _wrong(operator, text, f"has {name[:_SHOWN]!r}, which is no dimension of it{hint}")
        given[name] = _number(operator, value, text)
    return given


def _number(operator: Operator, part: str, text: str) -> int:
    if not _NUMBER.fullmatch(part) or not 1 <= int(part) <= _LARGEST:
        raise _wrong(operator, text, f"has {part[:_SHOWN]!r}, which is no whole number from 1 to {_LARGEST:,}")
    return int(part)


def _has_rows(operator: Operator) -> bool:
    """Whether the first dimension counts rows that are all alike."""
    return operator.dimensions in (("tokens", "hidden"), ("rows", "hidden"), ("rows", "columns"))


def _product(numbers: Iterable[int]) -> int:
    whole = 1
    for number in numbers:
        whole *= number
    return min(whole, _LARGEST)


def _wrong(operator: Operator, text: str, reason: str) -> RooflineError:
    shown = text[:_SHOWN]
    wanted = ",".join(operator.dimensions)
    example = ",".join(map(str, _example(operator)))
    return RooflineError(
        f"shape {shown!r} {reason}: {operator.name} wants {wanted} ({operator.meaning}), for example {example}"
    )


def _example(operator: Operator) -> list[int]:
    """The catalogue's most complete shape, as far as it is told from the first dimension on."""
    shapes = [[one.shape[name] for name in operator.dimensions if name in one.shape] for one in operator.shapes]
    return max(shapes, key=len)
