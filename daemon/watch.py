"""One watched series: its detector, its open regression, and their saved state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.decision import Parameters
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.series import SeriesDetector, Verdict
from cyclewatch.detectors.tracking import Regression, Tracker
from cyclewatch.detectors.windows import CellWindow


@dataclass(frozen=True)
class SeriesKey:
    """What a baseline belongs to: a restart with the same fingerprint finds it again."""

    target: str
    rank: str
    phase: str
    fingerprint: str

    @property
    def text(self) -> str:
        """The key in the store."""
        return f"{self.target}|{self.rank}|{self.phase}|{self.fingerprint}"


@dataclass(frozen=True)
class Findings:
    """The split and the causes of a regression, as they are stored and shown."""

    split: tuple[Mapping[str, Any], ...] = ()
    causes: tuple[Mapping[str, Any], ...] = ()


class SeriesWatch:
    """Watches one phase of one rank of one configuration of a target."""

    def __init__(self, key: SeriesKey, parameters: Parameters) -> None:
        self.key = key
        self.detector = SeriesDetector(Phase(key.phase), parameters)
        self.tracker = Tracker(key.text, parameters)
        self.findings = Findings()

    def update(self, start_ns: int, cycles: Records, cells: Sequence[CellWindow]) -> tuple[Verdict, Regression | None]:
        """Take one window; the regression that is new or altered by it, if any."""
        verdict = self.detector.update(start_ns, cycles, cells)
        return verdict, self.tracker.update(verdict.change) if verdict.change else None

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "detector": self.detector.state(),
            "regression": self.tracker.state(),
            "split": [dict(part) for part in self.findings.split],
            "causes": [dict(cause) for cause in self.findings.causes],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        self.detector.restore(state["detector"])
        self.tracker.restore(state["regression"])
        self.findings = Findings(tuple(state["split"]), tuple(state["causes"]))
