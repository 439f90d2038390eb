import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.config.settings import Detection, Settings
from cyclewatch.daemon.cli.model import _duration
from cyclewatch.daemon.store.unit import Run, Unit
from cyclewatch.daemon.watch import SeriesKey, SeriesWatch
from cyclewatch.detectors.load.workload import WorkloadModel
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.windows import cells_of
from model_configs import LLAMA_3_8B
from shell import Shell
from simulated import WINDOW_NS, server
from units import RUN, SECOND

GOLDEN = Path(__file__).parents[2] / "golden/model.json"
SAVED_NS = 1_800_000_000 * SECOND
SETTINGS = Settings(detection=Detection(reference_s=100))


MODEL = WorkloadModel(
    Phase.DECODE,
    coefficients=(5e6, 3e5, 0.0, 200.0),
    covariance=((4e8, 0.0, 0.0, 0.0), (0.0, 1e6, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 100.0)),
    offsets={8: 0.004, 4: -0.02},
    offset_windows={8: 90, 4: 12},
    seen=((1.0, 1.0), (4.0, 11.0), (0.0, 0.0), (2000.0, 6000.0)),
)


def model_show(directory: Path) -> Shell:
    return Shell(directory, "model", "show", settings="[detection]\nreference_s = 100\n")


def saved_states(runs: Sequence[Run] = (), **states: Any) -> Unit:
    """States by the key of their series, with _ for |."""
    return Unit(SAVED_NS, runs=list(runs), states={key.replace("_", "|"): one for key, one in states.items()})


def state(windows: int, model: WorkloadModel | None = None) -> dict[str, Any]:
    """What a watch of a decoding server saves after so many windows; requests go from 4 to 11.

    With a `model` it is as if that one had been learned.
    """
    watch = SeriesWatch(
        SeriesKey("server", "tp0", "decode", "f00d"), Parameters.of(SETTINGS.detection, SETTINGS.windows)
    )
    sizes = [4 + window % 8 for window in range(windows)]
    for window, records in server(windows, seed=1, noise=0.002, batch_sizes=sizes):
        watch.update(window * WINDOW_NS, records, list(cells_of(Phase.DECODE, records)))
    watch.detector.model = model or watch.detector.model
    saved: dict[str, Any] = json.loads(json.dumps(watch.state()))
    return saved


