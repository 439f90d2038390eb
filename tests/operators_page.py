"""The table of docs/operators.md: what the formulas give for each operator's median shape, beside the catalogue.

    .venv/bin/python tests/operators_page.py

writes it into the page; a test holds the page to it.
"""

from pathlib import Path

from cyclewatch.config.catalogues import Operator, hardware, operators
from cyclewatch.detectors.kernels.operators import shape_of
from cyclewatch.detectors.kernels.roofline import Roofline, RooflineError, roofline

PAGE = Path(__file__).parents[1] / "docs/operators.md"
BEGIN, END = "<!-- generated: tests/operators_page.py -->\n", "<!-- end of what is generated -->\n"

_SECONDS = {"us": 1e-6, "ms": 1e-3}
_NOT_TOLD = {
    "fp8_blockscale_fused_moe": "the catalogue tells the launch grid of its median shape and no dimension",
    "paged_attention_decode": "the catalogue tells neither cached tokens nor sequences of its median shape",
    "mla_decode_attention": "the catalogue tells the launch grid of its median shape and no dimension",
}
"""Why the figures of an operator cannot be reproduced."""

_CHOSEN = {
    "fused_moe": "experts of a token drawn with repetition: 6 % fewer pairs for 2 of 8, 2.7 % for 8 of 128",
    "reshape_and_cache": "whole pages of 16 are read and written",
    "moe_align_block_size": "on average half a block of padding for each expert",
}
"""What the formula supposes beyond the shape."""


def median_shape(operator: Operator) -> str:
    """The catalogue's median shape, as `--shape` takes it."""
    (shape,) = (one.shape for one in operator.shapes if one.number == operator.median.number)
    return ",".join(f"{name}={value}" for name, value in shape.items())


def median_roofline(operator: Operator, gpu: str) -> Roofline:
    """Of the catalogue's median shape.

    Raises:
        RooflineError: the catalogue does not tell the shape.
    """
    shape, _ = shape_of(operator, median_shape(operator))
    return roofline(operator, shape, operator.dtype, hardware()[gpu])


def as_printed(seconds: float, like: str) -> str:
    """A time in the unit and with the decimals of another: 3.4269e-3 is "3.43 ms" like "3.43 ms"."""
    number, unit = like.split()
    return f"{seconds / _SECONDS[unit]:.{len(number.partition('.')[2])}f} {unit}"


def intensity_as_printed(intensity: float, like: str) -> str:
    """An intensity as the catalogue prints it: thousands as "15.4k"."""
    return f"{intensity / 1e3:.1f}k" if like.endswith("k") else f"{intensity:.1f}"


def table() -> str:
    """The table in Markdown."""
    rows = [
        "| operator | importance | median shape | AI | T_SOL on H20 | T_SOL on XPU-A | label | reproduced |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(operator) for operator in operators().values()),
    ]
    return "\n".join(rows) + "\n"


def _row(operator: Operator) -> str:
    told = median_shape(operator).replace(",", ", ")
    printed = operator.median
    try:
        on_h20, on_xpu_a = median_roofline(operator, "H20"), median_roofline(operator, "XPU-A")
    except RooflineError:
        cells = [told or "not told", printed.intensity, printed.t_sol_h20, printed.t_sol_xpu_a]
        verdict = f"no: {_NOT_TOLD[operator.name]}"
    else:
        pairs = [
            (intensity_as_printed(on_h20.intensity, printed.intensity), printed.intensity),
            (as_printed(on_h20.t_sol_s, printed.t_sol_h20), printed.t_sol_h20),
            (as_printed(on_xpu_a.t_sol_s, printed.t_sol_xpu_a), printed.t_sol_xpu_a),
        ]
        cells = [told, *(ours if ours == theirs else f"{ours}, catalogue {theirs}" for ours, theirs in pairs)]
        verdict = "yes" if all(ours == theirs for ours, theirs in pairs) else "no"
        _, assumed = shape_of(operator, median_shape(operator))
        supposed = [f"{name} = {operator.default[name]} implied" for name in assumed]
        if notes := [*supposed, *([_CHOSEN[operator.name]] if operator.name in _CHOSEN else [])]:
            verdict += f"; {'; '.join(notes)}"
    return f"| {operator.name} | {operator.importance:.1%} | {' | '.join(cells)} | {operator.regime} | {verdict} |"


def page_with_table(page: str) -> str:
    """The page with a fresh table."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
