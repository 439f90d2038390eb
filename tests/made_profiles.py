"""Kernel profiles with known truth: a decoder of some layers whose calls scatter."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cyclewatch.collectors.profiles.records import KernelKind, KernelUse, Profile, ProfileFormat, Step, Totals

LAYERS = 24
STEPS = 20

DECODER: Mapping[str, float] = {
    "nvjet_tst_64x8_64x16_4x1_v_bz_TNT": 42_000,
    "nvjet_tst_128x8_64x12_2x1_v_bz_TNT": 31_000,
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, false>(Flash_fwd_params)": 18_000,
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)": 3_000,
    "void flashinfer::norm::FusedAddRMSNormKernel<8, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*)": 4_200,
    "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>(__nv_bfloat16*, int)": 3_600,
    "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<128, 8>(float*)": 2_900,
    "void sglang::store_kv_cache<256, 1>(void*, void*)": 2_100,
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)": (
        1_700
    ),
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)": 5_400,
}
"""The time of a call by kernel, nanoseconds; each is called once a layer."""


def use(name: str, times_ns: npt.NDArray[np.float64], phase: str = "decode", **more: Any) -> KernelUse:
    """A kernel with these calls."""
    times = np.maximum(times_ns.round(), 1)
    std_ns = float(times.std(ddof=1)) if len(times) > 1 else 0.0
    figures = (len(times), int(times.sum()), int(times.min()), int(times.max()), int(np.median(times)), std_ns)
    made = KernelUse(name, KernelKind.KERNEL, "0", phase, *figures, truncated=False)
    return replace(made, **more)


def decoder(
    rng: np.random.Generator,
    *,
    kernels: Mapping[str, float] = DECODER,
    factors: Mapping[str, float] | None = None,
    layers: int = LAYERS,
    steps: int = STEPS,
    noise: float = 0.03,
    idle_ns: int = 100_000,
    **more: Any,
) -> Profile:
    """Decode steps of this model; `factors` multiply the time of a kernel's calls, `idle_ns` is of each step."""
    times = {
        name: time_ns * (factors or {}).get(name, 1.0) * np.exp(noise * rng.standard_normal(layers * steps))
        for name, time_ns in kernels.items()
    }
    return of_uses([use(name, some) for name, some in times.items()], steps=steps, idle_ns=idle_ns, **more)


def of_uses(uses: Sequence[KernelUse], *, steps: int = STEPS, idle_ns: int = 100_000, **more: Any) -> Profile:
    """A profile of these kernels, one after another, in steps that follow one another."""
    kernels = [one for one in uses if one.kind is KernelKind.KERNEL]
    kernel_ns = sum(one.total_ns for one in kernels)
    span_ns, busy_ns = kernel_ns + steps * idle_ns, kernel_ns // max(steps, 1)
    length_ns = busy_ns + idle_ns
    phase = uses[0].phase if uses else ""
    totals = Totals(
        kernel_ns=kernel_ns,
        calls=sum(one.calls for one in kernels),
        distinct=len({one.name for one in kernels}),
        busy_ns=kernel_ns,
        span_ns=span_ns,
        idle_ns=steps * idle_ns,
        copying_ns=0,
        waiting_for_host_ns=steps * idle_ns * 4 // 5,
        between_kernels_ns=steps * idle_ns // 5,
    )
    made = Profile(
        format=ProfileFormat.KINETO,
        kernels=tuple(sorted(uses, key=lambda one: -one.total_ns)),
        totals=totals,
        steps=tuple(
            Step(f"step[DECODE bs=32] {at}", phase, 32, at * length_ns, (at + 1) * length_ns, busy_ns, busy_ns)
            for at in range(steps)
        ),
        device="NVIDIA H200",
        world_size=1,
    )
    return replace(made, **more)


def as_table(profile: Profile) -> Profile:
    """The same kernels as a table tells them: neither steps nor idle time, nor which phase."""
    known = profile.totals
    totals = Totals(kernel_ns=known.kernel_ns, calls=known.calls, distinct=known.distinct)
    uses = tuple(replace(one, phase="") for one in profile.kernels)
    return replace(profile, format=ProfileFormat.NSYS, kernels=uses, totals=totals, steps=(), device="")
