from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import FlawKind, KernelKind, ProfileError, ProfileFormat
from profile_files import TORCH_TABLE, write


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Any:
    return lambda text: read_profile(write(tmp_path / "table", text))


@pytest.mark.parametrize("prefix", ["", "g43: ", "[rank3]: "])
def test_what_ran_on_the_device_counts(read: Any, prefix: str) -> None:
    """Not operators, which hold the same kernels again, and not spans; every figure in its own unit."""
    profile = read("starting\n" + TORCH_TABLE.format(prefix) + "done\n")
    assert profile.format is ProfileFormat.TORCH_TABLE
    assert [(use.name, use.kind, use.calls, use.total_ns) for use in profile.kernels] == [
        ("void gem...", KernelKind.KERNEL, 2, 3_000_000),
        ("f(int,  T1  const)", KernelKind.KERNEL, 4, 499_000),
        ("Memcpy DtoD", KernelKind.MEMCPY, 1, 1_000),
    ]
    assert (profile.totals.kernel_ns, profile.totals.calls, profile.totals.distinct) == (3_499_000, 6, 2)
    assert profile.rank == (prefix.strip(" :") or None)
    assert profile.warnings == ("1 of 3 names are cut by the table that lists them",)


def test_hosts_are_apart(read: Any) -> None:
    """Their lines may be mixed."""
    both = zip(TORCH_TABLE.format("g1: ").splitlines(), TORCH_TABLE.format("g2: ").splitlines(), strict=True)
    profile = read("\n".join(line for pair in both for line in pair))
    assert [use.device for use in profile.kernels] == ["g1", "g2"] * 3
    assert profile.totals.kernel_ns == 2 * 3_499_000
    assert profile.rank is None


def test_missing_rows_are_noticed(read: Any) -> None:
    """By default torch prints the first 100 rows."""
    profile = read("\n".join(line for line in TORCH_TABLE.format("").splitlines() if "void gem" not in line))
    assert [flaw.kind for flaw in profile.flaws] == [FlawKind.INCOMPLETE]
    assert "14% of the time" in profile.flaws[0].text


FIGURES = ("Self CPU %", "Self CPU", "CPU total", "Self CUDA", "CUDA time avg", "# of Calls")
OPERATOR = ("1.50%", "1.500ms", "2.000ms", "0.000us", "0.000us", "2")
KERNEL = ("0.00%", "0.000us", "0.000us", "3.000ms", "1.500ms", "2")
SPAN = ("0.00%", "0.000us", "0.000us", "7.200ms", "3.600ms", "2")


def printed(titles: tuple[str, ...], *rows: tuple[str, ...], total: str = "3.000ms") -> str:
    """As torch pads it: every cell to the right and at least to the width of its column, but the source to the left."""
    widths = [30 if "Name" in title else 40 if title == "Source Location" else 12 for title in titles]
    sides = ["<" if title == "Source Location" else ">" for title in titles]
    lines = [
        "".join(f"{cell:{side}{width}}  " for cell, side, width in zip(row, sides, widths, strict=True))
        for row in (titles, *rows)
    ]
    rule = "".join("-" * width + "  " for width in widths)
    return "\n".join(
        [rule, lines[0], rule, *lines[1:], rule, "Self CPU time total: 9ms", f"Self CUDA time total: {total}"]
    )


class TestAnnotations:
    """`record_function("forward")` has a row on the CPU, and one on the device with all that ran in between."""

    def test_their_rows_on_the_device_are_no_kernels(self, read: Any) -> None:
        profile = read(printed(("Name", *FIGURES), ("forward", *OPERATOR), ("forward", *SPAN), ("gemm", *KERNEL)))
        assert [use.name for use in profile.kernels] == ["gemm"]
        assert profile.flaws == ()

    def test_until_torch_2_4_the_total_holds_them(self, read: Any) -> None:
        rows = (("forward", *OPERATOR), ("forward", *SPAN), ("gemm", *KERNEL))
        assert read(printed(("Name", *FIGURES), *rows, total="10.200ms")).flaws == ()

    def test_inductor_calls_an_operator_by_its_kernel(self, read: Any) -> None:
        name = "triton_poi_fused_add_0"
        profile = read(printed(("Name", *FIGURES), (name, *OPERATOR), (name, *KERNEL)))
        assert [(use.name, use.kind) for use in profile.kernels] == [(name, KernelKind.KERNEL)]
        assert profile.flaws == ()

    def test_one_whose_row_on_the_cpu_is_cut_is_noticed(self, read: Any) -> None:
        profile = read(printed(("Name", *FIGURES), ("forward", *SPAN), ("gemm", *KERNEL)))
        assert [flaw.kind for flaw in profile.flaws] == [FlawKind.INCOMPLETE]
        assert "the rows make 340% of the time" in profile.flaws[0].text


