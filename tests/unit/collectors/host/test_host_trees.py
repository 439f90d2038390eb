"""Whole nodes give these readings, and no others.

After a change that is meant: `CYCLEWATCH_WRITE_GOLDEN=1 pytest tests/unit/collectors/host`, and look at the difference.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.records import Fact, Failure, NoData, Reading, Sample
from host_trees import NAMES, TREES, Node


def series(reading: Reading) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in (("target", reading.target), *reading.labels))
    return f"{reading.name}{{{labels}}}"


def document(samples: list[Sample], root: Path) -> dict[str, Any]:
    """Samples as JSON."""
    readings = {series(one): float(f"{one.value:.9g}") for one in samples if isinstance(one, Reading)}
    problems = [one.reason for one in samples if isinstance(one, Failure | NoData)]
    return {
        "readings": dict(sorted(readings.items())),
        "facts": {one.subject: one.value for one in samples if isinstance(one, Fact)},
        "problems": [reason.replace(str(root), "{root}") for reason in problems],
    }


def golden(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((TREES / name / "golden.json").read_text())
    return document


@pytest.mark.parametrize("name", NAMES)
def test_a_node_gives_what_is_written_down(name: str, tmp_path: Path) -> None:
    """What changed in the five seconds between the two moments of a tree."""
    node = Node(name, tmp_path)
    node.settle()
    node.change()
    samples = node.collect()
    found = document(samples, tmp_path)
    if os.environ.get("CYCLEWATCH_WRITE_GOLDEN"):
        (TREES / name / "golden.json").write_text(json.dumps(found, indent=1) + "\n")
    assert found == golden(name)
    assert len(found["readings"]) == sum(isinstance(sample, Reading) for sample in samples)


def test_every_reading_is_in_some_tree(tmp_path: Path) -> None:
    """Else nothing would show that it works."""
    seen = {key.partition("{")[0] for name in NAMES for key in golden(name)["readings"]}
    assert seen == {quantity.name for quantity in Node(NAMES[0], tmp_path).collector.quantities}


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_says_where_it_is_from(name: str) -> None:
    assert "2026" in (TREES / name / "PROVENANCE").read_text()
