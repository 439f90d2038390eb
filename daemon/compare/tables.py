"""A comparison as tables of text: what the terminal, Markdown and HTML show alike."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cyclewatch.collectors.suspicion_records import SuspicionRow
from cyclewatch.daemon.compare.comparison import Comparison, CyclePair, Cycles
from cyclewatch.daemon.compare.document import QUANTILES
from cyclewatch.daemon.compare.sentences import duration, subject_of
from cyclewatch.daemon.printable import printable
from cyclewatch.detectors.attribution import BoundSplit
from cyclewatch.detectors.kernels import classify
from cyclewatch.detectors.kernels.comparison import KernelChange, ProfileComparison, Use, Verdict
from cyclewatch.detectors.suspicion.shares import is_gpu

ROWS_MAX = 25
_UNCHANGED_MAX = 10
_NAME_CHARS = 80
_NONE = "-"


@dataclass(frozen=True)
class Table:
    """Rows of texts for people, not yet escaped for any markup. `names` are the columns that are not figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: frozenset[str]
    note: str = ""


def report_tables(comparison: Comparison) -> list[Table]:
    """The tables of a report in the order in which people read them."""
    tables = [subjects_table(comparison)]
    if comparison.causes:
        tables.append(causes_table(comparison))
    tables += [cycles_table(pair) for pair in comparison.cycles]
    if comparison.split:
        tables.append(split_table(comparison))
    if comparison.bound:
        tables.append(bound_table(comparison.bound))
    if comparison.kernels:
        tables += kernel_tables(comparison.kernels)
    if comparison.suspicions:
        tables.append(suspicions_table(comparison.suspicions))
    return tables


def subjects_table(comparison: Comparison) -> Table:
    """What is compared."""
    before, after = comparison.before, comparison.after
    names = dict.fromkeys((*before.facts, *after.facts))
    rows = [("what", before.label, after.label)]
    rows += [(name, before.facts.get(name, _NONE), after.facts.get(name, _NONE)) for name in names]
    return _table("What is compared", ("", "before", "after"), rows, {"", "before", "after"})


def cycles_table(pair: CyclePair) -> Table:
    """How many cycles of one kind of work there were, and how long they took."""
    rows = [("cycles", _count(pair.before), _count(pair.after), "")]
    for name in ("mean", *QUANTILES):
        before, after = _time(pair.before, name), _time(pair.after, name)
        change = after / before - 1 if pair.alike and before and after else None
        rows.append((name, _duration(before), _duration(after), _percent(change)))
    note = "" if pair.alike else "A cycle is not the same thing in both runs: no change is given."
    return _table(f"Cycles: {pair.name}", ("", "before", "after", "change"), rows, {""}, note)


def split_table(comparison: Comparison) -> Table:
    """Where the time goes; the last row is the whole."""
    rows = [(one.part, one.before_us, one.after_us) for one in comparison.split]
    rows.append(("whole", math.fsum(row[1] for row in rows), math.fsum(row[2] for row in rows)))
    total = rows[-1][2] - rows[-1][1]
    cells = [
        (
            printable(part, _NAME_CHARS),
            duration(before),
            duration(after),
            _signed(after - before),
            f"{round(100 * (after - before) / total)}%" if total else _NONE,
        )
        for part, before, after in rows
    ]
    columns = ("part", "before", "after", "change", "of the change")
    return _table("Where the time goes", columns, cells, {"part"}, f"Of {comparison.split_of}.")


def bound_table(bound: BoundSplit) -> Table:
    """What a step takes at least, and what is above that."""
    old, new = bound.before, bound.after
    times = [("at least", old.at_least_us, new.at_least_us), ("above it", old.above_us, new.above_us)]
    times += [(f"of that, {one.part}", one.before_us, one.after_us) for one in bound.above]
    rows = [(name, duration(before), duration(after), _signed(after - before)) for name, before, after in times]
    rows.append(("speed of light", f"{old.ratio:.1%}", f"{new.ratio:.1%}", ""))
    rows.append(("bound by", old.bound_by, new.bound_by, ""))
    rows.append(("GPU", old.gpu, new.gpu, ""))
    note = "The least is what the model's weights, KV cache and arithmetic take at the peaks of the GPU."
    return _table("Against the speed of light", ("", "before", "after", "change"), rows, {""}, note)


def causes_table(comparison: Comparison) -> Table:
    """Candidates for what is behind it, most likely first."""
    rows = [
        (
            str(place),
            subject_of(one),
            one.kind,
            _NONE if one.share is None else f"{one.share:.0%}",
            one.status.value,
            "; ".join(one.evidence),
        )
        for place, one in enumerate(comparison.causes, start=1)
    ]
    names = {"cause", "kind", "how it is known", "evidence"}
    return _table("Causes", ("", "cause", "kind", "share", "how it is known", "evidence"), rows, names)


