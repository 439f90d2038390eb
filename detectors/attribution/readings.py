"""The readings around a change, asked for by name: those that concern the server, and what became of each."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from cyclewatch.detectors.attribution.evidence import Evidence, Trace
from cyclewatch.detectors.attribution.traces import Change, begun, change_of, slack_ns

_PROCESS_ON_GPU = ("gpu.process_memory_bytes", "gpu.process_sm_ratio")


class Readings:
    """The traces of a change, asked for by name and labels; what became of each is worked out once."""

    def __init__(self, evidence: Evidence) -> None:
        self._started_at_ns = evidence.started_at_ns
        self._slack_ns = slack_ns(evidence.levels, evidence.started_at_ns)
        self._of_thread = {"rank": evidence.rank, "process": "scheduler", "thread": "main"}
        self._by_name: dict[str, list[Trace]] = {}
        for trace in evidence.traces:
            self._by_name.setdefault(trace.name, []).append(trace)
        self._gpus = self._own_gpus()
        self._changes: dict[int, Change | None] = {}

    def _own_gpus(self) -> frozenset[str]:
        """GPUs that the server's processes use; empty where that was not read."""
        return frozenset(
            trace.labels["gpu"]
            for name in _PROCESS_ON_GPU
            for trace in self._by_name.get(name, ())
            if "gpu" in trace.labels
        )

    def of(
        self, name: str, labels: Mapping[str, str] | None = None, *, silent: bool = False
    ) -> Iterator[tuple[Trace, Change]]:
        """Traces of this name that concern the scheduler's main thread and fit the labels, with what became of them.

        Labels that a trace does not have do not matter, but those asked for must be there. A `silent` reading is told
        only while it is not zero.
        """
        for trace in self._by_name.get(name, ()):
            if not all(fnmatchcase(trace.labels.get(key, ""), pattern) for key, pattern in (labels or {}).items()):
                continue
            if any(trace.labels.get(key, value) != value for key, value in self._of_thread.items()):
                continue
            if self._gpus and trace.labels.get("gpu", next(iter(self._gpus))) not in self._gpus:
                continue
            change = self._change(trace, silent=silent)
            if change is not None:
                yield trace, change

    def is_of_another_gpu(self, subject: str) -> bool:
        """Whether an event's subject (`gpu3`, `gpu3.ecc`) is a GPU that the server surely does not use."""
        named = re.match(r"gpu(\d+)", subject)
        return bool(self._gpus) and named is not None and named[1] not in self._gpus

    def moved(self, name: str, labels: Mapping[str, str] | None = None) -> bool | None:
        """Whether any trace of this name changed when the cycle did; None where none was read."""
        changes = [change for _, change in self.of(name, labels)]
        return any(change.sure and change.at_start for change in changes) if changes else None

    def _change(self, trace: Trace, *, silent: bool) -> Change | None:
        if id(trace) not in self._changes:
            self._changes[id(trace)] = change_of(trace, self._started_at_ns, self._slack_ns)
        change = self._changes[id(trace)]
        if change is None and silent and self._was_read_before(trace):
            return begun(trace, self._started_at_ns, self._slack_ns)
        return change

    def _was_read_before(self, trace: Trace) -> bool:
        """Whether anything else of the same device was read before the change: a silent reading was zero then."""
        return any(
            other.labels.get("gpu") == trace.labels.get("gpu") and other.at_ns.min() < self._started_at_ns
            for others in self._by_name.values()
            for other in others
            if other is not trace and other.name.partition(".")[0] == trace.name.partition(".")[0]
        )
