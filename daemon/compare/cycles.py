"""Two recordings of cycles, or rings, side by side."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from cyclewatch.collectors.records import STAGES, RingIdentity
from cyclewatch.collectors.suspicion_records import SuspicionRow
from cyclewatch.daemon.compare.comparison import NO_COMMON_LOAD, Comparison, CyclePair, Cycles, Subject, growth, merged
from cyclewatch.daemon.compare.sentences import cause_sentences, slower_sentence, split_sentence
from cyclewatch.daemon.compare.sources import CyclesSource, SourceError
from cyclewatch.daemon.printable import printable, shown
from cyclewatch.daemon.runs import RunRegistry, changes_between
from cyclewatch.detectors.attribution import Event, Evidence, StageMeans, Trace, causes, split
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.statistics.level_difference import level_difference
from cyclewatch.detectors.suspicion.scores import suspicion_row
from cyclewatch.detectors.windows import CellWindow, Window, WindowCutter

WINDOW_NS = 5 * 10**9
STARTED_AT_NS = 10**18
"""Where the second of two recordings begins: each has a clock of its own."""

_METRICS = ("batch_size", "new_tokens", "kv_tokens", "queue_length", "on_cpu_ratio")


def compare_cycles(before: CyclesSource, after: CyclesSource, phase: str | None) -> Comparison:
    """The cycles of two recordings by phase, and of one phase the split, the causes and the suspicion table.

    Raises:
        SourceError: one of them has no cycles that could be compared, or none of `phase`.
    """
    old, new = _windows(before), _windows(after)
    pairs = _pairs(old, new)
    chosen = phase or _main_phase(pairs, before, after)
    if chosen not in {pair.name for pair in pairs if pair.before and pair.after}:
        both = ", ".join(pair.name for pair in pairs if pair.before and pair.after) or "none"
        raise SourceError(f"--phase {shown(chosen)}: not in both files; phases that both have: {both}")
    evidence = _evidence(before, after, old, new, chosen)
    parts = split(evidence.before, evidence.after)
    reasons = _differences(before.identity, after.identity)
    difference = level_difference(*(_by_window(windows, chosen) for windows in (old, new)))
    is_told = not reasons and (difference is None or difference.is_sure)
    found = causes(evidence, parts) if is_told else ()
    slower = growth(parts)
    what = f"{chosen} cycles at the same load"
    findings = (
        *slower_sentence(what, slower, claims=not reasons, difference=difference),
        *cause_sentences(found),
        *(split_sentence(parts) if is_told else ()),
    )
    return Comparison(
        before=_subject(before),
        after=_subject(after),
        comparable=not reasons,
        warnings=reasons if parts else (*reasons, NO_COMMON_LOAD),
        findings=findings,
        slower=slower,
        ci=difference.ci if difference else None,
        cycles=pairs,
        split_of=f"the mean {chosen} cycle, at the same load, by stage",
        split=parts,
        suspicions=_suspicions(old, new, chosen, after.identity.rank),
        causes=found,
    )


def _windows(source: CyclesSource) -> list[Window]:
    cutter = WindowCutter(WINDOW_NS)
    cutter.add(source.records)
    return list(cutter.close_until(2**64))


def _cells(windows: Sequence[Window]) -> dict[str, list[CellWindow]]:
    found: dict[str, list[CellWindow]] = defaultdict(list)
    for window in windows:
        for cell in window.cells:
            found[cell.phase.value].append(cell)
    return found


def _by_window(windows: Sequence[Window], phase: str) -> list[list[CellWindow]]:
    return [[cell for cell in window.cells if cell.phase.value == phase] for window in windows]


def _pairs(old: Sequence[Window], new: Sequence[Window]) -> tuple[CyclePair, ...]:
    before, after = _cells(old), _cells(new)
    pairs = [CyclePair(name, _merged(before.get(name, [])), _merged(after.get(name, []))) for name in before | after]
    return tuple(sorted(pairs, key=lambda pair: (-pair.common_us, pair.name)))


def _merged(cells: Sequence[CellWindow]) -> Cycles | None:
    return merged((cell.count, cell.mean_ns, cell.sketch) for cell in cells if cell.sketch)


def _main_phase(pairs: Sequence[CyclePair], before: CyclesSource, after: CyclesSource) -> str:
    for pair in pairs:
        if pair.before and pair.after:
            return pair.name
    empty = next((one for one in (before, after) if not len(one.records)), None)
    if empty:
        raise SourceError(f"{empty.label}: holds no cycles: was the server idle?")
    raise SourceError(f"{before.label} and {after.label} have no phase in common: give cycles of the same kind of work")


def _evidence(
    before: CyclesSource, after: CyclesSource, old: Sequence[Window], new: Sequence[Window], phase: str
) -> Evidence:
    # By their places, not by their times: a file may hold any times.
    moments = STARTED_AT_NS + WINDOW_NS * np.arange(-len(old), len(new), dtype=np.int64)
    every = [*old, *new]
    labels = {"rank": after.identity.rank}
    traces = [
        Trace(name, labels, moments, np.array(values, np.float64) / WINDOW_NS)
        for name, values in (
            ("cycles.stalled_ratio", [window.stalled_ns for window in every]),
            ("cycles.collected_ratio", [window.collected_ns for window in every]),
        )
    ]
    return Evidence(
        started_at_ns=STARTED_AT_NS,
        rank=after.identity.rank,
        before=_stage_means(_cells(old)[phase]),
        after=_stage_means(_cells(new)[phase]),
        synchronous=after.identity.synchronous,
        traces=traces,
        events=_events(before.identity, after.identity),
    )


def _stage_means(cells: Sequence[CellWindow]) -> list[StageMeans]:
    return [StageMeans(cell.bucket, cell.count, cell.stages_ns, cell.on_cpu_ratio) for cell in cells]


def _events(before: RingIdentity, after: RingIdentity) -> list[Event]:
    """What differs between the two servers' configurations."""
    runs = [RunRegistry("", "", ()).of_ring(identity, "")[0] for identity in (before, after)]
    changes = [one for one in changes_between(*runs) if one.kind != "restart"]
    return [Event(STARTED_AT_NS, one.kind, one.subject, one.before, one.after) for one in changes]


