"""Steps of the engine: what their names say, and which activities belong to which."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cyclewatch.collectors.profiles.activities import NONE, Activities, Integers, union_ns
from cyclewatch.collectors.profiles.records import Step

_SGLANG = re.compile(r"step\[(?P<stage>[A-Za-z_]{1,40})(?: bs=(?P<size>\d{1,9}))?[ \]]")
_VLLM = re.compile(r"execute_(?:\d+_)?context_(?P<context>\d{1,9})(?:\(.*?\))?_generation_(?P<generation>\d{1,9})")
_VLLM_OLD = re.compile(r"execute_new_(?P<context>\d{1,9})_cached_(?P<generation>\d{1,9})")
_PROFILER = re.compile(r"ProfilerStep#\d")
_BEGINNINGS = ("step[", "execute_", "ProfilerStep#")

MAX_STEPS = 100_000
MAX_MARKS = 2 * MAX_STEPS
"""A step has one on the CPU, and one on the device."""


@dataclass(frozen=True, slots=True)
class StepName:
    """What the name of a step says."""

    of_engine: bool
    """One batch of the engine; otherwise a step of the profiler, which may hold several."""
    phase: str
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation that names a step, as an interval of the device or of the thread that launched."""

    name: str
    said: StepName
    on_device: bool
    process: str
    """Its process, "" where the file has one only."""
    number: int
    """The same for the marks that one annotation left on several streams; `NONE` where the file does not tell."""
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Steps in order of start, and the step of each activity: shape (n,), an index into `marks`, or `NONE`."""

    marks: tuple[Mark, ...]
    step: Integers
    by_launch: bool
    """The file has no marks of the device: a step holds what was launched in it."""

    def phases(self) -> tuple[tuple[str, ...], Integers]:
        """The names of the phases, and the phase of each activity as an index into them, shape (n,)."""
        names = tuple(dict.fromkeys(["", *(mark.said.phase for mark in self.marks)]))
        index = {name: at for at, name in enumerate(names)}
        of_step = np.array([*(index[mark.said.phase] for mark in self.marks), 0])
        return names, of_step[self.step]  # NONE is the last


def step_name(name: str) -> StepName | None:
    """Phase and batch size from the name of an annotation; ``None`` where it names no step.

    SGLang: ``step[DECODE bs=32]``, ``step[EXTEND bs=15 toks=15360]``. vLLM, and SGLang where it is patched, in three
    spellings: ``execute_32_context_0(…)_generation_32(…)``, ``execute_context_1(8192)_generation_7(7)``,
    ``execute_new_1_cached_7``. PyTorch: ``ProfilerStep#3``, which tells no phase.
    """
    if not name.startswith(_BEGINNINGS):  # nearly all
        return None
    if match := _SGLANG.match(name):
        return StepName(
            of_engine=True, phase=match["stage"].lower(), batch_size=int(match["size"]) if match["size"] else None
        )
    if match := _VLLM.match(name) or _VLLM_OLD.match(name):
        context, generation = int(match["context"]), int(match["generation"])
        phase = {(True, True): "mixed", (True, False): "extend", (False, True): "decode"}.get(
            (context > 0, generation > 0), ""
        )
        return StepName(of_engine=True, phase=phase, batch_size=context + generation)
    return StepName(of_engine=False, phase="", batch_size=None) if _PROFILER.match(name) else None


def cut(activities: Activities, marks: Iterable[Mark], launch_ns: Integers) -> Cut:
    """Give each activity its step.

    The engine's marks come before the profiler's, and those of the device before those of the CPU. By a mark of the
    device, an activity belongs to the step in which it began; otherwise to the one in which it was launched, by
    whatever thread; without any launch in the file, to the one that lay on the CPU when it began. Where marks nest,
    the outer one is the step: it also holds what comes after the forward pass.

    Args:
        activities: of shape (n,).
        marks: in any order, of any kind.
        launch_ns: the beginning of the call that launched each, or `NONE`; shape (n,).
    """
    chosen = list(marks)
    for better in ("of_engine", "on_device"):
        chosen = [mark for mark in chosen if getattr(mark.said if better == "of_engine" else mark, better)] or chosen
    steps = _outer(_joined(chosen))[:MAX_STEPS]
    by_launch = not any(mark.on_device for mark in steps) and bool((launch_ns != NONE).any())
    at_ns = launch_ns if by_launch else activities.start_ns
    step = np.full(len(activities), NONE)
    for process in {process_of(device) for device in activities.devices} & {mark.process for mark in steps}:
        here = np.flatnonzero([process_of(device) == process for device in activities.devices])
        rows = np.flatnonzero(np.isin(activities.device, here) & (at_ns >= 0))  # not those of an unknown launch
        numbers = np.array([at for at, mark in enumerate(steps) if mark.process == process])
        begins = np.array([steps[at].start_ns for at in numbers])
        ends = np.array([steps[at].end_ns for at in numbers])
        place = np.searchsorted(begins, at_ns[rows], side="right") - 1
        inside = (place >= 0) & (at_ns[rows] < ends[place])
        step[rows] = np.where(inside, numbers[place], NONE)
    return Cut(tuple(steps), step, by_launch=by_launch)


def process_of(pid: object) -> str:
    """Whose an event is in a trace that SGLang merged from several ranks: "[TP00]" of "[TP00] 4711"; otherwise ""."""
    return pid.rpartition(" ")[0] if isinstance(pid, str) else ""


def steps_of(activities: Activities, cut_: Cut) -> list[Step]:
    """The steps with what the device did in them; one that is cut by launch lies where its kernels lie."""
    order = np.argsort(cut_.step, kind="stable")
    bounds = np.searchsorted(cut_.step[order], np.arange(len(cut_.marks) + 1)).tolist()
    is_kernel = activities.is_kernel
    steps = []
    for mark, (begin, end) in zip(cut_.marks, pairwise(bounds), strict=True):
        inside = order[begin:end]
        inside = inside[is_kernel[inside]]
        start_ns, end_ns = activities.start_ns[inside], activities.end_ns[inside]
        device = activities.device[inside]
        busy_ns = sum(union_ns(start_ns[device == one], end_ns[device == one]) for one in np.unique(device))
        moved = cut_.by_launch and len(inside) > 0
        steps.append(
            Step(
                name=mark.name,
                phase=mark.said.phase,
                batch_size=mark.said.batch_size,
                start_ns=int(start_ns.min()) if moved else mark.start_ns,
                end_ns=int(end_ns.max()) if moved else mark.end_ns,
                kernel_ns=int((end_ns - start_ns).sum()),
                busy_ns=busy_ns,
            )
        )
    return steps


def _joined(marks: list[Mark]) -> list[Mark]:
    """One mark a step, in order of start: what one annotation left on several streams belongs together."""
    joined: list[Mark] = []
    last: dict[tuple[str, str, int], int] = {}
    for mark in sorted(marks, key=lambda one: (one.start_ns, -one.end_ns)):
        key = (mark.process, mark.name, mark.number)
        at = last.get(key)
        if at is not None and (mark.number != NONE or mark.start_ns < joined[at].end_ns):
            joined[at] = replace(joined[at], end_ns=max(joined[at].end_ns, mark.end_ns))
        else:
            last[key] = len(joined)
            joined.append(mark)
    return joined


def _outer(marks: list[Mark]) -> list[Mark]:
    """The marks, in order of start, that lie in no other one of their process."""
    outer = []
    reach_ns: dict[str, int] = {}
    for mark in marks:
        if mark.end_ns > reach_ns.get(mark.process, mark.start_ns - 1):
            outer.append(mark)
            reach_ns[mark.process] = mark.end_ns
    return outer
