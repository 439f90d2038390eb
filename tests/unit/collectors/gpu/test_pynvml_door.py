"""The real door, through nvidia-ml-py and ctypes, on a small library that stands for NVIDIA's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest

from cyclewatch.collectors.gpu.door import Code, Field, Number, NvmlDoor, NvmlError
from cyclewatch.collectors.gpu.pynvml_door import _NUMBERS, _TEXTS, PynvmlDoor, _answer
from cyclewatch.collectors.gpu.recording import RecordedDoor, Recording
from nvml_lab import RECORDINGS

HERE = Path(__file__).parent
READ = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from nvml_lab import Lab
from cyclewatch.collectors.gpu.pynvml_door import PynvmlDoor
from cyclewatch.collectors.gpu.recorder import RecordingDoor

door = RecordingDoor(PynvmlDoor(), {"chip": "stub", "driver": "stub", "date": "now", "how": "by a test"})
lab = Lab(door)
said, failures, xids = [], [], []
for turn in range(17):
    time.sleep(0.01)
    lab.turn()
    said += [[one.name, dict(one.labels), one.value] for one in lab.samples if hasattr(one, "labels")]
    said += [["fact", subject, value] for subject, value in lab.facts().items()]
    xids += [[one.subject, one.detail] for one in lab.happenings()]
    failures += lab.outcome.failures
known = {call: support for call, support in lab.collector.capabilities()["GPU 0"].items()}
lab.collector.close()
door.recording.save(Path(sys.argv[2]))
print(json.dumps({"said": said, "failures": failures, "xids": xids, "known": known}))
"""


@pytest.fixture(name="answers", scope="module")
def _answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a collector said that read the stub, in a process of its own: a library is loaded for good."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stub of libnvidia-ml.so.1 with")
    directory = tmp_path_factory.mktemp("nvml")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, RECORDINGS / "nvml_stub.c"], check=True)
    command: list[str | Path] = [sys.executable, "-W", "error", "-c", READ, HERE.parents[2], directory / "stub.json"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(directory)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers | {"recording": directory / "stub.json"}


def values(answers: dict[str, Any], name: str, **labels: str) -> list[float]:
    return [value for said, on, value in answers["said"] if said == name and labels.items() <= dict(on).items()]


def test_numbers_texts_and_structures_come_through(answers: dict[str, Any]) -> None:
    assert answers["failures"] == []
    facts = {subject: value for kind, subject, value in answers["said"] if kind == "fact"}
    assert facts == {
        "gpus": "1",
        "driver": "570.1",
        "nvml": "12.570.1",
        "cuda": "12.8",
        "gpu0.model": "NVIDIA Stub",
        "gpu0.persistence": "on",
        "gpu0.ecc": "on",
        "gpu0.mig": "off",
    }
    assert set(values(answers, "gpu.sm_clock_hertz")) == {1.98e9}
    assert set(values(answers, "gpu.memory_clock_hertz")) == {3.201e9}
    assert set(values(answers, "gpu.memory_used_ratio")) == {0.25}
    assert set(values(answers, "gpu.utilization_ratio")) == {0.98}
    assert set(values(answers, "gpu.temperature_celsius")) == {55}
    assert set(values(answers, "gpu.temperature_margin_celsius")) == {-3}
    assert set(values(answers, "gpu.event_reason_ratio", reason="idle")) == {1}


def test_fields_of_every_type_come_through(answers: dict[str, Any]) -> None:
    """And per link, where the driver does not sum up."""
    assert set(values(answers, "gpu.power_watts")) == {412.5}
    assert set(values(answers, "gpu.mean_power_watts")) == {500.0}
    assert set(values(answers, "gpu.memory_temperature_celsius")) == {71}
    assert set(values(answers, "gpu.nvlink_links_active")) == {18}
    assert answers["known"]["nvlink/replay"] == "supported"
    assert answers["known"]["ecc/corrected"] == "not supported"


def test_bytes_over_pcie_in_32_bits_are_as_good_as_none(answers: dict[str, Any]) -> None:
    """They wrap many times between two readings; those of 64 bits do not."""
    assert answers["known"]["pcie_sent"] == "not supported"
    assert answers["known"]["pcie_received"] == "supported"
    door = RecordedDoor(Recording.load(answers["recording"]))
    assert door.fields(door.gpu(0), [Field(197), Field(198)]) == [(0, Code.NOT_SUPPORTED), (5_000_000_000, 0)]


@pytest.mark.parametrize(
    ("field", "kind", "code", "expected"),
    [
        (197, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 0, (0, Code.NOT_SUPPORTED)),
        (198, pynvml.NVML_VALUE_TYPE_SIGNED_INT, 0, (0, Code.NOT_SUPPORTED)),
        (198, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, 0, (7, 0)),
        (197, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 0, (7, 0)),
        (197, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, Code.NO_PERMISSION, (0, Code.NO_PERMISSION)),
        (94, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 0, (7, 0)),
        (94, pynvml.NVML_VALUE_TYPE_COUNT, 0, (0, Code.UNKNOWN)),
    ],
)
def test_the_width_of_an_answer_matters_for_bytes_alone(
    field: int, kind: int, code: int, expected: tuple[int, int]
) -> None:
    value = pynvml.c_nvmlFieldValue_t(fieldId=field, valueType=kind, nvmlReturn=code)
    value.value.ullVal = 7
    assert _answer(value) == expected


def test_processes_come_through(answers: dict[str, Any]) -> None:
    """One whose memory is not told does not count; an empty list of samples is no failure."""
    assert set(values(answers, "gpu.other_memory_bytes")) == {200}


def test_gpm_comes_through(answers: dict[str, Any]) -> None:
    """Two samples that follow each other, and metrics that the chip does not have left out."""
    assert set(values(answers, "gpu.sm_ratio")) == {0.1}
    assert set(values(answers, "gpu.pcie_sent_bytes_per_s")) == {20 * 2**20}
    assert not values(answers, "gpu.nvlink_sent_bytes_per_s")


def test_xids_come_through(answers: dict[str, Any]) -> None:
    assert answers["xids"] == [["gpu0", "XID 79: the GPU has fallen off the bus"]]


def test_a_missing_symbol_is_known_as_such(answers: dict[str, Any]) -> None:
    assert answers["known"]["power_limit"] == "missing in this driver"
    assert answers["known"]["uuid"] == "missing in this driver"


def test_what_was_recorded_plays_the_same(answers: dict[str, Any]) -> None:
    """The door that takes down and the door that plays belong together."""
    recording = Recording.load(answers["recording"])
    assert recording.provenance["chip"] == "stub"
    door = RecordedDoor(recording)
    gpu = door.gpu(0)
    assert door.number(gpu, Number.SM_CLOCK) == 1980
    assert door.memory(gpu) == (1000, 250)
    assert door.fields(gpu, [Field(185), Field(3)]) == [(412500, 0), (0, 3)]
    with pytest.raises(NvmlError, match="function not found"):
        door.number(gpu, Number.POWER_LIMIT)


def test_every_query_has_its_call() -> None:
    """And nvidia-ml-py knows each of them by that name."""
    door: NvmlDoor = PynvmlDoor()
    assert door
    names = [name for name, _ in _NUMBERS.values()] + list(_TEXTS.values())
    assert len(_NUMBERS) == len(Number)
    assert all(hasattr(pynvml, name) for name in names)
