"""What a comparison of two kernel profiles says."""

from dataclasses import dataclass
from enum import StrEnum

from cyclewatch.detectors.kernels.families import Family
from cyclewatch.detectors.split_part import SplitPart

_NOISE = 0.01
"""From this p-value on a difference may be chance."""


class Verdict(StrEnum):
    """What became of a kernel, a call of it or the number of its calls."""

    SLOWER = "slower"
    FASTER = "faster"
    MORE_CALLS = "more_calls"
    FEWER_CALLS = "fewer_calls"
    NEW = "new"
    GONE = "gone"
    SAME = "same"


class Unit(StrEnum):
    """What times and numbers of calls are of."""

    STEP = "step"
    REPLAY = "replay"
    """One replay of the largest CUDA or HIP graph that both profiles have."""
    CYCLE = "cycle"
    SECOND = "second"
    """Of the span from the first kernel to the last."""
    PROFILE = "profile"
    """The work of the profile before: the one after is scaled to as many calls."""


@dataclass(frozen=True, slots=True)
class Use:
    """How a kernel was used in one profile."""

    calls: float
    """A unit."""
    ns: float
    """A unit."""
    mean_ns: float
    """A call; so are the two that follow, None where the profile does not tell them."""
    median_ns: float | None
    std_ns: float | None
    share: float
    """Of the time of everything in the phase, 0 to 1."""


@dataclass(frozen=True, slots=True)
class KernelChange:
    """One kernel in one phase, before and after; None on the side that does not have it."""

    key: str
    short: str
    name: str
    """As one of the files spells it."""
    family: Family
    phase: str
    verdict: Verdict
    before: Use | None
    after: Use | None
    delta_ns: float
    """How much longer it took a unit."""
    effect: float | None
    """Ratio of the time of a call, after over before, minus 1."""
    p_value: float | None
    """Two-sided, of `effect` by the spread of the calls, for this kernel alone; None where a spread is not told."""
    operator: str = ""
    library: str = ""
    group: str = ""
    """Kernels of one group are started together by one call (`KernelIdentity.group`)."""
    inferred: bool = False
    """A cut name was taken for what begins so."""


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """One family over all phases, before and after, a unit; shares are of everything in the profile, 0 to 1."""

    family: Family
    before_ns: float
    after_ns: float
    before_calls: float
    after_calls: float
    before_share: float
    after_share: float

    @property
    def delta_ns(self) -> float:
        """How much longer it took a unit."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True)
class Substitution:
    """Kernels that went, and others that do their work; short names, times a unit."""

    family: Family
    operator: str
    phase: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    before_ns: float
    after_ns: float
    before_library: str
    after_library: str

    @property
    def delta_ns(self) -> float:
        """How much longer the work takes a unit."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True)
class Uniform:
    """Nearly all kernels became slower, or faster, together: a clock or a neighbour does that, a kernel does not.

    `factor` is the median of after over before, a call; `low` and `high` hold eight tenths of the time.
    """

    factor: float
    low: float
    high: float
    kernels: int


@dataclass(frozen=True, slots=True)
class PhaseSplit:
    """One phase: how often, how long a unit took, and what of. Parts add up to the whole on both sides."""

    phase: str
    before_count: float
    after_count: float
    before_ns: float
    after_ns: float
    parts: tuple[SplitPart, ...]
    p_value: float | None = None
    """Two-sided, that a unit took another time, by the spread of the steps; None where too few are told."""

    @property
    def may_be_noise(self) -> bool:
        """Whether the difference between both wholes cannot be told from the scatter of the steps."""
        return self.p_value is not None and self.p_value > _NOISE


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """Two kernel profiles side by side.

    Where `comparable` is false (other hardware, model or load; `reasons` say it), differences are no regression, and
    the verdicts on kernels claim none. Kernels, families and substitutions stand in the order of how much longer or
    shorter they took, the largest first.
    """

    comparable: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    unit: Unit
    kernels: tuple[KernelChange, ...]
    families: tuple[FamilyChange, ...]
    substitutions: tuple[Substitution, ...]
    phases: tuple[PhaseSplit, ...]
    """The phase with most time first."""
    uniform: Uniform | None

    @property
    def parts(self) -> tuple[SplitPart, ...]:
        """The split of the phase with most time; empty where the profiles have no phase in common."""
        return self.phases[0].parts if self.phases else ()

    @property
    def may_be_noise(self) -> bool:
        """Whether no kernel changed, and no phase took a time that cannot be scatter."""
        changed = self.uniform or self.substitutions or any(one.verdict is not Verdict.SAME for one in self.kernels)
        return not changed and all(phase.may_be_noise for phase in self.phases)
