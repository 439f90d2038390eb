"""What a change is made of and what is behind it: `evidence` goes in, the split and ranked causes come out."""

from cyclewatch.detectors.attribution.bound_split import BoundSplit, StepBound, bound_split
from cyclewatch.detectors.attribution.evidence import (
    Cause,
    Event,
    Evidence,
    RankCycles,
    StageMeans,
    Status,
    Trace,
)
from cyclewatch.detectors.attribution.ranking import causes
from cyclewatch.detectors.attribution.split import Split, split, split_of
from cyclewatch.detectors.split_part import SplitPart

__all__ = [
    "BoundSplit",
    "Cause",
    "Event",
    "Evidence",
    "RankCycles",
    "Split",
    "SplitPart",
    "StageMeans",
    "Status",
    "StepBound",
    "Trace",
    "bound_split",
    "causes",
    "split",
    "split_of",
]
