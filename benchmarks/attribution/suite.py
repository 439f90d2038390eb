"""Cases by cause and seed: what is named first, with what share, and whether that is true."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pool

from attribution.naive import most_moved
from cyclewatch.detectors.attribution import Cause, causes, split
from cyclewatch.detectors.simulation.faults import FAULTS, PAIRS, Case, Part, Truth, draw, draw_hidden, draw_two

ONE, HIDDEN, TWO = "one cause", "hidden", "two causes"

NEAR = 1 / 3
"""How far a share may be from the true one, in relation to it; of two causes, from what it is in either order."""
AS_LARGE = 0.4
"""Of two causes the second may be named first if its true share is at least this, or if more would go with it."""
_SYMPTOMS = {"unexplained", "gpu_idle", "communication", "gpu_utilization"}
"""What may be said where the cause cannot be seen: that it is not known, or where the time went; so may `stage_*`."""


@dataclass(frozen=True)
class Task:
    """One case to draw: its set, its fault or faults, and its seed."""

    kind: str
    faults: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """The faults in words."""
        return " + ".join(self.faults)

    def case(self) -> Case:
        """The case itself."""
        if self.kind == TWO:
            return draw_two((self.faults[0], self.faults[1]), self.seed)
        return (draw_hidden if self.kind == HIDDEN else draw)(self.faults[0], self.seed)


@dataclass(frozen=True)
class Answer:
    """What was said in one case.

    `near` is None where no share was given or asked for; `both` tells that of two causes each is among those named.
    """

    task: Task
    first: str
    right: bool
    near: bool | None
    both: bool
    naive: str
    naive_right: bool
    slowdown: float
    said: tuple[str, ...]


def tasks(seeds: Iterable[int], only: Sequence[str] = ()) -> Iterator[Task]:
    """Every cause alone, every cause hidden that can be, every pair; `only` those that have one of these faults."""
    every: list[tuple[str, tuple[str, ...]]] = [(ONE, (kind,)) for kind in FAULTS]
    every += [(HIDDEN, (kind,)) for kind, fault in FAULTS.items() if fault.can_be_hidden]
    every += [(TWO, kinds) for kinds in PAIRS]
    numbers = tuple(seeds)
    for kind, faults in every:
        if not only or set(only) & set(faults):
            yield from (Task(kind, faults, seed) for seed in numbers)


def answer(task: Task) -> Answer:
    """Draw a case, ask for its causes, and hold them against the truth."""
    case = task.case()
    evidence, truth = case.evidence, case.truth
    named = causes(evidence, split(evidence.before, evidence.after))
    naive = most_moved(evidence)
    first = named[0] if named else None
    right = first is not None and is_right(first, truth)
    return Answer(
        task=task,
        first=_said(first) if first else "nothing",
        right=right,
        near=_near(first, truth) if first and right else None,
        both=all(any(cause.kind in part.right for cause in named) for part in truth.parts),
        naive=naive,
        naive_right=not truth.hidden and naive in truth.parts[0].right,
        slowdown=truth.slowdown,
        said=tuple(map(_said, named)),
    )


def answers(wanted: Iterable[Task], workers: int) -> Iterator[Answer]:
    """The answers in order."""
    if workers == 1:
        yield from map(answer, wanted)
        return
    with Pool(workers) as pool:
        yield from pool.imap(answer, wanted, chunksize=4)


def is_right(first: Cause, truth: Truth) -> bool:
    """Whether what is named first is true: the cause and, where it names one, the device; of two the larger."""
    if truth.hidden:
        return first.kind in _SYMPTOMS or first.kind.startswith("stage_")
    most = max(truth.parts, key=lambda part: part.removed)
    meant = [part for part in truth.parts if part in {truth.parts[0], most} or part.share >= AS_LARGE]
    return any(first.kind in part.right and _fits(first, part) for part in meant)


def _fits(cause: Cause, part: Part) -> bool:
    return not (part.device and cause.device) or cause.device == part.device


def _near(first: Cause, truth: Truth) -> bool | None:
    if truth.hidden or first.share is None:
        return None
    part = next(part for part in truth.parts if first.kind in part.right)
    low, high = sorted((part.alone, part.removed))
    return (1 - NEAR) * low <= first.share <= (1 + NEAR) * high


def _said(cause: Cause) -> str:
    share = "" if cause.share is None else f" {cause.share:.0%}"
    return f"{cause.kind}{f'({cause.device})' if cause.device else ''}{share}"
