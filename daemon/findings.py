"""From evidence to the rows that are stored and shown."""

from collections.abc import Iterable
from typing import Any

from cyclewatch.daemon.watch import Findings
from cyclewatch.detectors.attribution import BoundSplit, Evidence, SplitPart, StepBound, bound_split, causes, split_of
from cyclewatch.detectors.load.speed_of_light import ServedModel


def findings_of(evidence: Evidence, served_before: ServedModel | None, served_after: ServedModel | None) -> Findings:
    """The split of a slowdown, its causes, most likely first, and how far it is from what the GPUs that serve allow."""
    parts = split_of(evidence).parts
    bound = bound_split(evidence, parts, served_before, served_after)
    return Findings(
        split=tuple(split_rows(parts)),
        causes=tuple(
            {
                "rank": place,
                "kind": cause.kind,
                "subject": cause.subject,
                "device": cause.device,
                "score": round(cause.score, 4),
                "share": None if cause.share is None else round(cause.share, 4),
                "status": cause.status.value,
                "evidence": list(cause.evidence),
            }
            for place, cause in enumerate(causes(evidence, parts), start=1)
        ),
        physical_bound=None if bound is None else bound_document(bound),
    )


def split_rows(parts: Iterable[SplitPart]) -> list[dict[str, Any]]:
    """Parts of a time; microseconds."""
    return [
        {
            "part": part.part,
            "before_us": round(part.before_us, 3),
            "after_us": round(part.after_us, 3),
            "delta_us": round(part.delta_us, 3),
        }
        for part in parts
    ]


def bound_document(bound: BoundSplit) -> dict[str, Any]:
    """Both sides against their bounds, as stored, shown by the API, and in `cyclewatch compare --json`."""
    return {
        "before": _side(bound.before),
        "after": _side(bound.after),
        "above": split_rows(bound.above),
    }


def _side(one: StepBound) -> dict[str, Any]:
    return {
        "gpu": one.gpu,
        "at_least_us": round(one.at_least_us, 3),
        "above_us": round(one.above_us, 3),
        "bound_by": one.bound_by,
        "speed_of_light_ratio": round(one.ratio, 4),
    }
