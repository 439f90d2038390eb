"""What every split of a time gives, whether by stages of a cycle or by kernels of a step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SplitPart:
    """One part of the mean cycle, before and after; microseconds."""

    part: str
    before_us: float
    after_us: float

    @property
    def delta_us(self) -> float:
        """How much longer it became."""
        return self.after_us - self.before_us
