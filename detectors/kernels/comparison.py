"""Comparing two kernel profiles."""

from cyclewatch.detectors.kernels.changes import (
    FamilyChange,
    KernelChange,
    PhaseSplit,
    ProfileComparison,
    Substitution,
    Uniform,
    Unit,
    Use,
    Verdict,
)

__all__ = [
    "FamilyChange",
    "KernelChange",
    "PhaseSplit",
    "ProfileComparison",
    "Substitution",
    "Uniform",
    "Unit",
    "Use",
    "Verdict",
]
