from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.profiles.nsys import read_nsys
from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import FlawKind, KernelKind, Profile, ProfileError, ProfileFormat
from cyclewatch.collectors.profiles.unpack import Limits
from profile_files import NSYS_COPIED, NSYS_CSV, NSYS_OLD_TEXT, NSYS_TEXT, write

COLUMNS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"


@pytest.fixture(name="read")
def _read(tmp_path: Path) -> Any:
    return lambda text: read_profile(write(tmp_path / "table", text))


def figures(profile: Profile) -> list[tuple[Any, ...]]:
    return [(use.name, use.calls, use.total_ns, use.min_ns, use.max_ns, use.median_ns) for use in profile.kernels]


def test_csv_with_banners_and_copies(read: Any) -> None:
    profile = read(NSYS_CSV)
    assert profile.format is ProfileFormat.NSYS
    assert figures(profile) == [
        ("void f<int, float>(T1 *, int)", 3, 6000, 1000, 3100, 1900),
        ("gemm_tn", 1, 4000, 4000, 4000, 4000),
        ("[CUDA memcpy Host-to-Device]", 2, 1500, 700, 800, 750),
        ("[CUDA memset]", 1, 500, 500, 500, 500),
    ]
    assert [use.kind for use in profile.kernels][2:] == [KernelKind.MEMCPY, KernelKind.MEMSET]
    assert (profile.totals.kernel_ns, profile.totals.calls, profile.totals.distinct) == (10_000, 4, 2)
    assert (profile.totals.busy_ns, profile.totals.span_ns) == (None, None)
    assert profile.flaws == ()


def test_text_with_separators_and_a_cut_name(read: Any) -> None:
    profile = read(NSYS_TEXT)
    assert figures(profile) == [
        ("void f<int, f…", 3, 6_000_000, 1_000_000, 3_100_000, 1_900_000),
        ("gemm_tn", 1, 4_000_000, 4_000_000, 4_000_000, 4_000_000),
    ]
    assert [use.truncated for use in profile.kernels] == [True, False]
    assert profile.warnings == ("1 of 2 names are cut by the table that lists them",)


def test_a_kernel_of_several_grids_is_one(read: Any) -> None:
    profile = read(NSYS_OLD_TEXT)
    assert figures(profile) == [("gemm_tn", 3, 7000, 1500, 3000, None), ("fill", 3, 3000, 1000, 1000, None)]


def test_copied_rows_between_notes(read: Any) -> None:
    profile = read(NSYS_COPIED)
    assert figures(profile) == [
        ("gemm_tn", 2, 1_500_000, 700_000, 800_000, 750_000),
        ("void f<int, float>(T1 *, int)", 1, 1_200_000, 1_200_000, 1_200_000, 1_200_000),
        ("fill", 3, 300_000, 900, 298_140, 960),
    ]
    assert [use.source for use in profile.kernels] == ["pytorch/aten/src/ATen/cuda/CUDABlas.cpp", "", ""]


@pytest.mark.parametrize("text", [NSYS_CSV, NSYS_TEXT, NSYS_OLD_TEXT, NSYS_COPIED])
def test_a_host_may_stand_before_each_line(read: Any, text: str) -> None:
    prefixed = read("".join(f"g43: {line}\n" for line in text.splitlines()))
    assert figures(prefixed) == figures(read(text))
    assert prefixed.rank == "g43"


def test_hosts_are_apart(read: Any) -> None:
    lines = [f"{host}: {line}\n" for line in NSYS_TEXT.splitlines() for host in ("g1", "g2")]
    profile = read("".join(lines))
    assert [use.device for use in profile.kernels] == ["g1", "g2", "g1", "g2"]
    assert profile.totals.kernel_ns == 20_000_000


def test_of_several_kernel_tables_the_first_counts(read: Any) -> None:
    profile = read(NSYS_TEXT + NSYS_COPIED)
    assert profile.totals.kernel_ns == 10_000_000
    assert any("left out (1)" in warning for warning in profile.warnings)


def test_missing_rows_are_noticed(read: Any) -> None:
    profile = read(f"{COLUMNS}\n60.0,6000,3,2000,2000,1000,3100,1000,f\n10.0,1000,1,1000,1000,1000,1000,0,g\n")
    assert [flaw.kind for flaw in profile.flaws] == [FlawKind.INCOMPLETE]
    assert "70%" in profile.flaws[0].text


def test_tables_of_other_things_are_no_kernels(read: Any) -> None:
    other = "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n99.0,5,1,5,cudaLaunchKernel\n"
    with pytest.raises(ProfileError, match="no rows of a known profile"):
        read(other)
    assert read(other + COLUMNS + "\n100.0,5,1,5,5,5,5,0,f\n" + other).totals.calls == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("60.0,-6000,3,1,1,1,1,1,f", "line 2: '-6000' is a negative or impossible time"),
        ("60.0,nan,3,1,1,1,1,1,f", "line 2: 'nan' is a negative or impossible time"),
        ("60.0,inf,3,1,1,1,1,1,f", "line 2: 'inf' is a negative or impossible time"),
        ("60.0,99999999999999999999,3,1,1,1,1,1,f", "negative or impossible time"),
        ("60.0,six,3,1,1,1,1,1,f", "line 2: 'six' is no time"),
        ("60.0,6000,many,1,1,1,1,1,f", "line 2: 'many' is no number of calls"),
        ("60.0,6000,-3,1,1,1,1,1,f", "line 2: '-3' is no number of calls"),
        ("60.0,6000,3,1,1,1,1,1," + "f" * 70_000, "line 2: a name of 70000 characters"),
        ("60.0,6000,3,1,1,1,1,1," + "f" * 200_000, "a line of 200022 characters"),
    ],
)
def test_impossible_rows_are_refused(read: Any, row: str, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        read(f"{COLUMNS}\n{row}\n")


ROW = st.tuples(
    st.integers(1, 10**6),
    st.integers(1, 10**12),
    st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1),
)


@given(st.lists(ROW, min_size=1, max_size=10), st.sampled_from(["csv", "text", "copied"]))
def test_what_is_printed_is_read(rows: list[tuple[int, int, str]], form: str) -> None:
    rows = [(calls, total_ns, name) for calls, total_ns, name in rows if not name.startswith(("[CUDA mem", '"'))]
    rows = rows or [(1, 1, "f")]
    text = {
        "csv": lambda n, t, name: f'1.0,{t},{n},"{name.replace(chr(34), chr(34) * 2)}"',
        "text": lambda n, t, name: f"   1.0  {t:,}  {n:>9,}  {name}",
        "copied": lambda n, t, name: f"1.0%\t{t / 1e3:.3f} μs\t{n}\t{name}",
    }
    head = {
        "csv": "Time (%),Total Time (ns),Instances,Name",
        "text": " Time (%)  Total Time (ns)  Instances  Name",
        "copied": "Time\tTotal Time\tInstances\tName",
    }
    lines = [head[form], *(text[form](*row) for row in rows)]
    found = read_nsys("\n".join(lines), Limits())
    assert sorted((use.calls, use.total_ns, use.name) for use in found.kernels) == sorted(rows)


@given(st.text(alphabet="Time (%),\tTotal TimeInstancesName0123456789.- \nμs", max_size=400))
def test_any_text_gives_a_profile_or_one_error(text: str) -> None:
    try:
        profile = read_nsys(f"Time (%)\tTotal Time (ns)\tInstances\tName\n{text}", Limits())
    except ProfileError:
        return
    assert profile.totals.kernel_ns >= 0