def _differences(before: RingIdentity, after: RingIdentity) -> tuple[str, ...]:
    """Why the two are no runs of the same thing, as sentences; none where they are."""
    reasons = []
    if before.synchronous != after.synchronous:
        reasons.append("one ran on a CPU and the other on a GPU: their cycles are not the same thing")
    models = [str(one.server.get("model_path") or "") for one in (before, after)]
    if models[0] != models[1]:
        reasons.append(f"other models: {shown(models[0])} before, {shown(models[1])} after")
    return tuple(reasons)


def _suspicions(old: Sequence[Window], new: Sequence[Window], phase: str, rank: str) -> tuple[SuspicionRow, ...]:
    """Stages beside what is known of the load: a sample is a window."""
    before, after = _samples(old, phase), _samples(new, phase)
    rows = [
        suspicion_row(stage, metric, rank, (before[stage], after[stage]), (before[metric], after[metric]))
        for stage in STAGES
        for metric in _METRICS
    ]
    return tuple(sorted(rows, key=lambda row: -row.score if math.isfinite(row.score) else 1.0))


def _samples(windows: Sequence[Window], phase: str) -> Mapping[str, Floats]:
    """By window: the share of each stage in percent of the cycle time, and the mean of each metric."""
    found: dict[str, list[float]] = defaultdict(list)
    for window in windows:
        cells = [cell for cell in window.cells if cell.phase.value == phase]
        if not cells:
            continue
        counts = np.array([cell.count for cell in cells], np.float64)
        stages = counts @ np.array([cell.stages_ns for cell in cells])
        for stage, time_ns in zip(STAGES, stages, strict=True):
            found[stage].append(float(time_ns / stages.sum() * 100) if stages.sum() else math.nan)
        for metric in _METRICS:
            found[metric].append(float(np.average([getattr(cell, metric) for cell in cells], weights=counts)))
    return {name: np.array(values) for name, values in found.items()}


def _subject(source: CyclesSource) -> Subject:
    identity, records = source.identity, source.records
    length_s = (int(records["end_ns"].max()) - int(records["end_ns"].min())) / 1e9 if len(records) else 0.0
    facts = {
        "SGLang": identity.sglang_version,
        "model": str(identity.server.get("model_path") or ""),
        "rank": identity.rank,
        "records": f"{len(records):,} in {length_s:.0f} s",
    }
    return Subject(source.label, "cycles", {name: printable(text, 200) for name, text in facts.items() if text})
