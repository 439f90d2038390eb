"""Kernel profiles of a simulated decode step: which kernels there are, and how long each takes in a given state."""

from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.profiles.records import (
    KernelKind,
    KernelUse,
    Profile,
    ProfileFormat,
    Step,
    Totals,
)
from cyclewatch.detectors.simulation.faults.node import Node
from cyclewatch.detectors.simulation.faults.state import Service

_LAYERS = 32


@dataclass(frozen=True)
class _Kernel:
    """`part` is of the time of all kernels that wait for memory, or of all that follow the clock."""

    name: str
    part: float
    calls: int
    memory: bool = True
    replacement: str = ""


KERNELS = {
    "gemm_up": _Kernel(
        "nvjet_tst_192x64_64x6_2x1_v_bz_TNT",
        0.35,
        _LAYERS,
        replacement="sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x16_kernel",
    ),
    "gemm_down": _Kernel("nvjet_tst_64x64_64x16_1x4_h_bz_splitK_TNT", 0.22, _LAYERS),
    "gemm_qkv": _Kernel("nvjet_tst_128x64_64x10_2x1_v_bz_TNT", 0.13, _LAYERS),
    "gemm_out": _Kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 0.1, _LAYERS),
    "attention": _Kernel(
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, "
        "cutlass::bfloat16_t>, false, false, false, false, true, true, false, true>(Flash_fwd_params)",
        0.2,
        _LAYERS,
        replacement="_fwd_grouped_kernel_stage1",
    ),
    "norm": _Kernel(
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, "
        "__nv_bfloat16*, unsigned int, unsigned int, unsigned int, float, float)",
        0.3,
        2 * _LAYERS,
        memory=False,
        replacement="void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, "
        "c10::BFloat16 const*, float, int, int)",
    ),
    "activation": _Kernel(
        "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(silu(float const&))>(__nv_bfloat16*, "
        "__nv_bfloat16 const*, int)",
        0.2,
        _LAYERS,
        memory=False,
    ),
    "rotary": _Kernel(
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u, 8u, 16u, __nv_bfloat16, long>("
        "__nv_bfloat16*, __nv_bfloat16*, float*, long*)",
        0.2,
        _LAYERS,
        memory=False,
    ),
    "sampling": _Kernel(
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, "
        "unsigned int, long, 4> >(at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4>)",
        0.3,
        1,
        memory=False,
    ),
}
_COMMUNICATION = (
    "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 4>(RankData*, RankSignals, Signal*, __nv_bfloat16*, "
    "int, int)"
)
_NEW = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda>(int)>"
)
"""What appears where a deployment takes a way round: a copy for each layer."""


def kernel_factor(node: Node, service: Service) -> float:
    """How many times longer all kernels of a decode that do not communicate take together, as they are used."""
    whole = 1 - node.communication
    parts = {key: _part(node, kernel) / whole for key, kernel in KERNELS.items()}
    grown = sum(
        part * service.kernel_slowness.get(key, 1.0) * service.more_calls.get(key, 1.0) for key, part in parts.items()
    )
    return grown + service.kernel_slowness.get("new", 0.0)


def _part(node: Node, kernel: _Kernel) -> float:
    """The kernel's part of the device's time of a decode."""
    return kernel.part * (node.memory if kernel.memory else 1 - node.communication - node.memory)


@dataclass(frozen=True)
class Pace:
    """How a device goes at the moment: how many times longer kernels of each kind take, and the step as a whole.

    `device_ns` is the device's time of a step in the healthy state, `cycle_ns` the whole step as it is now, and
    `waited_ns` what kernels that communicate wait in it for other ranks.
    """

    device_ns: float
    cycle_ns: float
    memory: float
    clock: float
    link: float
    waited_ns: float


def profile(random: np.random.Generator, node: Node, service: Service, pace: Pace, rank: str) -> Profile:
    """A profile of some tens of decode steps of one rank."""
    steps = int(random.integers(20, 60))
    uses = []
    for key, kernel in KERNELS.items():
        calls = round(kernel.calls * service.more_calls.get(key, 1.0))
        slower = pace.memory if kernel.memory else pace.clock
        slower *= service.kernel_slowness.get(key, 1.0) * service.device_slowness
        mean_ns = pace.device_ns * _part(node, kernel) / kernel.calls * slower
        name = kernel.replacement if key in service.replaced else kernel.name
        uses.append(_use(random, name, steps * max(calls, 1), mean_ns))
    if "new" in service.kernel_slowness:
        whole_ns = pace.device_ns * (1 - node.communication) * service.kernel_slowness["new"]
        uses.append(_use(random, _NEW, steps * _LAYERS, whole_ns / _LAYERS))
    if node.communication:
        linked_ns = pace.device_ns * node.communication * pace.link + pace.waited_ns
        uses.append(_use(random, _COMMUNICATION, steps * 2 * _LAYERS, linked_ns / (2 * _LAYERS), spread=0.2))
    kernel_ns = sum(use.total_ns for use in uses)
    span_ns = max(round(steps * pace.cycle_ns), round(kernel_ns * 1.01))
    idle_ns = span_ns - kernel_ns
    return Profile(
        format=ProfileFormat.KINETO,
        kernels=tuple(sorted(uses, key=lambda use: -use.total_ns)),
        totals=Totals(
            kernel_ns=kernel_ns,
            calls=sum(use.calls for use in uses),
            distinct=len(uses),
            busy_ns=kernel_ns,
            span_ns=span_ns,
            idle_ns=idle_ns,
            copying_ns=0,
            waiting_for_host_ns=round(0.8 * idle_ns),
            between_kernels_ns=idle_ns - round(0.8 * idle_ns),
        ),
        steps=tuple(_step(number, span_ns // steps, kernel_ns // steps) for number in range(steps)),
        device=node.model.name,
        rank=rank,
        world_size=len(node.own),
    )


def _use(random: np.random.Generator, name: str, calls: int, mean_ns: float, spread: float = 0.06) -> KernelUse:
    # A profile is a moment: its mean is off by more than the spread of its calls over their root.
    mean_ns *= float(np.exp(random.normal(0, 0.005)))
    std_ns = mean_ns * spread * float(random.uniform(0.6, 1.4))
    return KernelUse(
        name=name,
        kind=KernelKind.KERNEL,
        device="0",
        phase="decode",
        calls=calls,
        total_ns=round(calls * mean_ns),
        min_ns=round(max(mean_ns - 2 * std_ns, mean_ns * 0.5)),
        max_ns=round(mean_ns + 4 * std_ns),
        median_ns=round(mean_ns * 0.995),
        std_ns=std_ns,
        truncated=False,
    )


def _step(number: int, length_ns: int, busy_ns: int) -> Step:
    start_ns = number * length_ns
    return Step("step[DECODE bs=24]", "decode", 24, start_ns, start_ns + length_ns, busy_ns, busy_ns)
