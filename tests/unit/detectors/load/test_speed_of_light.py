"""How near steps come to what the hardware allows, with the published sizes of real models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.model_shape import read_model_shape
from cyclewatch.collectors.records import ForwardMode
from cyclewatch.detectors.load.physical_bound import Load
from cyclewatch.detectors.load.speed_of_light import ServedModel, speed_of_light_ratios
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.windows import CellWindow, summarise
from model_configs import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_3_8B, MIXTRAL_8X7B, QWEN3_8B
from served_models import H200, LLAMA_ON_H200
from simulated import cycles

MODELS = {
    "llama": LLAMA_3_8B,
    "qwen": QWEN3_8B,
    "mixtral": MIXTRAL_8X7B,
    "deepseek": DEEPSEEK_V3,
    "gpt-oss": GPT_OSS_120B,
}


def served(config: dict[str, Any], directory: Path, **changes: Any) -> ServedModel:
    (directory / "config.json").write_text(json.dumps(config))
    return ServedModel(read_model_shape(directory / "config.json"), "H200", H200, **changes)


def cell(phase: Phase, mean_ns: float, requests: float, new: float, cached: float, count: int = 10) -> CellWindow:
    return CellWindow(
        phase, 8, count, mean_ns, mean_ns, mean_ns, mean_ns, mean_ns, (0.0,) * 6, 0.5, requests, new, cached, 0
    )


def test_a_decode_at_its_bound_has_a_ratio_of_one(tmp_path: Path) -> None:
    """One request of Llama-3-8B reads 15 GB: 3.127 ms on an H200. At twice the time the ratio is a half."""
    llama = served(LLAMA_3_8B, tmp_path)
    (ratio,) = speed_of_light_ratios(llama, [cell(Phase.DECODE, 3.127e6, 1, 0, 1)]).values()
    assert ratio == pytest.approx(1.0, rel=1e-3)
    assert speed_of_light_ratios(llama, [cell(Phase.DECODE, 6.254e6, 1, 0, 1)]) == {
        Phase.DECODE: pytest.approx(0.5, rel=1e-3)
    }


def test_a_prefill_is_held_against_its_operations(tmp_path: Path) -> None:
    """8192 tokens of Llama-3-8B take at least 133.4 ms."""
    cells = [cell(Phase.EXTEND, 200e6, 1, 8192, 8192)]
    assert speed_of_light_ratios(served(LLAMA_3_8B, tmp_path), cells) == {
        Phase.EXTEND: pytest.approx(0.1334 / 0.2, rel=1e-3)
    }


@pytest.mark.parametrize("name", MODELS)
def test_cells_count_by_their_cycles_and_phases_stay_apart(tmp_path: Path, name: str) -> None:
    """The bounds of all cycles over their times, for every kind of model."""
    model = served(MODELS[name], tmp_path)
    cells = [
        cell(Phase.DECODE, 20e6, 4, 0, 4000, count=30),
        cell(Phase.DECODE, 30e6, 64, 0, 128_000, count=10),
        cell(Phase.EXTEND, 300e6, 2, 4096, 6000, count=1),
    ]
    ratios = speed_of_light_ratios(model, cells)
    least_s = 30 * model.bound(Load(4, 4, 4000)).seconds + 10 * model.bound(Load(64, 64, 128_000)).seconds
    assert ratios == {
        Phase.DECODE: pytest.approx(least_s / (30 * 20e-3 + 10 * 30e-3)),
        Phase.EXTEND: pytest.approx(model.bound(Load(2, 4096, 6000)).seconds / 0.3),
    }


def test_new_tokens_of_a_decode_are_left_over_and_do_not_count(tmp_path: Path) -> None:
    llama = served(LLAMA_3_8B, tmp_path)
    stale, clean = (speed_of_light_ratios(llama, [cell(Phase.DECODE, 5e6, 8, new, 4000)]) for new in (9999, 0))
    assert stale == clean


def test_other_phases_and_cells_without_a_load_have_none(tmp_path: Path) -> None:
    """A cycle of theirs holds a part of another step, or nothing is known of its work."""
    cells = [cell(phase, 5e6, 8, 8, 4000) for phase in Phase if phase not in (Phase.DECODE, Phase.EXTEND)]
    cells += [cell(Phase.EXTEND, 5e6, 8, 0, 4000), cell(Phase.DECODE, 5e6, 0, 0, 0)]
    assert speed_of_light_ratios(served(LLAMA_3_8B, tmp_path), cells) == {}


def test_the_mean_load_of_a_cell_stands_for_its_cycles(tmp_path: Path) -> None:
    """Within 1 % of the bounds of its cycles one by one, in a window with loads that swing."""
    records = cycles(200, batch_size=[4 + n % 5 for n in range(200)], kv_tokens=[2000 + 37 * n for n in range(200)])
    model = served(DEEPSEEK_V3, tmp_path, tp_size=8)
    (ratio,) = speed_of_light_ratios(model, summarise(0, records).cells).values()
    loads = [Load(int(one["batch_size"]), int(one["batch_size"]), int(one["kv_tokens"])) for one in records]
    each = sum(model.bound(load).seconds for load in loads) / (records["cycle_ns"].sum() / 1e9)
    assert records["mode"][0] == ForwardMode.DECODE
    assert ratio == pytest.approx(each, rel=0.01)


@given(
    mean_ns=st.floats(1, 1e12),
    requests=st.floats(0, 1e5),
    new=st.floats(0, 1e7),
    cached=st.floats(0, 1e9),
    count=st.integers(1, 10_000),
    phase=st.sampled_from(list(Phase)),
)
def test_a_ratio_is_positive_and_falls_as_steps_get_longer(
    mean_ns: float, requests: float, new: float, cached: float, count: int, phase: Phase
) -> None:
    one = cell(phase, mean_ns, requests, new, cached, count)
    twice = replace(one, mean_ns=2 * mean_ns)
    first, second = (speed_of_light_ratios(LLAMA_ON_H200, [cells]) for cells in (one, twice))
    assert first.keys() == second.keys()
    assert all(ratio > 0 and second[phase] == pytest.approx(ratio / 2) for phase, ratio in first.items())
