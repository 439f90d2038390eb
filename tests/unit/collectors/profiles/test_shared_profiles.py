"""Real profiles of every kind; what is expected of each is in their README."""

from functools import cache

import pytest

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import FlawKind, Profile, ProfileFormat
from shared_data import SHARED, profiles, seed


def table_row(name: str) -> list[str]:
    """What the README of the profiles says of one."""
    readme = SHARED / "data/README.md"
    if not readme.exists():
        pytest.skip(f"no profiles in {SHARED}/data")
    (row,) = (line for line in readme.read_text().splitlines() if line.startswith("|") and name in line)
    return [cell.strip() for cell in row.strip("|").split("|")]


@cache
def read(name: str) -> Profile:
    table_row(name)
    return read_profile(SHARED / "data" / ("nsys" if name.endswith(".csv") else "traces") / name)


NAMES = (
    "hf-h100-qwen1.5-0.5b.json.gz",
    "sglang-mi300x-qwen3-8b-extend.json.gz",
    "vllm-amd-decode-fullgraph.json.gz",
    "vllm-amd-mixed-piecewise.json.gz",
    "mi210-gpu-only.json.gz",
    "hf-mi300x-qwen1.5-0.5b.json.gz",
    "hta-mi250-minitoy.json.gz",
    "hta-no-kernels.json.gz",
    "hta-control-a100.json.gz",
    "hta-test-v100-graphs.json.gz",
    "kineto-v100-resnet50-w4-runA.json.gz",
    "kineto-v100-resnet50-w4-runB.json.gz",
    "rtx5090-dsocr-prefill_cuda_gpu_kern_sum.csv",
    "rtx5090-dsocr-sam_cuda_gpu_kern_sum.csv",
)


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_the_golden_ones(name: str) -> None:
    *_, kernels, distinct, total_us, _, _, _ = table_row(name)
    totals = read(name).totals
    assert (totals.calls, totals.distinct) == (int(kernels), int(distinct))
    assert totals.kernel_ns == round(float(total_us) * 1000)


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_and_copy_is_what_the_plainest_reading_finds(name: str) -> None:
    table_row(name)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for use in read(name).kernels:
        calls, total_ns = found.get((use.name, use.kind.value), (0, 0))
        found[use.name, use.kind.value] = (calls + use.calls, total_ns + use.total_ns)
    expected = {(use.name, use.kind): (use.calls, round(use.total_ns)) for use in profiles()[name]}
    assert {key: value for key, value in found.items() if key[1] != "cpu_op"} == expected


@pytest.mark.parametrize(
    ("name", "device", "rank"),
    [
        ("hf-h100-qwen1.5-0.5b.json.gz", "NVIDIA H100 80GB HBM3", None),
        ("sglang-mi300x-qwen3-8b-extend.json.gz", "AMD Instinct MI300X", "0"),
        ("vllm-amd-decode-fullgraph.json.gz", "", "0"),
        ("mi210-gpu-only.json.gz", "AMD Instinct MI210", None),
        ("hta-control-a100.json.gz", "NVIDIA A100-PG509-200", "3"),
        ("hta-test-v100-graphs.json.gz", "Tesla V100-SXM2-16GB", "1"),
    ],
)
def test_they_name_their_device_and_rank(name: str, device: str, rank: str | None) -> None:
    profile = read(name)
    assert (profile.device, profile.rank) == (device, rank)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("hf-h100-qwen1.5-0.5b.json.gz", [("", None)]),
        ("sglang-mi300x-qwen3-8b-extend.json.gz", [("extend", 15)]),
        ("vllm-amd-decode-fullgraph.json.gz", [("decode", 32)]),
        ("vllm-amd-mixed-piecewise.json.gz", [("mixed", 46)]),
        ("mi210-gpu-only.json.gz", []),
        ("hta-control-a100.json.gz", [("", None)] * 6),
        ("hta-test-v100-graphs.json.gz", [("", None)] * 6),
        ("kineto-v100-resnet50-w4-runA.json.gz", [("", None)] * 6),
    ],
)
def test_their_steps_are_cut(name: str, steps: list[tuple[str, int | None]]) -> None:
    assert [(step.phase, step.batch_size) for step in read(name).steps] == steps


def test_kernels_before_the_window_are_left_out_of_its_step() -> None:
    profile = read("hf-h100-qwen1.5-0.5b.json.gz")
    assert profile.warnings == (
        "436 of 1465 kernels lie outside of the steps: they count in the totals and in no phase",
    )


def test_overlapping_kernels_are_busy_once() -> None:
    assert read("hta-test-v100-graphs.json.gz").totals.busy_ns == 621_446_000


def test_a_replayed_graph_is_one_sequence() -> None:
    (graph,) = read("vllm-amd-decode-fullgraph.json.gz").graphs
    assert (graph.phase, graph.replays, len(graph.kernels)) == ("decode", 1, 421)
    pieces = read("vllm-amd-mixed-piecewise.json.gz").graphs
    assert [(graph.replays, len(graph.kernels)) for graph in pieces] == [(23, 15), (1, 12), (1, 4)]


def test_a_trace_without_kernels_says_so() -> None:
    profile = read("hta-no-kernels.json.gz")
    assert [flaw.kind for flaw in profile.flaws] == [FlawKind.NO_KERNELS]
    assert sum(use.calls for use in profile.kernels) == 2424


@pytest.mark.parametrize("name", NAMES)
def test_none_of_them_seems_spoilt(name: str) -> None:
    expected = {FlawKind.INEXACT, FlawKind.NO_KERNELS} if "no-kernels" in name else {FlawKind.INEXACT}
    assert {flaw.kind for flaw in read(name).flaws} <= expected


@pytest.mark.parametrize(
    ("number", "kernels", "calls", "total_ms"), [("000", 201, 37_254, 2222.02), ("002", 66, 21_937, 9936.29)]
)
def test_tables_with_notes_have_the_totals_of_the_source(
    number: str, kernels: int, calls: int, total_ms: float
) -> None:
    profile = read_profile(seed(number))
    assert profile.format is ProfileFormat.NSYS
    assert (profile.totals.distinct, profile.totals.calls) == (kernels, calls)
    assert profile.totals.kernel_ns / 1e6 == pytest.approx(total_ms, abs=0.01)


def test_the_table_of_torch_is_read_in_all_its_units() -> None:
    profile = read_profile(seed("004"))
    assert (profile.format, profile.rank) == (ProfileFormat.TORCH_TABLE, "g43")
    whole_ns = sum(use.total_ns for use in profile.kernels)
    flash_ns = sum(use.total_ns for use in profile.kernels if "flash_" in use.name)
    exchange_ns = sum(use.total_ns for use in profile.kernels if "SendRecv" in use.name)
    assert whole_ns / 1e9 == pytest.approx(32.686, abs=0.002)
    assert flash_ns / 1e9 == pytest.approx(20.755, abs=1e-3)
    assert exchange_ns / 1e9 == pytest.approx(11.306, abs=1e-3)
