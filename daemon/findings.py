"""From evidence to the rows that are stored and shown."""

from cyclewatch.daemon.watch import Findings
from cyclewatch.detectors.attribution import Evidence, causes, split_of


def findings_of(evidence: Evidence) -> Findings:
    """The split of a slowdown and its causes, most likely first."""
    parts = split_of(evidence).parts
    return Findings(
        split=tuple(
            {
                "part": part.part,
                "before_us": round(part.before_us, 3),
                "after_us": round(part.after_us, 3),
                "delta_us": round(part.delta_us, 3),
            }
            for part in parts
        ),
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
    )