def kernel_tables(kernels: ProfileComparison) -> Iterator[Table]:
    """Families, substitutions and kernels, each where there are any."""
    unit = f"Times are of one {kernels.unit.value}."
    families = [
        (
            one.family.value,
            duration(one.before_ns / 1e3),
            duration(one.after_ns / 1e3),
            _signed(one.delta_ns / 1e3),
            f"{one.before_share:.1%}",
            f"{one.after_share:.1%}",
        )
        for one in kernels.families
    ]
    columns = ("family", "before", "after", "change", "share before", "share after")
    if families:
        yield _table("Kernels by family", columns, families, {"family"}, unit)
    if kernels.substitutions:
        rows = [
            (
                one.operator or one.family.value,
                one.phase or _NONE,
                _listed(one.before),
                _listed(one.after),
                duration(one.before_ns / 1e3),
                duration(one.after_ns / 1e3),
            )
            for one in kernels.substitutions
        ]
        names = ("work", "phase", "kernels before", "kernels after")
        yield _table("Substitutions", (*names, "before", "after"), rows, names, "Other kernels do the same work.")
    if kernels.kernels:
        yield _kernels(kernels, unit)


def _kernels(kernels: ProfileComparison, unit: str) -> Table:
    changed = [one for one in kernels.kernels if one.verdict is not Verdict.SAME] or kernels.kernels[:_UNCHANGED_MAX]
    rows = [
        (
            printable(one.short, _NAME_CHARS),
            one.phase or _NONE,
            one.verdict.value.replace("_", " "),
            _calls(one.before),
            _calls(one.after),
            _call(one.before),
            _call(one.after),
            _percent(one.effect),
            _signed(one.delta_ns / 1e3),
            _p_value(one),
        )
        for one in changed[:ROWS_MAX]
    ]
    names = ("kernel", "phase", "verdict")
    figures = ("calls before", "calls after", "a call before", "a call after", "a call", "change", "p")
    rest = len(kernels.kernels) - len(rows)
    return _table("Kernels", (*names, *figures), rows, names, f"{unit}{_more(rest)}")


def suspicions_table(rows: Sequence[SuspicionRow]) -> Table:
    """What changed together, the highest score first: symptoms and causes alike."""
    cells = [
        (
            _function(row),
            printable(row.metric, _NAME_CHARS),
            printable(row.device, _NAME_CHARS),
            _figure(row.score),
            *(_figure(value) for value in (row.beta.before, row.beta.after, row.beta.delta, row.beta.z)),
            *(_figure(value) for value in (row.mu.before, row.mu.after, row.log_z, row.mu.p_value)),
        )
        for row in rows[:ROWS_MAX]
    ]
    names = ("function", "metric", "device")
    figures = ("score", "β before, %", "β after, %", "Δβ", "z(β)", "μ before", "μ after", "z(log μ)", "p(μ)")
    note = (
        "β is the share of the cycle time, μ the mean of the metric; score = |Δβ| (|z(β)| + |z(log μ)|). It ranks what "
        f"changed, symptoms and causes alike; the causes above do not follow it.{_more(len(rows) - len(cells))}"
    )
    return _table("Suspicion table", (*names, *figures), cells, names, note)


def _function(row: SuspicionRow) -> str:
    name = classify(row.function).short if is_gpu(row.device) else row.function
    return printable(name, _NAME_CHARS)


def _table(
    title: str, columns: tuple[str, ...], rows: Iterable[Sequence[str]], names: Iterable[str], note: str = ""
) -> Table:
    return Table(title, columns, tuple(tuple(row) for row in rows), frozenset(names), note)


def _more(count: int) -> str:
    return f" {count:,} more rows are in --json." if count > 0 else ""


def _count(cycles: Cycles | None) -> str:
    return _NONE if cycles is None else f"{cycles.count:,}"


def _time(cycles: Cycles | None, name: str) -> float | None:
    if cycles is None:
        return None
    return cycles.mean_us if name == "mean" else float(cycles.quantiles_us((QUANTILES[name],))[0])


def _duration(time_us: float | None) -> str:
    return _NONE if time_us is None or not math.isfinite(time_us) else duration(time_us)


def _signed(time_us: float) -> str:
    return f"{'-' if time_us < 0 else '+'}{duration(abs(time_us))}"


def _percent(change: float | None) -> str:
    return _NONE if change is None or not math.isfinite(change) else f"{change:+.1%}"


def _figure(value: float) -> str:
    return f"{value:,.4g}" if math.isfinite(value) else _NONE


def _calls(use: Use | None) -> str:
    return _NONE if use is None else _figure(use.calls)


def _call(use: Use | None) -> str:
    return _NONE if use is None else duration(use.mean_ns / 1e3)


def _p_value(one: KernelChange) -> str:
    return _NONE if one.p_value is None else f"{one.p_value:.2g}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(printable(name, _NAME_CHARS) for name in names)
