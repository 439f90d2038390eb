"""`cyclewatch kernels`: what is in the kernel profiles of files."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cyclewatch.daemon.cli.common import EXIT_ERROR, JsonOption, console

if TYPE_CHECKING:
    from rich.console import Console

    from cyclewatch.collectors.profiles.records import Profile

_KERNELS_SHOWN = 25
_OPERATORS_SHOWN = 10
_STEPS_SHOWN = 12
_NAME_WIDTH = 60
_BAR_WIDTH = 30


def kernels(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="A trace of PyTorch, a table of nsys or torch, JSON of rocprofv3."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the kernels of profiles, by family, operator and step; exit code 1 if a file cannot be read.

    The format is found by the content; gzip and zstd are unpacked. Several files are taken for ranks of one job.
    """
    from cyclewatch.collectors.profiles.read import read_profile
    from cyclewatch.collectors.profiles.records import ProfileError
    from cyclewatch.daemon.reports.kernels import kernels_document

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal cannot show
    read: list[tuple[Path, Profile]] = []
    for file in files:
        try:
            profile = read_profile(file)
        except ProfileError as error:
            typer.echo(f"cyclewatch: {error}", err=True)
            continue
        read.append((file, profile))
        if not as_json:
            _print(console(), file, profile)
        elif len(files) > 1:
            typer.echo(json.dumps({"file": str(file), **kernels_document(profile)}, allow_nan=False))
        else:
            typer.echo(json.dumps(kernels_document(profile), indent=2, allow_nan=False))
    if len(read) > 1 and not as_json:
        _print_ranks(console(), read)
    if len(read) < len(files):
        raise typer.Exit(EXIT_ERROR)


def _print(screen: "Console", file: Path, profile: "Profile") -> None:
    from cyclewatch.daemon.printable import printable

    place = [profile.format.value]
    place += [profile.device] if profile.device else []
    if profile.rank is not None:
        place.append(f"rank {profile.rank}" + (f" of {profile.world_size}" if profile.world_size else ""))
    screen.print(printable(f"{file}: {', '.join(place)}"), style="bold")
    screen.print(_totals_sentence(profile))
    for warning in profile.warnings:
        screen.print(f"note: {printable(warning)}", style="yellow")
    _print_families(screen, profile)
    _print_steps(screen, profile)
    _print_kernels(screen, profile)
    _print_operators(screen, profile)
    screen.print()


def _totals_sentence(profile: "Profile") -> str:
    totals = profile.totals
    if any(use.kind.value == "cpu_op" for use in profile.kernels):
        return f"operators of the CPU by self time, {_ms(sum(use.total_ns for use in profile.kernels))} together"
    parts = [f"{totals.calls:,} kernels of {totals.distinct:,} names, {_ms(totals.kernel_ns)}"]
    if totals.busy_ns and totals.span_ns:
        parts.append(f"GPU busy {_ms(totals.busy_ns)} of {_ms(totals.span_ns)} ({totals.busy_ns / totals.span_ns:.1%})")
    idle = [
        f"{_ms(time_ns)} {text}"
        for time_ns, text in (
            (totals.waiting_for_host_ns, "waiting for the host"),
            (totals.between_kernels_ns, "between kernels"),
            (totals.copying_ns, "copying"),
        )
        if time_ns
    ]
    if totals.idle_ns:
        parts.append(f"idle {_ms(totals.idle_ns)}" + (f", of it {', '.join(idle)}" if idle else ""))
    return "; ".join(parts)


def _print_families(screen: "Console", profile: "Profile") -> None:
    from rich.table import Table

    from cyclewatch.daemon.reports.kernels import families

    table = Table(title="by family", title_justify="left")
    for column in ("family", "", "share", "time", "calls", "names"):
        table.add_column(column, justify="left" if column in {"family", ""} else "right")
    for one in families(profile):
        bar = ("#" if screen.options.ascii_only else "█") * round(one.share * _BAR_WIDTH)
        table.add_row(one.family, bar, f"{one.share:.1%}", _ms(one.total_ns), f"{one.calls:,}", f"{one.kernels:,}")
    screen.print(table)


