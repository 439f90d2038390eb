"""`cyclewatch roofline`: the best that a GPU can do for an operator, and how near a measured time comes to it."""

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cyclewatch.daemon.cli.common import JsonOption, console

if TYPE_CHECKING:
    from cyclewatch.config.catalogues import Hardware, Operator

_TIME = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ns|us|µs|μs|ms|s)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}


def roofline(
    operator: Annotated[str | None, typer.Argument(help="An operator of the catalogue; --list shows them.")] = None,
    shape: Annotated[
        str | None, typer.Option("--shape", help="Its dimensions: 30793,32,128 or tokens=30793,heads=32,head_dim=128.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Type of its elements; default as catalogued.")] = None,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="A GPU, as --list or the device itself calls it: H200.")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help="A measured time, for S: 124.2ms.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List operators, their dimensions, and GPUs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell the shortest time possible for one call of an operator on a GPU (T_SOL), and what bounds it.

    With --time also S, the part of the speed of light that was reached. Exit code 2 for what is not known or wrong.
    """
    from cyclewatch.detectors.kernels.roofline import RooflineError

    if show_list:
        _list(as_json=as_json)
        return
    if operator is None:
        raise typer.BadParameter("which operator? --list shows all that there are")
    try:
        document = _document(operator, shape or "", dtype, hardware, time)
    except RooflineError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        typer.echo(json.dumps(document, indent=2))
    else:
        _print(document)


def _document(name: str, shape: str, dtype: str | None, hardware: str | None, time: str | None) -> dict[str, Any]:
    """The machine-readable form, kept stable.

    Raises:
        RooflineError: one of the words is not known.
    """
    from cyclewatch.detectors.kernels.operators import find_operator, known_s, shape_of
    from cyclewatch.detectors.kernels.roofline import roofline as roofline_of

    operator = find_operator(name)
    given, assumed = shape_of(operator, shape)
    gpu = _gpu(hardware)
    element = _dtype(dtype or operator.dtype)
    found = roofline_of(operator, given, element, gpu, time_s=_seconds(time))
    return {
        "operator": operator.name,
        "shape": given,
        "assumed": list(assumed),
        "dtype": element,
        "hardware": gpu.name,
        "flops": found.flops,
        "bytes": found.bytes,
        "intensity": found.intensity,
        "ridge": found.ridge,
        "regime": found.regime,
        "t_sol_s": found.t_sol_s,
        "compute_s": found.compute_s,
        "memory_s": found.memory_s,
        "time_s": found.time_s,
        "s": found.s,
        "catalogue": {
            "regime": operator.regime,
            "importance": operator.importance,
            "s_on_xpu_a": known_s(operator, given),
        },
    }


def _gpu(name: str | None) -> "Hardware":
    import difflib

    from cyclewatch.config.catalogues import hardware
    from cyclewatch.detectors.kernels.hardware import find_hardware
    from cyclewatch.detectors.kernels.roofline import RooflineError

    if name is None:
        raise RooflineError(f"--hardware is missing: one of {', '.join(hardware())}")
    if found := find_hardware(name[:100]):
        return found
    names = {one.lower(): one for one in hardware()}
    near = difflib.get_close_matches(name.lower()[:100], names, n=3)
    hint = f"; did you mean {' or '.join(names[one] for one in near)}?" if near else "; --list shows those that are"
    raise RooflineError(f"no GPU {name[:100]!r} is known{hint}")


def _dtype(name: str) -> str:
    from cyclewatch.detectors.kernels.roofline import BYTES_BY_DTYPE, DTYPE_ALIASES, RooflineError

    lower = name.lower().removeprefix("torch.")
    found = DTYPE_ALIASES.get(lower, lower)
    if found not in BYTES_BY_DTYPE:
        raise RooflineError(f"no type {name[:40]!r} is known; known are {', '.join(BYTES_BY_DTYPE)}")
    return found


def _seconds(text: str | None) -> float | None:
    from cyclewatch.detectors.kernels.roofline import RooflineError

    if text is None:
        return None
    found = _TIME.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds <= 0:
        raise RooflineError(f"time {text[:40]!r} is no time above zero with a unit: 124.2ms, 8us, 1.5s")
    return seconds


def _print(document: dict[str, Any]) -> None:
    screen = console()
    shape = ", ".join(f"{name} {value:,}" for name, value in document["shape"].items())
    screen.print(f"{document['operator']} on {document['hardware']}, {document['dtype']}: {shape}", style="bold")
    catalogue = document["catalogue"]
    work = f"{_short(document['flops'], 'FLOP')}, {_short(document['bytes'], 'B')} moved"
    ridge = f"; the ridge is at {document['ridge']:,.1f}" if document["ridge"] else ""
    screen.print(f"work       {work}")
    screen.print(f"intensity  {document['intensity']:,.1f} FLOP/byte{ridge}")
    screen.print(f"bound by   {document['regime']} (the catalogue's own label: {catalogue['regime']})")
    screen.print(f"T_SOL      {_duration(document['t_sol_s'])}")
    if document["assumed"]:
        screen.print(
            f"note: not given, so as the catalogue's figures imply: {', '.join(document['assumed'])}", style="yellow"
        )
    if document["s"] is not None:
        known = f"; the catalogue has {catalogue['s_on_xpu_a']:.1%} on XPU-A" if catalogue["s_on_xpu_a"] else ""
        screen.print(f"S          {document['s']:.1%} at {_duration(document['time_s'])}{known}")
        if document["s"] > 1:
            screen.print(
                "note: faster than possible: is the shape right, and was the data not in a cache?", style="yellow"
            )


def _list(*, as_json: bool) -> None:
    from cyclewatch.config.catalogues import hardware, operators

    if as_json:
        typer.echo(json.dumps({"operators": [_listed(one) for one in operators().values()], "hardware": [*hardware()]}))
        return
    from rich.table import Table

    table = Table(title="operators, by their share of GPU time in production (of overlapping wholes: 109.6 % in all)")
    for name in ("operator", "importance", "dtype", "--shape", "which are"):
        table.add_column(name)
    for one in operators().values():
        listed = _listed(one)
        table.add_row(one.name, f"{one.importance:.1%}", one.dtype, listed["shape"], one.meaning)
    screen = console()
    screen.print(table)
    gpus = Table(title="GPUs: TFLOP/s without sparsity, TB/s")
    for name in ("--hardware", "peaks", "memory"):
        gpus.add_column(name)
    for gpu in hardware().values():
        peaks = ", ".join(f"{dtype} {peak / 1e12:,.4g}" for dtype, peak in gpu.flops.items())
        gpus.add_row(gpu.name, peaks, f"{gpu.bandwidth / 1e12:.3g}")
    screen.print(gpus)


def _listed(operator: "Operator") -> dict[str, Any]:
    """An operator in the list; dimensions that may be left out are in brackets."""
    shape = ",".join(f"[{name}]" if name in operator.default else name for name in operator.dimensions)
    return {
        "operator": operator.name,
        "importance": operator.importance,
        "dtype": operator.dtype,
        "regime": operator.regime,
        "shape": shape,
        "meaning": operator.meaning,
        "shapes": len(operator.shapes),
    }


def _duration(seconds: float) -> str:
    """A time as the catalogue prints it, with two decimals; what is shorter than 0.1 µs in nanoseconds."""
    for size, unit in ((1e-3, "ms"), (1e-7, "µs")):
        if seconds >= size:
            return f"{seconds / (size if unit == 'ms' else 1e-6):,.2f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _short(value: float, unit: str) -> str:
    for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.4g} {letter}{unit}"
    return f"{value:.4g} {unit}"
