"""Recorded NVML answers, and the door that plays them; `recorder.py` takes them down.

A recording is a JSON object. `provenance` says what made it: chip, driver, date, how. `answers` has a list for each
call, named by what was asked of what, for example `gpu0 sm_clock` or `gpu0 field 83`: its answers in order, of which
the last holds on. `{"error": 3}` stands for an NVML error. What a recording does not have is not supported.
`events` are the answers to waits, each given once.
"""

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cyclewatch.collectors.gpu.door import (
    ALL_LINKS,
    Answer,
    Code,
    Event,
    Field,
    Handle,
    Memory,
    MigSlice,
    Number,
    NvmlError,
    ProcessMemory,
    ProcessUse,
    Text,
    Utilization,
)

SYSTEM = "system"
"""What stands for the system where a GPU would stand."""
_GPU = re.compile("^gpu[0-9]+")


class Recording:
    """What is in the file: provenance, answers by call, events."""

    def __init__(self, provenance: Mapping[str, str]) -> None:
        self.provenance = dict(provenance)
        self.answers: dict[str, list[Any]] = {}
        self.events: list[list[Any]] = []

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """The recording in a file.

        Raises:
            ValueError: no recording.
            OSError: no such file.
        """
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not {"provenance", "answers"} <= content.keys():
            raise ValueError(f"{path} is no recording of NVML: it has no provenance and answers")
        recording = cls(content["provenance"])
        recording.answers = content["answers"]
        recording.events = content.get("events", [])
        return recording

    def save(self, path: Path) -> None:
        """Write it, one call a line."""
        lines = ",\n".join(f"  {json.dumps(call)}: {json.dumps(self.answers[call])}" for call in sorted(self.answers))
        head = f'"provenance": {json.dumps(self.provenance)},\n"events": {json.dumps(self.events)}'
        path.write_text(f'{{{head},\n"answers": {{\n{lines}\n}}}}\n', encoding="utf-8")


class RecordedDoor:
    """Plays a recording; with `copies`, as a node that has its first GPU so many times."""

    def __init__(self, recording: Recording, copies: int | None = None) -> None:
        self._answers = recording.answers
        self._copies = copies
        self._asked: dict[str, int] = {}
        self._events = list(recording.events)
        self._waiting = threading.Lock()

    def _play(self, place: Handle | None, call: str) -> Any:  # noqa: ANN401 (an answer as JSON has it)
        asked = f"{SYSTEM if place is None else place} {call}"
        recorded = _GPU.sub("gpu0", asked) if self._copies else asked
        answers = self._answers.get(recorded)
        if not answers:
            raise NvmlError(Code.NOT_SUPPORTED)
        turn = self._asked.get(asked, 0)
        self._asked[asked] = turn + 1
        answer = answers[min(turn, len(answers) - 1)]
        if isinstance(answer, dict):
            raise NvmlError(answer["error"])
        return answer

    def open(self) -> None:
        """Succeeds unless `system open` says otherwise."""
        if f"{SYSTEM} open" in self._answers:
            self._play(None, "open")

    def close(self) -> None:
        """Nothing is held."""

    def gpu_count(self) -> int:
        """As recorded, or the copies."""
        return self._copies if self._copies is not None else int(self._play(None, "gpu_count"))

    def gpu(self, index: int) -> Handle:
        """Succeeds unless `gpuN handle` says otherwise."""
        place = f"gpu{index}"
        if f"{place} handle" in self._answers:
            self._play(place, "handle")
        return place

    def number(self, gpu: Handle | None, query: Number) -> int:
        """As recorded."""
        return int(self._play(gpu, query))

    def text(self, gpu: Handle | None, query: Text) -> str:
        """As recorded."""
        return str(self._play(gpu, query))

    def fields(self, gpu: Handle, fields: Sequence[Field]) -> list[Answer]:
        """As recorded, field by field; an error recorded for `fields` is one of the whole call."""
        if f"{gpu} fields" in self._answers:
            self._play(gpu, "fields")
        return [self._answer(gpu, field_name(field)) for field in fields]

    def _answer(self, place: Handle, call: str) -> Answer:
        try:
            return Answer(self._play(place, call))
        except NvmlError as error:
            return Answer(0, error.code)

    def memory(self, gpu: Handle) -> Memory:
        """As recorded."""
        return Memory(*self._play(gpu, "memory"))

    def utilization(self, gpu: Handle) -> Utilization:
        """As recorded."""
        return Utilization(*self._play(gpu, "utilization"))

    def processes(self, gpu: Handle) -> list[ProcessMemory]:
        """As recorded."""
        return [ProcessMemory(*one) for one in self._play(gpu, "processes")]

    def process_use(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """As recorded, but for samples that are too old."""
        return [ProcessUse(*one) for one in self._play(gpu, "process_use") if one[1] > since_us]

    def process_use_v1(self, gpu: Handle, since_us: int) -> list[ProcessUse]:
        """As recorded, but for samples that are too old."""
        return [ProcessUse(*one) for one in self._play(gpu, "process_use_v1") if one[1] > since_us]

    def mig_slices(self, gpu: Handle) -> list[MigSlice]:
        """As recorded: UUID, GPU instance and compute instance of each."""
        return [
            MigSlice(f"{gpu} mig{instance}", uuid, instance, compute)
            for uuid, instance, compute in self._play(gpu, "mig_slices")
        ]

    def gpm_supported(self, gpu: Handle) -> bool:
        """As recorded."""
        return bool(self._play(gpu, "gpm_supported"))

    def gpm_buffer(self) -> Handle:
        """Something to remember what was sampled."""
        return [""]

    def gpm_free(self, buffer: Handle) -> None:
        """Nothing is held."""

    def gpm_sample(self, gpu: Handle, gpu_instance: int | None, buffer: Handle) -> None:
        """Remember what was sampled; metrics are recorded, samples are not, unless they fail."""
        place = place_name(gpu, gpu_instance)
        if f"{place} gpm_sample" in self._answers:
            self._play(place, "gpm_sample")
        assert isinstance(buffer, list)
        buffer[0] = place

    def gpm_metrics(self, older: Handle, newer: Handle, metrics: Sequence[int]) -> list[Answer]:
        """As recorded, metric by metric."""
        del older
        assert isinstance(newer, list)
        return [self._answer(newer[0], f"gpm {metric}") for metric in metrics]

    def event_set(self) -> Handle:
        """Succeeds unless `system event_set` says otherwise."""
        if f"{SYSTEM} event_set" in self._answers:
            self._play(None, "event_set")
        return SYSTEM

    def event_free(self, events: Handle) -> None:
        """Nothing is held."""

    def event_register(self, events: Handle, gpu: Handle, kinds: int) -> None:
        """Succeeds unless `gpuN event_register` says otherwise."""
        del events, kinds
        if f"{gpu} event_register" in self._answers:
            self._play(gpu, "event_register")

    def event_wait(self, events: Handle, timeout_ms: int) -> Event | None:
        """The next recorded event at once; when there is none left, none after the timeout."""
        del events
        with self._waiting:
            event = self._events.pop(0) if self._events else None
        if event is None:
            time.sleep(timeout_ms / 1000)
            return None
        return Event(*event)


def field_name(field: Field) -> str:
    """How a field is named in a recording."""
    scope = {0: "", ALL_LINKS: " all"}.get(field.scope, f" link {field.scope}")
    return f"field {field.number}{scope}"


def place_name(gpu: Handle, gpu_instance: int | None) -> str:
    """How a GPU or an instance of it is named in a recording."""
    return str(gpu) if gpu_instance is None else f"{gpu} mig{gpu_instance}"