def _print_steps(screen: "Console", profile: "Profile") -> None:
    from rich.table import Table

    from cyclewatch.daemon.printable import printable
    from cyclewatch.daemon.reports.kernels import step_summaries

    if not profile.steps:
        return
    table = Table(title="steps (medians)", title_justify="left")
    for column in ("step", "batch size", "steps", "kernels", "busy", "idle", "from first to last"):
        table.add_column(column, justify="left" if column == "step" else "right")
    summaries = step_summaries(profile.steps)
    for one in summaries[:_STEPS_SHOWN]:
        size = "-" if one.batch_size is None else str(one.batch_size)
        times = (one.kernel_ns, one.busy_ns, one.span_ns - one.busy_ns, one.span_ns)
        table.add_row(printable(one.name, _NAME_WIDTH), size, str(one.steps), *map(_ms, times))
    screen.print(table)
    if len(summaries) > _STEPS_SHOWN:
        screen.print(f"and {len(summaries) - _STEPS_SHOWN} more kinds of steps")
    for graph in profile.graphs[:_STEPS_SHOWN]:
        time_ns = sum(kernel.total_ns for kernel in graph.kernels) / graph.replays
        phase = f" in {graph.phase}" if graph.phase else ""
        replays = f"{graph.replays} replay" + ("s" if graph.replays > 1 else "")
        screen.print(f"graph of {len(graph.kernels)} kernels: {replays}{phase}, {_ms(time_ns)} each")


def _print_kernels(screen: "Console", profile: "Profile") -> None:
    from rich.table import Table

    from cyclewatch.daemon.printable import printable
    from cyclewatch.daemon.reports.kernels import whole_time_ns
    from cyclewatch.detectors.kernels import classify

    phases, devices = ({getattr(use, what) for use in profile.kernels} - {""} for what in ("phase", "device"))
    shown = profile.kernels[:_KERNELS_SHOWN]
    table = Table(title="kernels", title_justify="left")
    names = ["kernel", "family"] + ["phase"] * bool(phases) + ["device"] * (len(devices) > 1)
    for column in (*names, "share", "time", "calls", "mean", "min", "max"):
        table.add_column(column, justify="left" if column in names else "right")
    whole_ns = whole_time_ns(profile)
    for use in shown:
        identity = classify(use.name, use.kind.value)
        cells = {"kernel": printable(identity.short, _NAME_WIDTH), "family": identity.family.value}
        cells |= {"phase": use.phase or "-", "device": use.device}
        share = f"{use.total_ns / whole_ns:.1%}" if whole_ns else "-"
        times = (use.total_ns / max(use.calls, 1), use.min_ns, use.max_ns)
        figures = (share, _ms(use.total_ns), f"{use.calls:,}", *map(_us, times))
        table.add_row(*(cells[name] for name in names), *figures)
    if shown:
        screen.print(table)
    if len(profile.kernels) > len(shown):
        rest = profile.kernels[len(shown) :]
        time = _ms(sum(use.total_ns for use in rest))
        screen.print(f"and {len(rest):,} more rows, {time} together; --json has all")


def _print_operators(screen: "Console", profile: "Profile") -> None:
    from rich.table import Table

    from cyclewatch.daemon.reports.kernels import importances_sum
    from cyclewatch.detectors.kernels.operators import operator_shares

    shares = operator_shares(profile.kernels)
    if not shares:
        return
    table = Table(title="operators of the catalogue", title_justify="left")
    for column in ("operator", "share here", "importance in production", "time", "calls", "kernels"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    for one in shares[:_OPERATORS_SHOWN]:
        figures = (f"{one.share:.1%}", f"{one.importance:.1%}", _ms(one.total_ns), f"{one.calls:,}", f"{one.kernels:,}")
        table.add_row(one.operator, *figures)
    screen.print(table)
    screen.print(
        f"shares are of kernel time; the importances add up to {importances_sum():.1%}, as operators hold one another"
    )


def _print_ranks(screen: "Console", read: "list[tuple[Path, Profile]]") -> None:
    """The files beside one another: the rank with the least communication is the one that the others wait for."""
    from rich.table import Table

    from cyclewatch.daemon.printable import printable
    from cyclewatch.daemon.reports.kernels import families
    from cyclewatch.detectors.kernels import Family

    table = Table(title="all files", title_justify="left")
    names = ("file", "rank", "device")
    for column in (*names, "kernels", "time", "busy", "idle", "waiting for the host", "communication"):
        table.add_column(column, justify="left" if column in names else "right")
    for file, profile in read:
        totals = profile.totals
        talk_ns = sum(one.total_ns for one in families(profile) if one.family is Family.COMMUNICATION)
        times = (totals.kernel_ns, totals.busy_ns, totals.idle_ns, totals.waiting_for_host_ns, talk_ns)
        words = (printable(file.name, _NAME_WIDTH), profile.rank or "-", printable(profile.device, _NAME_WIDTH))
        table.add_row(*words, f"{totals.calls:,}", *map(_ms, times))
    screen.print(table)


def _ms(time_ns: float | None) -> str:
    return "-" if time_ns is None else f"{time_ns / 1e6:,.3f} ms"


def _us(time_ns: float | None) -> str:
    return "-" if time_ns is None else f"{time_ns / 1e3:,.2f} us"