@pytest.fixture(name="saved", scope="module")
def _saved(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    saved = model_show(tmp_path_factory.mktemp("saved"))
    saved.store(saved_states(server_tp0_decode_f00d=state(80, MODEL), server_tp1_decode_f00d=state(10)))
    return saved


def approximate(value: Any) -> Any:
    """The same, with fractions compared roughly: they may differ in their last digits between machines."""
    if isinstance(value, dict):
        return {key: approximate(one) for key, one in value.items()}
    if isinstance(value, list):
        return [approximate(one) for one in value]
    return pytest.approx(value, rel=0.05, abs=1e-3) if isinstance(value, float) else value


def test_the_document_is_the_golden_one(saved: Shell) -> None:
    """The machine-readable contract; users build on it."""
    assert saved.json() == approximate(json.loads(GOLDEN.read_text()))


def test_costs_are_those_of_the_server(tmp_path: Path) -> None:
    """5 ms, 0.3 ms a request, 0.2 µs a cached token; in nanoseconds."""
    saved = model_show(tmp_path)
    saved.store(saved_states(server_tp0_decode_f00d=state(80)))
    (first,) = saved.json("--target", "server")
    costs = {one["feature"]: one["ns"] for one in first["costs"]}
    assert costs["fixed"] == pytest.approx(5e6, rel=0.1)
    assert costs["kv_tokens"] == pytest.approx(200, rel=0.3)
    assert costs["batch_size"] + costs["new_tokens"] == pytest.approx(3e5, rel=0.3)
    assert {one["bucket"] for one in first["offsets"]} <= set(range(4, 12))


class TestPhysicalBound:
    """One H200 with Llama-3-8B: 11 requests with 6000 cached tokens take 15.8 GB of reading."""

    def saved(self, directory: Path, **changes: Any) -> Shell:
        (directory / "config.json").write_text(json.dumps(LLAMA_3_8B))
        saved = model_show(directory)
        run = replace(RUN, model=str(directory), arguments={"tp_size": 1}, environment={"gpu0.model": "NVIDIA H200"})
        saved.store(saved_states([replace(run, **changes)], server_tp0_decode_f00d=state(30, MODEL)))
        return saved

    def test_what_is_expected_is_held_against_what_is_possible(self, tmp_path: Path) -> None:
        (document,) = self.saved(tmp_path).json()
        bound = document["physical_bound"]
        read_bytes = 2 * (7_504_658_432 + 11 * 4096) + 6000 * 131_072
        assert bound == {
            "gpu": "H200",
            "batch_size": 11,
            "new_tokens": 0,
            "kv_tokens": 6000,
            "expected_ns": pytest.approx(5e6 + 11 * 3e5 + 6000 * 200),
            "at_least_ns": pytest.approx(read_bytes / 4.8e12 * 1e9),
            "speed_of_light_ratio": pytest.approx(read_bytes / 4.8e12 * 1e9 / 9.5e6),
            "bound_by": "memory",
        }
        text = self.saved(tmp_path).run().stdout
        assert "at the most loaded (11 requests, 0 new and 6,000 cached tokens): 9.5 ms; H200 needs at least" in text
        assert re.search(r"3\.29\d ms \(memory\), 35% of it", " ".join(text.split()))

    def test_arguments_of_the_server_count(self, tmp_path: Path) -> None:
        """Two GPUs, weights and cache in FP8."""
        changes = {"arguments": {"tp_size": 2, "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}}
        (document,) = self.saved(tmp_path, **changes).json()
        read_bytes = (6_979_321_856 + 2 * (525_336_576 + 11 * 4096)) / 2 + 6000 * 131_072 / 4
        assert document["physical_bound"]["at_least_ns"] == pytest.approx(read_bytes / 4.8e12 * 1e9)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"environment": {}}, "the peaks of the GPU are not known"),
            ({"environment": {"gpu0.model": "Voodoo 2"}}, "the peaks of Voodoo 2 are not known"),
            ({"model": "/nowhere"}, "there is no config.json of /nowhere here"),
        ],
    )
    def test_what_is_missing_is_said(self, tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
        saved = self.saved(tmp_path, **changes)
        assert saved.json()[0]["physical_bound"] == {"unknown": reason}
        assert f"physical bound: {reason}" in saved.run().stdout


def test_people_read_costs_in_their_units(saved: Shell) -> None:
    text = saved.run().stdout
    assert "server, tp0, decode (configuration f00d)" in text
    assert "saved 2027-01-15T08:00:00Z, version " in text
    assert re.search(r"cycle +│ 5 ms +│ 20 µs +│", text)
    assert re.search(r"request +│ 300 µs +│ 1 µs +│ 4 to 11", text)
    assert re.search(r"cached token +│ 200 ns +│ 10 ns +│ 2,000 to 6,000", text)
    assert re.search(r"new token +│ - +│ - +│ none", text)
    assert re.search(r"8 │ as in the baseline │ +\+0\.40% │ +90", text)
    assert "server, tp1, decode (configuration f00d)" in text
    assert "learning the baseline: 50% of it seen" in text


@pytest.mark.parametrize(
    ("ns", "text"), [(5.25e6, "5.25 ms"), (300_000, "300 µs"), (1000, "1 µs"), (200.4, "200 ns"), (0.0, "0 ns")]
)
def test_a_cost_is_shown_in_a_unit_that_fits(ns: float, text: str) -> None:
    assert _duration(ns) == text


def test_an_older_state_is_one_sentence_and_does_not_hide_the_others(tmp_path: Path) -> None:
    saved = model_show(tmp_path)
    good = state(30)
    older = {**good, "detector": {**good["detector"], "version": 1}}
    saved.store(
        saved_states(server_tp0_decode_f00d=older, server_tp1_decode_f00d=good, server_tp2_decode_f00d={"number": 1})
    )
    result = saved.run("--json")
    assert result.exit_code == 1
    assert [one["rank"] for one in json.loads(result.stdout)] == ["tp1"]
    version = good["detector"]["version"]
    assert result.stderr.splitlines() == [
        (
            f"cyclewatch: server|tp0|decode|f00d: detector state of version 1, this release reads {version}; "
            "the daemon learns this baseline anew"
        ),
        "cyclewatch: server|tp2|decode|f00d: not a state of a detector; the daemon learns this baseline anew",
    ]


def test_an_unknown_target_is_one_sentence(saved: Shell) -> None:
    result = saved.run("--target", "nope")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "cyclewatch: no model of target nope in the store; there is server\n"


def test_an_empty_database_is_one_sentence(tmp_path: Path) -> None:
    saved = model_show(tmp_path)
    saved.store()
    result = saved.run()
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "cyclewatch: the store has no model yet: has a server been watched? See `cyclewatch status`\n"
    )


def test_a_missing_database_is_one_sentence_and_none_is_made(tmp_path: Path) -> None:
    saved = model_show(tmp_path)
    result = saved.run()
    assert result.exit_code == 1
    assert result.stderr.startswith(f"cyclewatch: {saved.database}: no database yet")
    assert not saved.database.exists()
