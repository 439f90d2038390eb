"""What the doctor says of GPUs."""

from cyclewatch.collectors.gpu.door import Code
from cyclewatch.collectors.gpu.recording import RecordedDoor
from cyclewatch.config.settings import Gpu, Settings
from cyclewatch.daemon.check import Check, Level
from cyclewatch.daemon.doctor import gpu_checks
from nvml_lab import recording


def checks(name: str, **answers: list[object]) -> list[Check]:
    played = recording(name)
    played.answers |= {call.replace("_", " ", 1): answer for call, answer in answers.items()}
    return list(gpu_checks(Settings(), RecordedDoor(played)))


def test_a_gpu_is_named_with_what_it_does_not_tell() -> None:
    """It is a note: nothing is wrong."""
    (check,) = checks("old-driver")
    assert (check.subject, check.level) == ("GPU 0", Level.NOTE)
    assert check.finding.startswith("NVIDIA H100 80GB HBM3, ")
    assert "missing in this driver: event_reasons, gpm_supported, temperature" in check.finding
    assert "not supported: power_average, link_count, sw_thermal" in check.finding


def test_a_node_without_a_driver_is_no_fault() -> None:
    (check,) = checks("h200", system_open=[{"error": int(Code.LIBRARY_NOT_FOUND)}])
    assert (check.level, check.finding) == (Level.NOTE, "no NVIDIA driver here: there is no GPU to read")


def test_a_lost_gpu_is_a_fault() -> None:
    found = checks("lost-gpu", gpu1_handle=[{"error": int(Code.GPU_IS_LOST)}])
    assert [check.level for check in found] == [Level.NOTE, Level.BAD]
    assert found[1].finding.startswith("GPU 1 cannot be read: gpu is lost (NVML 15)")


def test_switched_off_is_not_asked() -> None:
    (check,) = gpu_checks(Settings(gpu=Gpu(enabled=False)), RecordedDoor(recording("h200")))
    assert check.finding == "are not read"
