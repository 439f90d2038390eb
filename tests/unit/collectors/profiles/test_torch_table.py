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
