"""What comparing two kernel profiles costs: 10,000 different kernels each, most of them in both.

python benchmarks/kernel_compare.py
"""

import time

from cyclewatch.collectors.profiles.records import KernelKind, KernelUse, Profile, ProfileFormat, Totals
from cyclewatch.detectors.kernels.comparison import compare_profiles

KERNELS = 10_000
RUNS = 5
NAMES = (
    "void at::native::vectorized_elementwise_kernel<{}, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)",
    "nvjet_tst_{}x128_64x3_1x2_h_bz_coopB_TNT",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<{}, 64, 128, 4>, false>(Flash_fwd_params)",
    "triton_poi_fused_add_{}",
    "void flashinfer::norm::FusedAddRMSNormKernel<{}, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*)",
)


def profile(first: int) -> Profile:
    """A profile of kernels that are numbered from `first` on."""
    uses = []
    for number in range(first, first + KERNELS):
        mean_ns = 2_000 + number % 977
        times = (20, 20 * mean_ns, mean_ns - 90, mean_ns + 110, mean_ns, 40.0)
        name = NAMES[number % len(NAMES)].format(number)
        uses.append(KernelUse(name, KernelKind.KERNEL, "0", "", *times, truncated=False))
    kernel_ns = sum(use.total_ns for use in uses)
    return Profile(ProfileFormat.NSYS, tuple(uses), Totals(kernel_ns, 20 * KERNELS, KERNELS))


def main() -> None:
    """Print the CPU time of the first comparison, which learns the names, and the best of those after it."""
    before, after = profile(0), profile(KERNELS // 10)
    seconds = []
    for _ in range(RUNS):
        began = time.process_time()
        compare_profiles(before, after)
        seconds.append(time.process_time() - began)
    print(f"{KERNELS:,} kernels in each: {seconds[0]:.2f} s of CPU at first, then {min(seconds[1:]):.2f} s")


if __name__ == "__main__":
    main()
