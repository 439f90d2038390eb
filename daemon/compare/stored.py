"""Two stretches of stored time side by side: of one server or of two, of two runs, before and after a regression."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Engine, select

from cyclewatch.collectors.records import STAGES
from cyclewatch.collectors.suspicion_records import SuspicionRow
from cyclewatch.daemon.compare.comparison import NO_COMMON_LOAD, Comparison, CyclePair, Cycles, Subject, growth, merged
from cyclewatch.daemon.compare.profiles import kernel_sentences
from cyclewatch.daemon.compare.sentences import bound_sentence, cause_sentences, slower_sentence, split_sentence
from cyclewatch.daemon.compare.sources import SourceError, TimeSource
from cyclewatch.daemon.printable import printable, shown
from cyclewatch.daemon.store.evidence import evidence_between
from cyclewatch.daemon.store.models import RunRow, WindowRow
from cyclewatch.daemon.store.run_rows import run_of
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.attribution import (
    BoundSplit,
    Event,
    Evidence,
    SplitPart,
    Trace,
    bound_split,
    causes,
    split_of,
)
from cyclewatch.detectors.load.speed_of_light import ServedModel
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.level_difference import level_difference
from cyclewatch.detectors.suspicion.scores import suspicion_row

Served = Callable[[Run], ServedModel]
"""What a run serves; raises ValueError or OSError, which say why that cannot be told."""


@dataclass(frozen=True)
class Wanted:
    """What is to be compared in a stretch of time; None for what there is, or most of."""

    target: str | None = None
    rank: str | None = None
    phase: str | None = None


@dataclass(frozen=True)
class _Cell:
    """The cycles of one load bucket in one window: how many, mean and stages in nanoseconds, and their sketch."""

    start_ns: int
    bucket: int
    count: int
    mean_ns: float
    stages_ns: Floats
    sketch: bytes | None


@dataclass(frozen=True)
class _Side:
    """One stretch: its cells by rank and phase, and the runs in it."""

    source: TimeSource
    stretch: Stretch
    cells: Mapping[tuple[str, str], Sequence[_Cell]]
    runs: Sequence[Run]


def compare_times(engine: Engine, before: TimeSource, after: TimeSource, wanted: Wanted, served: Served) -> Comparison:
    """What the store has of two stretches of time.

    Raises:
        SourceError: nothing is stored of one of them, or it must be said of which server, rank or phase.
        SQLAlchemyError: the database does not answer.
    """
    with engine.connect() as connection:
        old, new = _side(connection, before, wanted.target), _side(connection, after, wanted.target)
        rank = _chosen("rank", wanted.rank, [name for name, _ in old.cells], [name for name, _ in new.cells])
        phases = [{phase for of, phase in side.cells if of == rank} for side in (old, new)]
        pairs = _pairs(old, new, rank)
        in_both = [pair.name for pair in pairs if pair.before and pair.after]
        phase = wanted.phase or next(iter(in_both), None)
        phase = _chosen("phase", phase, *phases)
        evidence = evidence_between(connection, rank, phase, old.stretch, new.stretch)
    kernels = evidence.kernels
    divided = split_of(evidence)
    parts = divided.parts
    bound, unknown = _bound(evidence, parts, old.runs[-1], new.runs[-1], served)
    reasons = _differences(old.runs, new.runs)
    difference = level_difference(*(_by_window(side.cells[rank, phase]) for side in (old, new)))
    is_told = not reasons and (difference is None or difference.is_sure)
    found = causes(evidence, parts) if is_told else ()
    slower = growth(parts)
    return Comparison(
        before=_subject(old, rank),
        after=_subject(new, rank),
        comparable=not reasons,
        warnings=(
            *reasons,
            *(() if parts else (NO_COMMON_LOAD,)),
            *((f"of the kernel profiles: {text}" for text in kernels.reasons) if kernels else ()),
            *unknown,
        ),
        findings=(
            *slower_sentence(
                f"{phase} cycles of {rank} at the same load", slower, claims=not reasons, difference=difference
            ),
            *cause_sentences(found),
            *(split_sentence(parts) if is_told else ()),
            *bound_sentence(bound),
            *(kernel_sentences(kernels) if kernels else ()),
            *_events(evidence.events),
        ),
        slower=slower,
        ci=difference.ci if difference else None,
        cycles=pairs,
        split_of=f"the mean {phase} cycle of {rank}, at the same load, from {divided.made_of}",
        split=parts,
        bound=bound,
        kernels=kernels,
        suspicions=tuple(_suspicions(old.cells[rank, phase], new.cells[rank, phase], evidence, rank)),
        causes=found,
    )


def _bound(
    evidence: Evidence, parts: Sequence[SplitPart], old: Run, new: Run, served: Served
) -> tuple[BoundSplit | None, tuple[str, ...]]:
    """The bound of the mean cycle; where it is not known, a sentence that says why, if there could be one."""
    if evidence.synchronous:
        return None, ()
    try:
        return bound_split(evidence, parts, served(old), served(new)), ()
    except (OSError, ValueError) as error:
        return None, (f"the least that a step takes is not known: {printable(str(error), 300)}",)


def _side(connection: Connection, source: TimeSource, target: str | None) -> _Side:
    """The cells of a stretch of time, of the one server that was running then, or the one that was named."""
    between = WindowRow.start_ns >= source.from_ns, WindowRow.start_ns < source.to_ns
    query = select(RunRow.__table__).where(RunRow.id.in_(select(WindowRow.run_id).where(*between).distinct()))
    if source.run is not None:
        query = query.where(RunRow.key == source.run.key)
    runs = [run_of(row) for row in connection.execute(query.order_by(RunRow.started_at_ns))]
    targets = sorted({run.target for run in runs})
    if not runs:
        raise SourceError(f"{source.label}: no cycles are stored of that time: see `cyclewatch status`")
    if target is None and len(targets) > 1:
        names = ", ".join(printable(name, 60) for name in targets[:5])
        raise SourceError(f"{source.label}: {len(targets)} servers ran then ({names}): choose one with --target")
    chosen = target or targets[0]
    if chosen not in targets:
        raise SourceError(
            f"{source.label}: {shown(chosen)} has no cycles then; servers that have: {', '.join(targets)}"
        )
    runs = [run for run in runs if run.target == chosen]
    nodes = sorted({run.node for run in runs})
    if len(nodes) > 1:
        raise SourceError(
            f"{source.label}: {shown(chosen)} ran on {len(nodes)} nodes then ({', '.join(nodes[:5])}): give run:KEY"
        )
    stretch = Stretch(chosen, source.from_ns, source.to_ns, node=nodes[0])
    return _Side(source, stretch, _cells(connection, stretch), runs)


def _cells(connection: Connection, stretch: Stretch) -> dict[tuple[str, str], list[_Cell]]:
    """The cells of a stretch by rank and phase, in order of time."""
    query = (
        select(
            WindowRow.rank,
            WindowRow.phase,
            WindowRow.start_ns,
            WindowRow.bucket,
            WindowRow.count,
            WindowRow.mean_ns,
            WindowRow.sketch,
            *(getattr(WindowRow, f"{stage}_ns") for stage in STAGES),
        )
        .join(RunRow, RunRow.id == WindowRow.run_id)
        .where(*stretch.runs(), WindowRow.start_ns >= stretch.from_ns, WindowRow.start_ns < stretch.to_ns)
        .order_by(WindowRow.start_ns)
    )
    cells: dict[tuple[str, str], list[_Cell]] = defaultdict(list)
    for rank, phase, start_ns, bucket, count, mean_ns, sketch, *stages_ns in connection.execute(query):
        cells[rank, phase].append(_Cell(start_ns, bucket, count, mean_ns, np.array(stages_ns, np.float64), sketch))
    return cells


def _by_window(cells: Iterable[_Cell]) -> list[list[_Cell]]:
    windows: dict[int, list[_Cell]] = defaultdict(list)
    for cell in cells:
        windows[cell.start_ns].append(cell)
    return list(windows.values())


def _chosen(what: str, wanted: str | None, old: Collection[str], new: Collection[str]) -> str:
    """The rank or phase that is wanted, or the first of those on both sides."""
    both = sorted(set(old) & set(new))
    if wanted in both or (wanted is None and both):
        return wanted or both[0]
    if wanted is None:
        raise SourceError(f"the two stretches have no {what} in common: compare others")
    listed = ", ".join(printable(name, 60) for name in both) or "none"
    raise SourceError(f"--{what} {shown(wanted)}: not on both sides; what both have: {listed}")


def _pairs(old: _Side, new: _Side, rank: str) -> tuple[CyclePair, ...]:
    """The cycles of each phase of a rank; the phase that took most of the time first."""
    pairs = []
    for phase in {phase for of, phase in (*old.cells, *new.cells) if of == rank}:
        before, after = (_merged(side.cells.get((rank, phase), ())) for side in (old, new))
        pairs.append(CyclePair(phase, before, after))
    return tuple(sorted(pairs, key=lambda pair: (-pair.common_us, pair.name)))


def _merged(cells: Iterable[_Cell]) -> Cycles | None:
    """The cycles of these cells; what releases before schema 0002 stored has no sketch."""
    return merged((cell.count, cell.mean_ns, cell.sketch) for cell in cells if cell.sketch)


def _differences(old: Sequence[Run], new: Sequence[Run]) -> tuple[str, ...]:
    """Why the two are no runs of the same thing, as sentences; none where they are."""
    reasons = []
    for what, of in (("model", lambda run: run.model), ("hardware", _hardware)):
        before, after = ({of(run) for run in runs} for runs in (old, new))
        if before and after and not before & after and "" not in before | after:
            names = [", ".join(printable(name, 200) for name in sorted(side)) for side in (before, after)]
            reasons.append(f"other {what}: {names[0]} before, {names[1]} after")
    return tuple(reasons)


def _hardware(run: Run) -> str:
    """What a run's cycles ran on: the node's GPUs by model, or its CPU; "" where that is not known."""
    cpu = run.environment.get("cpu_model", "")
    if run.arguments.get("device") == "cpu":
        return cpu
    gpus = {value for subject, value in run.environment.items() if re.fullmatch(r"gpu\d+\.model", subject)}
    return ", ".join(sorted(gpus)) or cpu


def _events(events: Iterable[Event]) -> tuple[str, ...]:
    return tuple(f"between them: {printable(event.text, 300)}" for event in list(events)[:5])


def _suspicions(old: Iterable[_Cell], new: Iterable[_Cell], evidence: Evidence, rank: str) -> Iterable[SuspicionRow]:
    """Stages of the cycle beside every reading, the highest score first."""
    before, after = _shares(old), _shares(new)
    rows = [
        suspicion_row(
            stage, trace.name, _device(trace, rank), (before[:, place], after[:, place]), _sides(trace, evidence)
        )
        for trace in evidence.traces
        for place, stage in enumerate(STAGES)
    ]
    return sorted((row for row in rows if math.isfinite(row.score)), key=lambda row: -row.score)


def _shares(cells: Iterable[_Cell]) -> Floats:
    """Share of each stage in the cycle time in percent, by window, shape (n, len(STAGES))."""
    sums: dict[int, Floats] = defaultdict(lambda: np.zeros(len(STAGES)))
    for cell in cells:
        sums[cell.start_ns] += cell.count * cell.stages_ns
    times = np.array(list(sums.values()))
    wholes = times.sum(axis=1, keepdims=True)
    shares: Floats = 100 * times / np.where(wholes > 0, wholes, np.nan)
    return shares


def _sides(trace: Trace, evidence: Evidence) -> tuple[Floats, Floats]:
    late = trace.at_ns >= evidence.started_at_ns
    return trace.values[~late], trace.values[late]


def _device(trace: Trace, rank: str) -> str:
    """What a reading is of, in words: its labels, or the rank."""
    return " ".join(f"{value}" for key, value in trace.labels.items() if value) or rank


def _subject(side: _Side, rank: str) -> Subject:
    run = side.runs[-1]
    facts = {
        "server": side.stretch.target,
        "rank": rank,
        "SGLang": run.version,
        "model": run.model,
        "hardware": _hardware(run),
        "configuration": run.fingerprint,
        "windows": f"{len({cell.start_ns for cells in side.cells.values() for cell in cells}):,}",
    }
    return Subject(side.source.label, "time", {name: printable(text, 200) for name, text in facts.items() if text})
