"""Who else uses the CPUs, from what /proc says at one survey and at the next."""

import os
from pathlib import Path

import pytest

from cyclewatch.collectors.host.groups import Groups
from cyclewatch.collectors.host.other_processes import OtherProcesses
from cyclewatch.collectors.host.source import Scene
from cyclewatch.collectors.processes import ProcessTree
from cyclewatch.collectors.records import Reading

SECOND = 10**9
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
UPTIME_S = 30 * 86_400
"""Seconds since boot at the first survey."""


class Node:
    """A node that is surveyed every thirty seconds."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.age_s = 0
        self.source = OtherProcesses(lambda: (UPTIME_S + self.age_s) * SECOND)

    def process(self, pid: int, started_s: float, cpu_s: float, name: str = "backup") -> None:
        """Let a process be there that started then, after boot, and has used so much of a CPU."""
        directory = self.proc / str(pid)
        directory.mkdir(exist_ok=True)
        ticks = [round(seconds * TICKS_PER_S) for seconds in (cpu_s, started_s)]
        fields = ["S", "1", *["0"] * 9, str(ticks[0]), *["0"] * 7, str(ticks[1]), *["0"] * 30]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")

    def hide(self, pid: int) -> None:
        """Let a process be there that cannot be read."""
        (self.proc / str(pid) / "stat").unlink()

    def survey(self) -> dict[str, float]:
        """CPUs by command, and those of all under no name."""
        self.age_s += 30
        scene = Scene((), ProcessTree(self.proc), Groups((), self.proc, self.proc))
        samples = list(self.source.look(scene, self.age_s * SECOND))
        return {dict(one.labels).get("command", ""): one.value for one in samples if isinstance(one, Reading)}


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.process(1, 0, 100, "init")
    node.process(900, 10, UPTIME_S)
    assert node.survey() == {}
    return node


def test_the_difference_of_two_surveys_is_told(node: Node) -> None:
    node.process(900, 10, UPTIME_S + 15)
    assert node.survey() == pytest.approx({"": 0.5, "backup": 0.5})


def test_a_process_that_was_not_seen_once_has_not_used_its_whole_life_since(node: Node) -> None:
    """What it used meanwhile is not known; from then on it is."""
    node.hide(900)
    assert node.survey() == {"": 0}
    node.process(900, 10, UPTIME_S + 30)
    assert node.survey() == {"": 0}
    node.process(900, 10, UPTIME_S + 36)
    assert node.survey() == pytest.approx({"": 0.2, "backup": 0.2})


def test_a_process_that_is_new_counts_from_its_start(node: Node) -> None:
    node.process(901, UPTIME_S + 45, 6, "compiler")
    assert node.survey() == pytest.approx({"": 0.2, "compiler": 0.2})


def test_a_survey_that_fails_leaves_the_one_before(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time, too: the difference is that of a minute."""

    def fail(_: ProcessTree) -> list[int]:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(ProcessTree, "processes", fail)
        with pytest.raises(OSError, match="Too many"):
            node.survey()
    node.process(900, 10, UPTIME_S + 15)
    assert node.survey() == pytest.approx({"": 0.25, "backup": 0.25})
