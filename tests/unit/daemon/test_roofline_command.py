import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cyclewatch.daemon.cli.app import app

TERMINAL = {"COLUMNS": "200", "TERM": "dumb"}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["roofline", *words], env=TERMINAL)


def document(*words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_text_for_people() -> None:
    result = run("attention_forward", "--shape", "30793,32,128", "--hardware", "XPU-A", "--time", "124.2ms")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "attention_forward on XPU-A, bf16: tokens 30,793, heads 32, head_dim 128",
        "work       15.54 TFLOP, 1.009 GB moved",
        "intensity  15,396.5 FLOP/byte; the ridge is at 43.9",
        "bound by   compute (the catalogue's own label: compute)",
        "T_SOL      66.78 ms",
        "S          53.8% at 124.20 ms; the catalogue has 53.8% on XPU-A",
    ]


def test_json_for_programs() -> None:
    found = document("silu_and_mul", "--shape", "256,4096", "--dtype", "bf16", "--hardware", "H20")
    assert list(found) == [
        "operator", "shape", "assumed", "dtype", "hardware", "flops", "bytes", "intensity", "ridge", "regime",
        "t_sol_s", "compute_s", "memory_s", "time_s", "s", "catalogue",
    ]  # fmt: skip
    assert found["t_sol_s"] == pytest.approx(0.79e-6, abs=0.005e-6)
    assert found["regime"] == found["catalogue"]["regime"] == "memory"
    assert (found["time_s"], found["s"]) == (None, None)


@pytest.mark.parametrize("time", ["8us", "8 µs", "8000ns", "0.008ms", "0.000008s"])
def test_ways_to_write_a_time(time: str) -> None:
    found = document("silu_and_mul", "--shape", "256,4096", "--hardware", "XPU-A", "--time", time)
    assert found["time_s"] == pytest.approx(8e-6)
    assert found["s"] == pytest.approx(0.074, abs=5e-4)


def test_what_is_assumed_is_said() -> None:
    words = ("unified_attention", "--shape", "1882,16,4,128", "--hardware", "H20")
    assert document(*words)["assumed"] == ["tokens"]
    assert "note: not given, so as the catalogue's figures imply: tokens" in run(*words).stdout


def test_faster_than_light_is_doubted() -> None:
    result = run("rms_norm", "--shape", "10000,1024", "--hardware", "H20", "--time", "1us")
    assert "faster than possible" in result.stdout


@pytest.mark.parametrize(("given", "meant"), [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("FP8", "fp8_e4m3")])
def test_types_have_several_names(given: str, meant: str) -> None:
    assert document("rms_norm", "--shape", "8,64", "--dtype", given, "--hardware", "H20")["dtype"] == meant


def test_a_gpu_may_be_called_as_it_calls_itself() -> None:
    found = document("rms_norm", "--shape", "8,64", "--hardware", "NVIDIA H100 80GB HBM3")
    assert found["hardware"] == "H100 SXM"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which operator? --list shows all"),
        (["silu_mul", "--shape", "1,2", "--hardware", "H20"], "did you mean silu_and_mul"),
        (["rms_norm", "--hardware", "H20"], "wants tokens,hidden (RMS norm: tokens, hidden size)"),
        (["rms_norm", "--shape", "8", "--hardware", "H20"], "lacks hidden"),
        (["rms_norm", "--shape", "8,64"], "--hardware is missing: one of H20"),
        (["rms_norm", "--shape", "8,64", "--hardware", "H21"], "did you mean H20"),
        (["rms_norm", "--shape", "8,64", "--hardware", "\x00" * 10_000], "is known; --list shows those that are"),
        (["rms_norm", "--shape", "8,64", "--hardware", "H20", "--dtype", "fp7"], "no type 'fp7' is known; known are"),
        (["rms_norm", "--shape", "8,64", "--hardware", "H20", "--time", "3"], "with a unit"),
        (["rms_norm", "--shape", "8,64", "--hardware", "H20", "--time", "0ms"], "with a unit"),
        (["rms_norm", "--shape", "8,64", "--hardware", "H20", "--time", "nan"], "with a unit"),
        (["rms_norm", "--shape", "8,64", "--hardware", "A100", "--dtype", "fp8"], "no peak for fp8_e4m3 on A100"),
    ],
)
def test_wrong_words_are_told_what_would_be_right(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


class TestList:
    def test_for_people(self) -> None:
        result = run("--list")
        assert result.exit_code == 0
        for word in ("unified_attention", "39.5%", "109.6 %", "m,k,[n]", "RTX PRO 6000 Blackwell", "fp8 1,979"):
            assert word in result.stdout

    def test_for_programs(self) -> None:
        found = document("--list")
        assert len(found["operators"]) == 30
        assert sum(one["shapes"] for one in found["operators"]) == 440
        assert "MI300X" in found["hardware"]
