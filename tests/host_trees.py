"""Nodes at two moments, from tests/fixtures/host: their /proc and /sys are laid out as files for the host collector.

A tree is kept in two texts, in the form that `tail -n +1 FILE...` prints: `before.txt` has all files, `after.txt` those
that have changed when the second sample is taken. PROVENANCE says where they are from. `{root}` in a file stands for
the directory that the tree is put into.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.host.collector import HostCollector
from cyclewatch.collectors.records import RingIdentity, Sample
from cyclewatch.config.settings import Host

TREES = Path(__file__).parent / "fixtures/host"
NAMES = sorted(path.parent.name for path in TREES.glob("*/PROVENANCE"))
STEP_S = 5.0
"""Between two samples. Looks and surveys come with each, so that every sample has everything."""

_HEAD = re.compile(r"(?:^|\n)==> (.+) <==\n")


def files(name: str, moment: str) -> dict[str, str]:
    """Content of each file of a tree, `before` or `after`, by path."""
    _, *parts = _HEAD.split((TREES / name / f"{moment}.txt").read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def rings(name: str) -> Iterator[RingIdentity]:
    """What the rings of a tree's schedulers would say."""
    rank = 0
    for path, content in files(name, "before").items():
        if path.endswith("/stat") and "(sglang::schedul)" in content:
            pid, parent = int(path.split("/")[1]), int(content.rpartition(")")[2].split()[1])
            values = {"pid": pid, "parent_pid": parent, "parent_start_ticks": 0, "monotonic_ns": 0, "wall_ns": 0}
            server = {"host": "127.0.0.1", "port": 30000}
            yield RingIdentity.parse(f"1-{pid}-0", json.dumps({**values, "tp_rank": rank, "server": server}).encode())
            rank += 1


class Node:
    """A tree as files below `root`, and a host collector that reads them at moments that are told."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        self.now_ns = 1_000_000_000_000
        self.write(files(name, "before"))
        discovery = Discovery(())
        self.schedulers = []
        for ring in rings(name):
            discovery.note(ring)
            self.schedulers.append(ring.pid)
        settings = Host(
            proc=root / "proc",
            sys=root / "sys",
            cgroup=root / "sys/fs/cgroup",
            look_interval_s=STEP_S,
            survey_interval_s=STEP_S,
        )
        self.collector = HostCollector(settings, discovery)

    def write(self, changed: dict[str, str]) -> None:
        """Let files have this content, held ones too."""
        for path, content in changed.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content.replace("{root}", str(self.root)))

    def change(self, leave: str = "") -> None:
        """Let the tree be as in `after`, but for the file `leave`."""
        self.write({path: content for path, content in files(self.name, "after").items() if path != leave})

    def collect(self, step_s: float = STEP_S) -> list[Sample]:
        """The samples of the next moment."""
        self.now_ns += int(step_s * 1e9)
        return list(self.collector.collect(Now(self.now_ns, 0)))

    def settle(self) -> None:
        """Let everything be found and read once: the cores in use are known after the first sample."""
        self.collect()
        self.collect()
