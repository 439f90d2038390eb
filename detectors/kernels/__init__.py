"""Knowing kernels: their identity across spellings, what they are for, and how near they run to the speed of light."""

from cyclewatch.detectors.kernels.families import Family, KernelIdentity, classify
from cyclewatch.detectors.kernels.identity import match_truncated, same_kernel

__all__ = ["Family", "KernelIdentity", "classify", "match_truncated", "same_kernel"]
