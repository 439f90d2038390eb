"""How near each server's steps come to the speed of light, from what is known of its model and GPU."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cyclewatch.collectors.records import NODE, Fact
from cyclewatch.daemon.model_bound import SpeedOfLight, served_model
from cyclewatch.daemon.store.unit import Run
from cyclewatch.detectors.windows import summarise
from model_configs import LLAMA_3_8B, QWEN3_8B
from simulated import cycles
from units import RUN
from watched import SECOND, Watched, batch, ring_identity

CELLS = summarise(0, cycles(50, 10_000_000, batch_size=1, kv_tokens=1)).cells
"""Decodes of one request, of 10 ms each: on an H200 Llama-3-8B needs 3.127 ms."""


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Run:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    return replace(RUN, model=str(tmp_path), arguments={}, environment={"gpu0.model": "NVIDIA H200"})


def ratios(of: SpeedOfLight, run: Run) -> dict[str, float]:
    return {dict(reading.labels)["phase"]: reading.value for reading in of.readings(run, "tp0", CELLS)}


def test_every_phase_of_a_rank_has_a_series(run: Run, tmp_path: Path) -> None:
    (reading,) = SpeedOfLight(tmp_path).readings(run, "tp3", CELLS)
    assert (reading.target, reading.name) == (run.target, "cycles.speed_of_light_ratio")
    assert reading.labels == (("rank", "tp3"), ("phase", "decode"))
    assert reading.value == pytest.approx(0.3127, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"environment": {}}, "the peaks of the GPU are not known"),
        ({"environment": {"gpu0.model": "Voodoo 2"}}, "the peaks of Voodoo 2 are not known"),
        ({"model": "/nowhere"}, "there is no config.json of /nowhere here"),
        ({"arguments": {"pp_size": 2}}, "what each GPU does with pipeline parallelism"),
        ({"arguments": {"enable_dp_attention": True}}, "or data-parallel attention is not known"),
    ],
)
def test_what_is_not_known_is_not_there(run: Run, tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    """It is said once, not with every window."""
    of = SpeedOfLight(tmp_path)
    unknown = replace(run, **changes)
    with capture_logs() as logs:
        assert ratios(of, unknown) == ratios(of, unknown) == {}
    assert [reason in entry["reason"] for entry in logs] == [True]


def test_a_damaged_config_is_no_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    assert ratios(SpeedOfLight(tmp_path), run) == {}


@pytest.mark.parametrize("size", [0, -1, 2.5, "two", True])
def test_a_size_that_makes_no_sense_counts_as_one_gpu(run: Run, tmp_path: Path, size: object) -> None:
    """Arguments come from the server."""
    assert served_model(replace(run, arguments={"tp_size": size}), tmp_path).tp_size == 1


def test_a_gpu_that_becomes_known_later_and_another_model_are_looked_up_anew(run: Run, tmp_path: Path) -> None:
    """NVML is read some seconds after the first window."""
    of = SpeedOfLight(tmp_path)
    assert ratios(of, replace(run, environment={})) == {}
    llama = ratios(of, run)
    (tmp_path / "config.json").write_text(json.dumps(QWEN3_8B))
    assert ratios(of, run) == llama
    assert ratios(of, replace(run, key="another start"))["decode"] > llama["decode"]


def test_a_home_that_is_not_there_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    with pytest.raises(ValueError, match=r"give engine\.hub in full"):
        served_model(run, Path("~/hub"))


class TestPipeline:
    """The daemon on a node with one H200."""

    @pytest.fixture(name="watched")
    def _watched(self, tmp_path: Path) -> Iterator[Watched]:
        watched = Watched(tmp_path)
        yield watched
        watched.close()

    def ratio(self, watched: Watched, directory: Path, **identity: Any) -> float | None:
        """What is published after twenty seconds of decodes."""
        (directory / "config.json").write_text(json.dumps(LLAMA_3_8B))
        ring = ring_identity(server={"model_path": str(directory)}, **identity)
        watched.take(Fact(NODE, "gpu0.model", "NVIDIA H200"), 1)
        records = cycles(2000, 10_000_000, batch_size=1, kv_tokens=1)
        watched.take(batch(records, ring), 20 * SECOND)
        watched.turn(22 * SECOND)
        labels = {"target": "server", "rank": "tp0", "phase": "decode"}
        return watched.metrics.registry.get_sample_value("cyclewatch_cycles_speed_of_light_ratio", labels)

    def test_it_is_published_and_stored(self, watched: Watched, tmp_path: Path) -> None:
        assert self.ratio(watched, tmp_path, synchronous=False) == pytest.approx(0.3127, rel=1e-3)
        watched.stop(30 * SECOND)
        with watched.engine.connect() as connection:
            stored = connection.exec_driver_sql(
                "select count(*) from samples join series on series.id = series_id where name = ?",
                ("cycles.speed_of_light_ratio",),
            ).scalar()
        assert stored == 4

    def test_a_server_on_the_cpu_has_none(self, watched: Watched, tmp_path: Path) -> None:
        """Whatever GPU the node has besides."""
        assert self.ratio(watched, tmp_path, synchronous=True) is None
