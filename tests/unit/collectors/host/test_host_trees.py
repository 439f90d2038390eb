"""Whole nodes give these readings, and no others.

After a change that is meant: `CYCLEWATCH_WRITE_GOLDEN=1 pytest tests/unit/collectors/host`, and look at the difference.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import host_trees
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


def of_eight_ranks(content: dict[str, str]) -> dict[str, str]:
    """The bare-metal node with eight schedulers, eight InfiniBand adapters, four disks and four network ports more."""
    node = dict(content)
    for number in range(1, 8):
        for path, text in content.items():
            if path.startswith("proc/2100/"):
                node[path.replace("2100", f"21{number}0")] = text.replace("2100", f"21{number}0")
            node[path.replace("mlx5_0", f"mlx5_{number}")] = text
    children = "proc/2000/task/2000/children"
    if children in node:
        node[children] = " ".join(f"21{number}0" for number in range(8)) + " 2200 "
    for number in range(1, 4):
        for path, text in content.items():
            node[path.replace("nvme0n1", f"nvme{number}n1")] = text.replace("259:0", f"259:{number}")
    for path, text in node.items():
        for line in text.splitlines(keepends=True):
            if " nvme0n1 " in line or line.lstrip().startswith("eno1"):
                copies = [line.replace("nvme0n1", f"nvme{n}n1").replace("eno1", f"eno{n + 1}") for n in range(1, 4)]
                node[path] = node[path].replace(line, line + "".join(copies))
    return node


def test_a_server_of_eight_ranks_has_about_300_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that a day of them fits into the store: more ranks, disks or ports are more, more threads are not."""
    plain = host_trees.files
    monkeypatch.setattr(host_trees, "files", lambda name, moment: of_eight_ranks(plain(name, moment)))
    node = Node("intel-bare-metal", tmp_path)
    node.settle()
    node.change()
    readings = [one for one in node.collect() if isinstance(one, Reading)]
    assert len({one.labels for one in readings if one.name == "host.last_cpu"}) == 8
    assert len({one.labels for one in readings if one.name == "host.disk_usage_ratio"}) == 4
    assert len({one.labels for one in readings if one.name == "host.infiniband_errors_per_s"}) == 8
    print(len(readings), "series")
    assert len(readings) <= 320
