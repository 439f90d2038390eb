"""From a trace to what is kept of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cyclewatch.collectors.profiles.read import read_profile
from cyclewatch.collectors.profiles.records import (
    Flaw,
    FlawKind,
    KernelKind,
    KernelUse,
    Profile,
    ProfileFormat,
    Totals,
)
from cyclewatch.daemon.profiling import reduce
from cyclewatch.daemon.profiling.reduce import KERNELS_MAX, ReductionError, reduce_apart, reduced
from fake_kineto import trace

TRACES = Path(__file__).parents[4] / "shared/data/traces"


def use(name: str = "void gemm<8>()", kind: KernelKind = KernelKind.KERNEL, total_ns: int = 100) -> KernelUse:
    return KernelUse(name, kind, "0", "decode", 2, total_ns, 40, 60, 50, 14.1, truncated=False)


def profile(*uses: KernelUse, flaws: tuple[Flaw, ...] = (), pids: tuple[int, ...] = ()) -> Profile:
    totals = Totals(kernel_ns=100, calls=2, distinct=1, busy_ns=90, span_ns=120, idle_ns=30)
    return Profile(ProfileFormat.KINETO, uses, totals, flaws=flaws, pids=pids, device="H200")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_kernel_is_kept_with_its_identity() -> None:
    reduction = reduced(profile(use()), 7, gpu=True)
    (kernel,) = reduction.kernels
    assert (kernel.key, kernel.name, kernel.kind, kernel.phase, kernel.calls) == (
        "gemm<8>",
        "void gemm<8>()",
        "kernel",
        "decode",
        2,
    )
    assert (kernel.total_ns, kernel.min_ns, kernel.max_ns, kernel.median_ns, kernel.std_ns) == (100, 40, 60, 50, 14.1)
    assert reduction.totals["busy_ns"] == 90
    assert reduction.totals["device"] == "H200"


@pytest.mark.parametrize("kind", [FlawKind.INCOMPLETE, FlawKind.DROPPED, FlawKind.CLOCK_JUMP, FlawKind.NO_KERNELS])
def test_what_is_no_evidence_is_refused_with_its_reason(kind: FlawKind) -> None:
    with pytest.raises(ReductionError, match="it is broken"):
        reduced(profile(use(), flaws=(Flaw(kind, "it is broken"),)), 7, gpu=True)


def test_what_is_only_less_than_it_looks_is_noted() -> None:
    flaws = (Flaw(FlawKind.INEXACT, "rounded"), Flaw(FlawKind.NO_KERNELS, "no kernel"))
    operator = use("aten::mm", KernelKind.CPU_OP)
    assert reduced(profile(operator, flaws=flaws), 7, gpu=False).warnings == ("rounded",)


def test_another_processs_trace_is_refused() -> None:
    assert reduced(profile(use(), pids=(6, 7)), 7, gpu=True)
    with pytest.raises(ReductionError, match="not of 8"):
        reduced(profile(use(), pids=(6, 7)), 8, gpu=True)


def test_a_process_that_computed_nothing_is_refused() -> None:
    with pytest.raises(ReductionError, match="no operator of the CPU"):
        reduced(profile(), 7, gpu=False)


def test_no_end_of_kernels_and_no_name_harm_the_store() -> None:
    many = [use(f"kernel_{number}") for number in range(KERNELS_MAX + 5)]
    reduction = reduced(profile(use("a\0b\ud800" + "x" * 10_000), *many), 7, gpu=True)
    assert len(reduction.kernels) == KERNELS_MAX
    assert reduction.kernels[0].name.startswith("ab?xx")
    assert len(reduction.kernels[0].name) < 5000
    assert reduction.warnings == (f"only the {KERNELS_MAX} longest of {KERNELS_MAX + 6} kernels are kept",)


def test_in_a_process_of_its_own_it_comes_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(trace(77))
    with opened(path) as descriptor:
        reduction = reduce_apart(descriptor, 77, gpu=False)
    assert {kernel.name for kernel in reduction.kernels} == {"aten::mm", "aten::softmax"}
    with opened(path) as descriptor, pytest.raises(ReductionError, match="not of 78"):
        reduce_apart(descriptor, 78, gpu=False)


def test_a_real_trace_of_a_gpu_is_reduced_and_one_without_kernels_refused() -> None:
    """Of the shared profiles."""
    extend, empty = TRACES / "sglang-mi300x-qwen3-8b-extend.json.gz", TRACES / "hta-no-kernels.json.gz"
    if not extend.exists():
        pytest.skip(f"NOT RUN: no {extend}")
    (pid, *_) = read_profile(extend).pids
    with opened(extend) as descriptor:
        reduction = reduce_apart(descriptor, pid, gpu=True)
    assert {"gemm", "attention", "norm"} <= {kernel.family for kernel in reduction.kernels}
    assert "extend" in {kernel.phase for kernel in reduction.kernels}
    with opened(empty) as descriptor, pytest.raises(ReductionError, match="no GPU kernel"):
        reduce_apart(descriptor, pid, gpu=True)


def test_a_trace_that_takes_too_long_or_too_much_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(trace(77))
    monkeypatch.setattr(reduce, "_TIMEOUT_S", 0.001)
    with opened(path) as descriptor, pytest.raises(ReductionError, match="could not be read within"):
        reduce_apart(descriptor, 77, gpu=False)
    monkeypatch.setattr(reduce, "_TIMEOUT_S", 60)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with opened(path) as descriptor, pytest.raises(ReductionError, match="ended with 1"):
        reduce_apart(descriptor, 77, gpu=False)
