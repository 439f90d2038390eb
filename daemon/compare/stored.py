"""Two stretches of stored time side by side: of one server or of two, of two runs, before and after a regression."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Engine, select

from cyclewatch.collectors.records import STAGES
from cyclewatch.collectors.suspicion_records import SuspicionRow
from cyclewatch.daemon.compare.comparison import NO_COMMON_LOAD, Comparison, CyclePair, Cycles, Subject, growth, merged
from cyclewatch.daemon.compare.profiles import kernel_sentences
from cyclewatch.daemon.compare.sentences import bound_sentence, cause_sentences, slower_sentence, split_sentence
from cyclewatch.daemon.compare.sources import SourceError, TimeSource
from cyclewatch.daemon.compare.stored_cycles import Cell, StoredCycles, stored_cycles
from cyclewatch.daemon.printable import printable, shown
from cyclewatch.daemon.store.evidence import evidence_between
from cyclewatch.daemon.store.models import RunRow, WindowRow
from cyclewatch.daemon.store.run_rows import run_of
from cyclewatch.daemon.store.stretches import Stretch, ranks_in
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
class _Side:
    """One stretch, and the runs of one server in it."""

    source: TimeSource
    stretch: Stretch
    runs: Sequence[Run]


def compare_times(engine: Engine, before: TimeSource, after: TimeSource, wanted: Wanted, served: Served) -> Comparison:
    """What the store has of two stretches of time.

    Raises:
        SourceError: nothing is stored of one of them, or it must be said of which server, rank or phase.
        SQLAlchemyError: the database does not answer.
    """
    with engine.connect() as connection:
        old, new = _side(connection, before, wanted.target), _side(connection, after, wanted.target)
        rank = _chosen("rank", wanted.rank, *(ranks_in(connection, side.stretch) for side in (old, new)))
        of_old, of_new = (stored_cycles(connection, side.stretch, rank) for side in (old, new))
        pairs = _pairs(of_old, of_new)
        in_both = [pair.name for pair in pairs if pair.before and pair.after]
        phase = _chosen("phase", wanted.phase or next(iter(in_both), None), of_old.cells, of_new.cells)
        evidence = evidence_between(connection, rank, phase, old.stretch, new.stretch)
    kernels = evidence.kernels
    divided = split_of(evidence)
    parts = divided.parts
    bound, unknown = _bound(evidence, parts, old.runs[-1], new.runs[-1], served)
    reasons = _differences(old.runs, new.runs)
    difference = level_difference(*(_by_step(one.cells[phase]) for one in (of_old, of_new)))
    is_told = not reasons and (difference is None or difference.is_sure)
    found = causes(evidence, parts) if is_told else ()
    slower = growth(parts)
    return Comparison(
        before=_subject(old, rank, of_old),
        after=_subject(new, rank, of_new),
        comparable=not reasons,
        warnings=(
            *reasons,
            *(() if parts else (NO_COMMON_LOAD,)),
            *((f"of the kernel profiles: {text}" for text in kernels.reasons) if kernels else ()),
            *unknown,
            *_coarse(old, of_old),
            *_coarse(new, of_new),
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
        suspicions=tuple(_suspicions(of_old.cells[phase], of_new.cells[phase], evidence, rank)),
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
    """A stretch of time of the one server that was running then, or the one that was named."""
    between = WindowRow.start_ns >= source.from_ns, WindowRow.start_ns < source.to_ns
    query = select(RunRow.__table__).where(RunRow.id.in_(select(WindowRow.run_id).where(*between).distinct()))
    if source.run is not None:
        query = query.where(RunRow.key == source.run.key)
    runs = [run_of(row) for row in connection.execute(query.order_by(RunRow.started_at_ns))]
    targets = sorted({run.target for run in runs})
    if not runs:
        raise SourceError(
            f"{source.label}: no cycles are stored of that time: see `cyclewatch db stats`; what is old is kept by the "
            "hour, so give whole hours"
        )
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
    return _Side(source, stretch, runs)


def _by_step(cells: Iterable[Cell]) -> list[list[Cell]]:
    steps: dict[int, list[Cell]] = defaultdict(list)
    for cell in cells:
        steps[cell.start_ns].append(cell)
    return list(steps.values())


def _coarse(side: _Side, cycles: StoredCycles) -> tuple[str, ...]:
    """Says that a stretch lies so far back that its windows have become minutes or hours."""
    if not cycles.is_coarse:
        return ()
    seen = "what was shorter is not seen, and the ends are as coarse"
    return (f"{side.source.label}: its windows are kept as {cycles}: {seen}",)


def _chosen(what: str, wanted: str | None, old: Collection[str], new: Collection[str]) -> str:
    """The rank or phase that is wanted, or the first of those on both sides."""
    both = sorted(set(old) & set(new))
    if wanted in both or (wanted is None and both):
        return wanted or both[0]
    if wanted is None:
        raise SourceError(f"the two stretches have no {what} in common: compare others")
    listed = ", ".join(printable(name, 60) for name in both) or "none"
    raise SourceError(f"--{what} {shown(wanted)}: not on both sides; what both have: {listed}")


def _pairs(old: StoredCycles, new: StoredCycles) -> tuple[CyclePair, ...]:
    """The cycles of each phase; the phase that took most of the time first."""
    pairs = [
        CyclePair(phase, _merged(old.cells.get(phase, ())), _merged(new.cells.get(phase, ())))
        for phase in {*old.cells, *new.cells}
    ]
    return tuple(sorted(pairs, key=lambda pair: (-pair.common_us, pair.name)))


def _merged(cells: Iterable[Cell]) -> Cycles | None:
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


def _suspicions(old: Iterable[Cell], new: Iterable[Cell], evidence: Evidence, rank: str) -> Iterable[SuspicionRow]:
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


def _shares(cells: Iterable[Cell]) -> Floats:
    """Share of each stage in the cycle time in percent, by step of time, shape (n, len(STAGES))."""
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


def _subject(side: _Side, rank: str, cycles: StoredCycles) -> Subject:
    run = side.runs[-1]
    facts = {
        "server": side.stretch.target,
        "rank": rank,
        "SGLang": run.version,
        "model": run.model,
        "hardware": _hardware(run),
        "configuration": run.fingerprint,
        "windows": str(cycles),
    }
    return Subject(side.source.label, "time", {name: printable(text, 200) for name, text in facts.items() if text})
