import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cyclewatch.daemon.cli.app import app
from profile_files import (
    NSYS_COPIED,
    TORCH_TABLE,
    copy,
    dispatch,
    kernel,
    launch,
    mark,
    operator,
    rocprofv3,
    trace,
    write,
)
from shared_data import SHARED, seed

RUNNER = CliRunner()
GOLDEN = Path(__file__).parents[2] / "golden/kernels.json"

TRACE = trace(
    launch(1, 10, 3),
    launch(2, 110, 3, "cudaGraphLaunch"),
    kernel("nvjet_tst_128x64_64x8_1x2_h_bz_splitK_TNT", 20, 60, 1),
    kernel("void cublasLt::splitKreduce_kernel<32, 16, int>(int)", 120, 20, 2),
    kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 145, 15, 2),
    copy(90, 5, 3),
    mark("step[EXTEND bs=2 toks=64]", 20, 60, on_device=True, number=1),
    mark("step[DECODE bs=8]", 120, 50, on_device=True, number=2),
    deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
    distributedInfo={"rank": 1, "world_size": 2},
)


def run(*words: str | Path) -> Result:
    return RUNNER.invoke(app, ["kernels", *map(str, words)])


def document(*words: str | Path) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return write(tmp_path / "trace.json.gz", TRACE)


def test_the_document_is_the_golden_one(file: Path) -> None:
    """The machine-readable contract; users build on it."""
    assert document(file) == json.loads(GOLDEN.read_text())


def test_every_format_has_the_same_keys(tmp_path: Path, file: Path) -> None:
    expected = document(file)
    for content in (NSYS_COPIED, TORCH_TABLE.format(""), rocprofv3(dispatch(1, 100, 200)), trace(operator("mm", 1, 2))):
        found = document(write(tmp_path / "profile", content))
        assert found.keys() == expected.keys()
        assert found["totals"].keys() == expected["totals"].keys()
        assert {frozenset(one) for one in found["kernels"]} == {frozenset(expected["kernels"][0])}
        assert sum(one["share"] for one in found["kernels"]) == pytest.approx(1)
        assert sum(one["share"] for one in found["families"]) == pytest.approx(1)


def test_the_source_that_the_profile_names_comes_first(tmp_path: Path) -> None:
    kernels = document(write(tmp_path / "table", NSYS_COPIED))["kernels"]
    assert kernels[0]["source"] == "pytorch/aten/src/ATen/cuda/CUDABlas.cpp"


def test_several_files_are_a_line_each(tmp_path: Path, file: Path) -> None:
    other = write(tmp_path / "table", NSYS_COPIED)
    result = run(file, tmp_path / "absent", other, "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(file), str(other)]
    assert [line["format"] for line in lines] == ["kineto", "nsys"]
    assert result.exit_code == 1
    assert result.stderr == f"cyclewatch: {tmp_path}/absent: cannot be opened: no such file or directory\n"


def test_people_see_families_steps_kernels_and_operators(file: Path) -> None:
    result = run(file)
    assert result.exit_code == 0
    for text in (
        "kineto, NVIDIA H200, rank 1 of 2",
        "3 kernels of 3 names, 0.095 ms; GPU busy 0.095 ms of 0.140 ms (67.9%)",
        "idle 0.045 ms, of it 0.018 ms waiting for the host, 0.012 ms between kernels, 0.005 ms copying",
        "communication",
        "extend",
        "graph of 2 kernels: 1 replay in decode, 0.035 ms each",
    ):
        assert text in result.stdout


def test_people_see_ranks_together(file: Path) -> None:
    result = run(file, file)
    table = result.stdout.partition("all files")[2]
    assert table.count("trace.json.gz") == 2
    assert "0.015 ms" in table  # the communication of each


def test_no_kernels_is_a_note(tmp_path: Path) -> None:
    file = write(tmp_path / "trace", trace(operator("aten::mm", 1, 2)))
    result = run(file)
    assert result.exit_code == 0
    assert "note: no GPU kernel is recorded in it" in result.stdout
    assert "operators of the CPU by self time" in result.stdout
    assert document(file)["totals"]["calls"] == 0


def test_names_cannot_disturb_the_terminal(tmp_path: Path) -> None:
    file = write(tmp_path / "trace", trace(kernel("evil\x1b[31m[bold]", 1, 2), deviceProperties=[{"name": "\x1b[2J"}]))
    result = run(file)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    result = run(write(tmp_path / "trace", '{"traceEvents": [{'), "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "family", "share"),
    [
        ("000", "gemm", 0.811),
        ("000", "attention", 0.068),
        ("002", "gemm", 0.900),
        ("002", "attention", 0.031),
        ("004", "attention", 0.635),
        ("004", "communication", 0.346),
    ],
)
def test_families_have_the_shares_of_the_sources(number: str, family: str, share: float) -> None:
    found = {one["family"]: one["share"] for one in document(seed(number))["families"]}
    assert found[family] == pytest.approx(share, abs=0.0006)
    assert "other" not in found


def test_real_profiles_are_shown() -> None:
    files = sorted(SHARED.glob("data/traces/*.json.gz"))
    if not files:
        pytest.skip(f"no profiles in {SHARED}/data")
    result = run(*files)
    assert result.exit_code == 0
    assert all(file.name in result.stdout for file in files)
