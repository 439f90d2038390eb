"""Real profiles and source documents beside the checkout; tests that want them skip, loudly, where they are absent."""

import csv
import gzip
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SHARED = Path(__file__).parents[2] / "shared"
_UNITS_NS = {"ns": 1.0, "μs": 1e3, "ms": 1e6, "s": 1e9}
_KINDS = {"gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset", "kernel": "kernel"}


class Use(NamedTuple):
    """All calls of one name."""

    name: str
    kind: str
    calls: int
    total_ns: float


def seed(number: str) -> Path:
    """A source document by the number that its name begins with."""
    found = sorted(SHARED.glob(f"seeds/{number}_*.txt"))
    if not found:
        pytest.skip(f"no source document {number} in {SHARED}/seeds")
    return found[0]


def kernel_table(number: str) -> list[Use]:
    """The kernels of a tab-separated kernel summary among the source documents."""
    uses = []
    for line in seed(number).read_text().splitlines():
        cells = line.split("\t")
        if len(cells) >= 9 and cells[0].endswith("%"):
            value, unit = cells[1].split()
            uses.append(Use(cells[-1].strip(), "kernel", int(cells[2]), float(value) * _UNITS_NS[unit]))
    return uses


@cache
def profiles() -> dict[str, list[Use]]:
    """Every shared profile by the name of its file, read the plainest way."""
    files = [*SHARED.glob("data/traces/*.json.gz"), *SHARED.glob("data/nsys/*.csv")]
    if not files:
        pytest.skip(f"no profiles in {SHARED}/data")
    return {path.name: _trace(path) if path.suffix == ".gz" else _summary(path) for path in sorted(files)}


def kernel_names() -> list[str]:
    """The different kernel names of all shared profiles and source documents."""
    uses = [use for found in profiles().values() for use in found]
    return sorted({use.name for use in [*uses, *kernel_table("000"), *kernel_table("002")] if use.kind == "kernel"})


def _trace(path: Path) -> list[Use]:
    found: dict[tuple[str, str], list[float]] = {}
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        kind = _KINDS.get(str(event.get("cat", "")).lower())
        if event.get("ph") == "X" and kind:
            found.setdefault((event["name"], kind), []).append(event.get("dur", 0) * 1e3)
    return [Use(name, kind, len(times), sum(times)) for (name, kind), times in found.items()]


def _summary(path: Path) -> list[Use]:
    with path.open() as lines:
        return [
            Use(row["Name"], "kernel", int(row["Instances"]), float(row["Total Time (ns)"]))
            for row in csv.DictReader(lines)
        ]
