import pytest

from cyclewatch.collectors.profiles.steps import process_of, step_name


@pytest.mark.parametrize(
    ("name", "phase", "batch_size"),
    [
        ("step[DECODE bs=32]", "decode", 32),
        ("step[EXTEND bs=15 toks=15360]", "extend", 15),
        ("step[DECODE bs=4 kv=17 forward_id=9]", "decode", 4),
        ("step[VERIFY bs=8]", "verify", 8),
        ("step[DRAFT_EXTEND bs=8]", "draft_extend", 8),
        ("step[IDLE]", "idle", None),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", "decode", 32),
        ("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)", "mixed", 46),
        ("execute_context_1(8192)_generation_0(0)", "extend", 1),
        ("execute_new_2_cached_0", "extend", 2),
        ("execute_new_0_cached_7", "decode", 7),
        ("ProfilerStep#1009", "", None),
    ],
)
def test_names_tell_phase_and_batch_size(name: str, phase: str, batch_size: int | None) -> None:
    said = step_name(name)
    assert said is not None
    assert (said.phase, said.batch_size) == (phase, batch_size)
    assert said.of_engine == (not name.startswith("Profiler"))


@pytest.mark.parametrize("name", ["", "aten::mm", "step", "steps[DECODE bs=1]", "execute_", "Optimizer.step#SGD.step"])
def test_other_names_are_no_steps(name: str) -> None:
    assert step_name(name) is None


@pytest.mark.parametrize(("pid", "process"), [(7, ""), ("7", ""), ("[TP00] 7", "[TP00]"), (None, "")])
def test_merged_traces_name_their_processes(pid: object, process: str) -> None:
    assert process_of(pid) == process
