"""The right first cause for real faults of the real SGLang 0.5.23 on a CPU.

`make test-stories` tells all of it, in about fifteen minutes; what it recorded is replayed by every `make test`
(tests/unit/detectors/test_recorded_faults.py). Set RECORD_FAULTS_TO to a directory to record what attribution was given
(tests/fixtures/faults/README.md).
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from cyclewatch.detectors.attribution import Evidence, causes, split
from fault_lab import CONCURRENCY, DETECTION, FaultLab, Found, NoEffectError
from sglang_cpu.faults import ControlGroup, NotInjectableError, memory_hogs, slow_down, stopped_in_bursts
from sglang_cpu.server import SGLangServer
from sglang_lab import UnsteadyError, ring_directory, sglang_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.story, pytest.mark.timeout(1800)]

_Result = TypeVar("_Result")

VERSION = "0.5.23"
_START_S = 600
"""How long a server may take to start where other work has the CPUs."""

rings = pytest.fixture(scope="module")(ring_directory)


@pytest.fixture(name="lab", scope="module")
def _lab(rings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultLab]:
    venv = sglang_environment(VERSION)
    workdir = tmp_path_factory.mktemp("sglang")
    with ExitStack() as stack:
        try:
            group = stack.enter_context(ControlGroup())
        except NotInjectableError as error:
            pytest.skip(f"NOT RUN: {error}")
        environment = {"CYCLEWATCH_RING_DIR": str(rings)}
        server = stack.enter_context(
            SGLangServer(venv, VERSION, workdir, extra_env=environment, start_timeout=_START_S)
        )
        group.adopt(server)
        yield stack.enter_context(FaultLab(server, group, rings, workdir / "daemon").running())


@dataclass(frozen=True)
class Fault:
    """What is done to a server, and what may be named first."""

    injected: str
    inject: Callable[[FaultLab], AbstractContextManager[object]]
    expected: tuple[str, ...]


FAULTS = {
    "slow_down": Fault(
        "SGLang's own /slow_down: every forward pass sleeps 4 ms first",
        lambda lab: slow_down(lab.server, 0.004),
        ("stage_launch_blocked",),
    ),
    "cpu_hogs": Fault(
        "busy loops in the server's control group, two for each core",
        lambda lab: lab.group.hogs(2 * (os.cpu_count() or 1)),
        ("run_queue_wait",),
    ),
    "cpu_quota": Fault(
        "a CPU quota of 50 % of one core on the server's control group, period 10 ms",
        lambda lab: lab.group.quota(0.5),
        ("cgroup_throttling",),
    ),
    "stopped": Fault(
        "SIGSTOP and SIGCONT: the scheduler is stopped for 4 ms of every 10 ms",
        lambda lab: stopped_in_bursts(lab.server, 0.004, 0.010),
        ("stopped",),
    ),
    "second_server": Fault(
        "a second SGLang server with traffic on the same cores",
        lambda lab: lab.second_server(),
        ("run_queue_wait",),
    ),
}


def _suffers(lab: FaultLab, name: str) -> Found:
    fault = FAULTS[name]
    file = _file(name.replace("_", "-"))
    try:
        return _told(lambda: lab.suffer(fault.inject(lab), fault.expected, file, fault.injected))
    except NoEffectError as nothing:
        pytest.skip(f"NOT SHOWN here: {nothing}")


def _told(story: Callable[[], _Result]) -> _Result:
    """What the machine's own unrest voids is tried again."""
    try:
        return story()
    except UnsteadyError as drift:
        print(f"once more: {drift}")
    with _void_by_unrest():
        return story()


@contextmanager
def _void_by_unrest() -> Iterator[None]:
    """Skip what the machine's own unrest voids."""
    try:
        yield
    except UnsteadyError as drift:
        pytest.skip(f"NOT RUN to its end: the machine does not keep its pace: {drift}")


def _file(name: str) -> Path | None:
    """Where a fault is recorded, if it is."""
    directory = os.environ.get("RECORD_FAULTS_TO")
    return Path(directory) / f"sglang-cpu-{name}.json" if directory else None


@pytest.mark.parametrize("name", ["stopped", "cpu_quota", "cpu_hogs"])
def test_the_fault_is_the_first_cause(lab: FaultLab, name: str) -> None:
    """Of what `cyclewatch regressions list --json` shows."""
    _suffers(lab, name)


def test_a_sleep_in_run_batch_is_a_stall_on_the_host(lab: FaultLab) -> None:
    """No kernel, and no lack of a CPU."""
    _suffers(lab, "slow_down")


def test_other_load_is_no_regression(lab: FaultLab) -> None:
    """Three times as many requests, and back."""

    def story() -> None:
        with lab.judged_at_pace():
            try:
                lab.traffic.set_concurrency(3 * CONCURRENCY)
                lab.stays_quiet(60)
            finally:  # what is judged, and the faults after this one, are measured at the usual load
                lab.traffic.set_concurrency(CONCURRENCY)
            lab.stays_quiet(30)

    _told(story)


def test_hogs_of_memory_bandwidth_show_or_hide_in_the_noise(lab: FaultLab) -> None:
    """They add 5 to 15 % at most: below the smallest effect that is told from the unrest of a shared machine."""
    effect = lab.effect_of(memory_hogs(os.cpu_count() or 1), 60)
    print(f"memory-bandwidth hogs: decode {effect:+.1%}")
    if effect < DETECTION["min_effect"] / 2:
        assert not lab.is_open()


def test_another_server_on_the_same_cores_is_named(lab: FaultLab) -> None:
    """The wait for a CPU comes first, and what it says names the processes of the other server.

    Where there are cores enough for both, the other one does too little to be found.
    """
    found = _suffers(lab, "second_server")
    assert "sglang::" in str(found)


def test_a_restart_with_other_arguments_is_a_deployment(lab: FaultLab) -> None:
    """It begins a new baseline: a change event and no regression. Compared, the argument is among the evidence.

    The last test of this module: the baseline of those before it is gone.
    """
    known = lab.known()
    old_ns = time.time_ns() - 60 * 10**9, time.time_ns()
    lab.server.restart(["--dtype", "float32"])
    lab.group.adopt(lab.server)
    with _void_by_unrest(), lab.tap.judged_at_pace(DETECTION["min_effect"]):
        lab.stays_quiet(90)
    new_ns = time.time_ns() - 45 * 10**9, time.time_ns()
    events = lab.daemon.command("status")["events"]
    assert {("restart", "server"), ("argument", "dtype")} <= {(one["kind"], one["subject"]) for one in events}
    assert lab.known() == known
    one, other = lab.evidence_across(old_ns, new_ns), lab.evidence_across(new_ns, old_ns)
    slower = max(one, other, key=_growth)
    found = causes(slower, split(slower.before, slower.after))
    print(f"restart with --dtype float32: slower by {_growth(slower):+.1%}: {found}")
    assert ("argument", "dtype") in {(event.kind, event.subject) for event in slower.events}
    if _growth(slower) >= DETECTION["min_effect"]:
        assert found[0].kind == "deployment"


def _growth(evidence: Evidence) -> float:
    parts = split(evidence.before, evidence.after)
    return sum(part.after_us for part in parts) / sum(part.before_us for part in parts) - 1
