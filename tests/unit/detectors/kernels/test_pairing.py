"""Which kernel of one profile is which of another."""

from dataclasses import replace

import numpy as np

from cyclewatch.collectors.profiles.records import KernelKind
from cyclewatch.detectors.kernels.pairing import Pair, pairs
from made_profiles import use

ONCE = np.array([1000.0, 1200.0, 1100.0])
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::CopyFunctor<float>>(int)"
CUT = "void at::native::vectorized_elementwise_kernel<4, at:..."


def paired(before: list[str], after: list[str], **how: bool) -> list[Pair]:
    given = {"by_phase": True, "same_tool": True, **how}
    found = pairs([use(name, ONCE) for name in before], [use(name, ONCE) for name in after], **given)
    return sorted(found, key=lambda pair: pair.key)


def test_spellings_of_one_kernel_are_one() -> None:
    (pair,) = paired(["void flash::prepare<(int)8, (bool)1>(int, const T1 *)"], ["_ZN5flash7prepareILi8ELb1EEEviPKi"])
    assert pair.before
    assert pair.after
    assert not pair.inferred


def test_a_cut_name_is_what_begins_so() -> None:
    (pair,) = paired([FILL], [CUT])
    assert pair.inferred
    assert pair.before
    assert pair.after


def test_a_cut_name_that_can_be_several_kernels_is_all_of_them() -> None:
    (pair,) = paired([FILL, COPY], [CUT, CUT])
    assert pair.inferred
    assert pair.before
    assert pair.after
    assert pair.before.calls == pair.after.calls == 6


def test_a_cut_name_leaves_kernels_that_have_their_partner() -> None:
    fill, cut = paired([FILL, COPY], [FILL, CUT])[::-1]
    assert fill.key.endswith("FillFunctor<float>>")
    assert cut.inferred
    assert cut.before
    assert "Copy" in cut.before.identity.name


def test_a_cut_name_that_nothing_begins_with_is_alone() -> None:
    assert [bool(pair.before) for pair in paired(["gemm_tn"], [CUT])] == [False, True]


def test_devices_are_taken_together_and_their_spread_is_that_of_all_calls() -> None:
    one, other = np.array([10.0, 12.0, 14.0]), np.array([20.0, 26.0])
    (pair,) = pairs([use("a", one), replace(use("a", other), device="1")], [], by_phase=True, same_tool=True)
    together = use("a", np.concatenate((one, other)))
    assert pair.before
    assert pair.before.std_ns is not None
    assert together.std_ns is not None
    assert (pair.before.calls, pair.before.total_ns) == (5, together.total_ns)
    assert abs(pair.before.std_ns - together.std_ns) < 1e-9
    assert (pair.before.min_ns, pair.before.max_ns, pair.before.median_ns) == (10, 26, None)


def test_copies_of_other_tools_are_known_by_their_direction() -> None:
    kineto = use("Memcpy HtoD (Pinned -> Device)", ONCE, kind=KernelKind.MEMCPY)
    nsys = use("[CUDA memcpy Host-to-Device]", ONCE, kind=KernelKind.MEMCPY)
    (pair,) = pairs([kineto], [nsys], by_phase=True, same_tool=False)
    assert pair.before
    assert pair.after
    assert len(pairs([kineto], [nsys], by_phase=True, same_tool=True)) == 2


def test_phases_are_apart_where_they_are_told() -> None:
    both = [use("a", ONCE, "decode"), use("a", ONCE, "extend")]
    assert len(pairs(both, both, by_phase=True, same_tool=True)) == 2
    assert len(pairs(both, both, by_phase=False, same_tool=True)) == 1
