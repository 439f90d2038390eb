"""Taking NVML's answers down: a door in front of another one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cyclewatch.collectors.gpu.door import (
    Answer,
    Code,
    Event,
    Field,
    Handle,
    Memory,
    MigSlice,
    Number,
    NvmlDoor,
    NvmlError,
    ProcessMemory,
    ProcessUse,
    Text,
    Utilization,
)
from cyclewatch.collectors.gpu.recording import SYSTEM, Recording, field_name, place_name

Result = TypeVar("Result")


class RecordingDoor:
    """Takes down what another door answers, at most `limit` answers of each call."""

    def __init__(self, door: NvmlDoor, provenance: Mapping[str, str], limit: int = 8) -> None:
        self.recording = Recording(provenance)
        self._door = door
        self._limit = limit
        self._names: dict[int, tuple[Handle, str]] = {}  # with the handles, or their ids were given out again
        self._buffers: dict[int, str] = {}

    def _note(self, place: str, call: str, answer: Any) -> None:  # noqa: ANN401 (an answer as JSON has it)
        answers = self.recording.answers.setdefault(f"{place} {call}", [])
        if len(answers) < self._limit:
            answers.append(answer)

    def _take(
        self,
        place: str,
        call: str,
        ask: Callable[[], Result],
        plain: Callable[[Result], Any] = lambda answer: answer,
    ) -> Result:
        try:
            answer = ask()
        except NvmlError as error:
            self._note(place, call, {"error": error.code})
            raise
        self._note(place, call, plain(answer))
        return answer

    def _name(self, handle: Handle | None) -> str:
        return SYSTEM if handle is None else self._names[id(handle)][1]

    def open(self) -> None:
        """Open the other door."""
        self._take(SYSTEM, "open", self._door.open)

    def close(self) -> None:
        """Close the other door."""
        self._door.close()

    def gpu_count(self) -> int:
        """As the other door."""
        return self._take(SYSTEM, "gpu_count", self._door.gpu_count)

    def gpu(self, index: int) -> Handle:
        """As the other door."""
        handle = self._take(f"gpu{index}", "handle", lambda: self._door.gpu(index), lambda _: index)
        self._names[id(handle)] = handle, f"gpu{index}"
        return handle

    def number(self, gpu: Handle | None, query: Number) -> int:
        """As the other door."""
        return self._take(self._name(gpu), query, lambda: self._door.number(gpu, query))

    def text(self, gpu: Handle | None, query: Text) -> str:
        """As the other door; the identity of a GPU is nobody's business and is not taken down."""
        answer = self._take(self._name(gpu), query, lambda: self._door.text(gpu, query))
        if query is Text.UUID:
            self.recording.answers[f"{self._name(gpu)} {query}"] = [f"GPU-{self._name(gpu)}"]
        return answer

    def fields(self, gpu: Handle, fields: Sequence[Field]) -> list[Answer]:
        """As the other door."""
        try:
            answers = self._door.fields(gpu, fields)
        except NvmlError as error:
            self._note(self._name(gpu), "fields", {"error": error.code})
            raise
        for field, answer in zip(fields, answers, strict=True):
            self._note(self._name(gpu), field_name(field), _plain(answer))
        return answers

    def memory(self, gpu: Handle) -> Memory:
        """As the other door."""
        return self._take(self._name(gpu), "memory", lambda: self._door.memory(gpu))

    def utilization(self, gpu: Handle) -> Utilization:
        """As the other door."""
        return self._take(self._name(gpu), "utilization", lambda: self._door.utilization(gpu))

    def processes(self, gpu: Handle) -> list[ProcessMemory]:
        """As the other door."""
        return self._take(self._name(gpu), "processes", lambda: self._door.processes(gpu))

    def process_use(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """As the other door."""
        return self._take(self._name(gpu), "process_use", lambda: self._door.process_use(gpu, since_us))

    def process_use_v1(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """As the other door."""
        return self._take(self._name(gpu), "process_use_v1", lambda: self._door.process_use_v1(gpu, since_us))

    def mig_slices(self, gpu: Handle) -> list[MigSlice]:
        """As the other door."""
        name = self._name(gpu)
        slices = self._take(
            name,
            "mig_slices",
            lambda: self._door.mig_slices(gpu),
            lambda found: [[f"MIG-{one.gpu_instance}", one.gpu_instance, one.compute_instance] for one in found],
        )
        for one in slices:
            self._names[id(one.handle)] = one.handle, f"{name} mig{one.gpu_instance}"
        return slices

    def gpm_supported(self, gpu: Handle) -> bool:
        """As the other door."""
        return self._take(self._name(gpu), "gpm_supported", lambda: self._door.gpm_supported(gpu))

    def gpm_buffer(self) -> Handle:
        """As the other door."""
        return self._door.gpm_buffer()

    def gpm_free(self, buffer: Handle) -> None:
        """As the other door."""
        self._door.gpm_free(buffer)

    def gpm_sample(self, gpu: Handle, gpu_instance: int | None, buffer: Handle) -> None:
        """As the other door."""
        place = place_name(self._name(gpu), gpu_instance)
        self._buffers[id(buffer)] = place
        self._take(place, "gpm_sample", lambda: self._door.gpm_sample(gpu, gpu_instance, buffer))

    def gpm_metrics(self, older: Handle, newer: Handle, metrics: Sequence[int]) -> list[Answer]:
        """As the other door."""
        answers = self._door.gpm_metrics(older, newer, metrics)
        for metric, answer in zip(metrics, answers, strict=True):
            self._note(self._buffers[id(newer)], f"gpm {metric}", _plain(answer))
        return answers

    def event_set(self) -> Handle:
        """As the other door."""
        return self._door.event_set()

    def event_free(self, events: Handle) -> None:
        """As the other door."""
        self._door.event_free(events)

    def event_register(self, events: Handle, gpu: Handle, kinds: int) -> None:
        """As the other door."""
        self._take(self._name(gpu), "event_register", lambda: self._door.event_register(events, gpu, kinds))

    def event_wait(self, events: Handle, timeout_ms: int) -> Event | None:
        """As the other door."""
        event = self._door.event_wait(events, timeout_ms)
        if event is not None:
            self.recording.events.append([self._name(event.gpu), *event[1:]])
        return event


def _plain(answer: Answer) -> Any:  # noqa: ANN401 (an answer as JSON has it)
    return answer.value if answer.code == Code.SUCCESS else {"error": answer.code}
