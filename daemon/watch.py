"""One watched series: its detector, its open regression, and their saved state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cyclewatch.collectors.records import Records
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.decision import Parameters, left_over
from cyclewatch.detectors.watching.deployment import Reference, deployment_change
from cyclewatch.detectors.watching.series import SeriesDetector, Verdict
from cyclewatch.detectors.watching.shift_watch import Change, Kind
from cyclewatch.detectors.watching.tracking import Regression, Tracker
from cyclewatch.detectors.windows import CellWindow

_LOOK_AGAIN_NS = 300 * 10**9


@dataclass(frozen=True)
class SeriesKey:
    """What a baseline belongs to: a restart with the same fingerprint finds it again."""

    target: str
    rank: str
    phase: str
    fingerprint: str
    node: str = ""

    @property
    def text(self) -> str:
        """The key in the store, among those of its node."""
        return f"{self.target}|{self.rank}|{self.phase}|{self.fingerprint}"

    @property
    def name(self) -> str:
        """Unique over all nodes."""
        return f"{self.node}|{self.text}"


@dataclass(frozen=True)
class Findings:
    """The split and the causes of a regression, and its steps against the physical bound where that is known.

    As they are stored and shown.
    """

    split: tuple[Mapping[str, Any], ...] = ()
    causes: tuple[Mapping[str, Any], ...] = ()
    physical_bound: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Found:
    """A change and the regression that is new or altered by it."""

    change: Change
    regression: Regression

    @property
    def is_new(self) -> bool:
        """Whether this is the first that is said of it."""
        return self.regression.detected_at_ns == self.change.detected_at_ns

    @property
    def is_measured_again(self) -> bool:
        """Whether nothing has happened but that its size is known better."""
        return self.change.measured_again


class SeriesWatch:
    """Watches one phase of one rank of one configuration of a target."""

    def __init__(self, key: SeriesKey, parameters: Parameters) -> None:
        self.key = key
        self._parameters = parameters
        self.detector = SeriesDetector(Phase(key.phase), parameters)
        self._trackers = {kind: Tracker(key.name, parameters) for kind in Kind}
        self._findings: dict[Kind, Findings] = {}

    def open_regressions(self) -> list[Regression]:
        """What is open, of every kind."""
        return [tracker.open for tracker in self._trackers.values() if tracker.open]

    def update(self, start_ns: int, cycles: Records, cells: Sequence[CellWindow]) -> tuple[Verdict, list[Found]]:
        """Take one window; the regressions that are new or altered by it."""
        verdict = self.detector.update(start_ns, cycles, cells)
        found = [self._track(change) for change in verdict.changes]
        found += [self._track(replace(one, kind=Kind.DEPLOYMENT)) for one in verdict.changes if self._makes_good(one)]
        return verdict, found

    def succeed(self, before: "SeriesWatch", reference: Reference, at_ns: int) -> Found | None:
        """What this configuration, whose baseline was made of `reference`, changed against the one before it."""
        after = before.detector.pace_of(reference)
        if after is None:
            return None
        change = deployment_change(
            before.detector.pace(),
            after,
            self._parameters,
            started_at_ns=reference[0][0],
            detected_at_ns=at_ns + self._parameters.window_ns,
        )
        return None if change is None else self._track(change)

    def look_again(self, at_ns: int) -> list[Found]:
        """A slower deployment once more, some minutes after it was found: by then there is a profile of it."""
        slower = self._trackers[Kind.DEPLOYMENT].open
        if slower is None or not 0 <= at_ns - slower.detected_at_ns - _LOOK_AGAIN_NS < self._parameters.window_ns:
            return []
        change = Change(
            direction=slower.direction,
            started_at_ns=slower.started_at_ns,
            detected_at_ns=at_ns + self._parameters.window_ns,
            before=slower.base,
            after=slower.level,
            effect=slower.effect,
            ci=slower.ci,
            probability=slower.probability,
            windows_after=(at_ns - slower.started_at_ns) // self._parameters.window_ns,
            kind=Kind.DEPLOYMENT,
            measured_again=True,
        )
        return [Found(change, slower)]

    def _track(self, change: Change) -> Found:
        return Found(change, self._trackers[change.kind].update(change))

    def _makes_good(self, change: Change) -> bool:
        """Whether a change takes back what the configuration had made slower."""
        slower = self._trackers[Kind.DEPLOYMENT].open
        if slower is None or change.kind is not Kind.LEVEL or change.measured_again:
            return False
        return not left_over(change.after, slower.base, slower.level, self._parameters)

    def findings(self, kind: Kind) -> Findings:
        """What is known of the cause of the latest regression of a kind."""
        return self._findings.get(kind, Findings())

    def note(self, kind: Kind, findings: Findings) -> None:
        """Keep what is known of the cause of a regression."""
        self._findings[kind] = findings

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON values."""
        return {
            "detector": self.detector.state(),
            "regressions": {kind.value: tracker.state() for kind, tracker in self._trackers.items()},
            "findings": {
                kind.value: {
                    "split": [dict(part) for part in one.split],
                    "causes": [dict(cause) for cause in one.causes],
                    "physical_bound": None if one.physical_bound is None else dict(one.physical_bound),
                }
                for kind, one in self._findings.items()
            },
        }

    def with_parameters(self, parameters: Parameters) -> "SeriesWatch":
        """The same watch by other parameters, as if it had been saved and restored."""
        renewed = SeriesWatch(self.key, parameters)
        renewed.restore(self.state())
        return renewed

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state is of another version.
            KeyError: the state is not one.
        """
        self.detector.restore(state["detector"])
        for kind, tracker in self._trackers.items():
            if kind.value in state["regressions"]:  # those of earlier releases have no deployments
                tracker.restore(state["regressions"][kind.value])
        self._findings = {
            Kind(kind): Findings(tuple(one["split"]), tuple(one["causes"]), one.get("physical_bound"))
            for kind, one in state["findings"].items()
        }