class TestEmptyCells:
    """Kernels have no place in the source, and operators seldom an overload."""

    def test_of_the_source(self, read: Any) -> None:
        profile = read(
            printed(
                ("Name", *FIGURES, "Source Location"),
                ("aten::mm", *OPERATOR, "model.py(7): forward  # twice"),
                ("", "", "", "", "", "", "", "serve.py(12): step"),
                ("gemm", *KERNEL, ""),
            )
        )
        assert [(use.name, use.calls, use.total_ns) for use in profile.kernels] == [("gemm", 2, 3_000_000)]

    def test_of_the_source_at_the_end_of_a_line_that_was_stripped(self, read: Any) -> None:
        text = printed(("Name", *FIGURES, "Source Location"), ("gemm", *KERNEL, ""))
        assert read("\n".join(line.rstrip() for line in text.splitlines())).totals.calls == 2

    def test_of_the_overload(self, read: Any) -> None:
        profile = read(
            printed(
                ("Name", "Overload Name", *FIGURES),
                ("aten::add", "Tensor", *OPERATOR),
                ("f(int,  T1  const)", "", *KERNEL),
            )
        )
        assert [(use.name, use.total_ns) for use in profile.kernels] == [("f(int,  T1  const)", 3_000_000)]

    def test_beside_one_that_is_wider_than_its_column(self, read: Any) -> None:
        """So it is with `time_unit="us"`."""
        wide = ("0.00%", "0.000us", "0.000us", "201427000.000us", "100713500.000us", "2")
        text = printed(("Name", *FIGURES, "Source Location"), ("gemm", *wide, ""), total="201427000.000us")
        assert [use.total_ns for use in read(text).kernels] == [201_427_000_000]

    def test_a_table_whose_lines_lost_their_indentation_is_read_by_its_gaps(self, read: Any) -> None:
        text = printed(("Name", *FIGURES), ("aten::mm", *OPERATOR), ("gemm", *KERNEL))
        assert read("\n".join(line.strip() for line in text.splitlines())).totals.kernel_ns == 3_000_000


def test_a_table_without_its_end_was_cut_off(read: Any) -> None:
    profile = read(TORCH_TABLE.format("").partition("Self CPU time total")[0])
    assert FlawKind.INCOMPLETE in {flaw.kind for flaw in profile.flaws}


def test_without_a_gpu_operators_are_listed(read: Any) -> None:
    profile = read(
        "Name    Self CPU %      Self CPU    # of Calls\n"
        "aten::mm       60.0%       6.000ms             2\n"
        "aten::add      40.0%     400.000us             9\n"
        "Self CPU time total: 10.000ms\n"
    )
    assert [(use.name, use.kind, use.total_ns) for use in profile.kernels] == [
        ("aten::mm", KernelKind.CPU_OP, 6_000_000),
        ("aten::add", KernelKind.CPU_OP, 400_000),
    ]
    assert [flaw.kind for flaw in profile.flaws] == [FlawKind.NO_KERNELS]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("499.000us", "-499.000us", "line 7: '-499.000us' is a negative or impossible time"),
        ("499.000us", "nanus    ", "is a negative or impossible time"),
        ("499.000us", "499.0parsecs", "is no time"),
        ("void gem...", "x" * 70_000, "a name of 70000 characters"),
    ],
)
def test_impossible_rows_are_refused(read: Any, before: str, after: str, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        read(TORCH_TABLE.format("").replace(before, after))


def test_an_empty_table_is_refused(read: Any) -> None:
    with pytest.raises(ProfileError, match="was anything profiled"):
        read("Name    Self CPU %    Self CPU    # of Calls\nSelf CPU time total: 0.000us\n")
