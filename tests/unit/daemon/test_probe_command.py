"""`cyclewatch probe`, with a daemon and without one; and what the doctor says of the GPUs' probe."""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cyclewatch.collectors.probe.programs import ProbeError
from cyclewatch.collectors.records import NODE, Reading
from cyclewatch.config.settings import Engine, Gpu, Host, Probe, Profiling, Rings, Settings
from cyclewatch.config.web import Web
from cyclewatch.daemon.check import Level
from cyclewatch.daemon.cli.app import app
from cyclewatch.daemon.probing import checks, taking
from cyclewatch.daemon.probing.checks import probe_checks
from cyclewatch.daemon.server import Server
from cyclewatch.daemon.store.unit import StoredSample
from shell import Shell
from simulated import cycles
from units import RUN, unit
from watched import SECOND, ring_identity

NO_GPUS = "[gpu]\nenabled = false\n"
NAMES = ("probe.cpu_loop_seconds", "probe.memory_scan_seconds")


@pytest.fixture(name="shell")
def _shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "probe", settings=NO_GPUS)


def play(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """The CPU's work takes this long, by work and kind, or 10 ms."""
    readings = tuple(
        Reading(
            NODE,
            name,
            seconds.get(f"{name.removeprefix('probe.').removesuffix('_seconds')}_{kind}", 0.01),
            (("kind", kind), ("software", "python 3")),
        )
        for name in NAMES
        for kind in ("cpu", "wall")
    )
    monkeypatch.setattr(taking, "probe_cpu", lambda _: readings)


def known(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a history of 10 ms."""
    now_ns = time.time_ns()
    samples = [
        StoredSample(NODE, name, (("kind", kind), ("software", "python 3")), now_ns - hour * 3600 * 10**9, 0.01)
        for hour in range(1, 25)
        for name in NAMES
        for kind in ("cpu", "wall")
    ]
    shell.store(unit(samples=samples))


def test_without_a_daemon_and_without_a_store_it_measures_all_the_same(shell: Shell) -> None:
    """With the work really done."""
    document = shell.json()
    assert document["verdict"] == "not known"
    assert document["reason"] == "asked"
    assert document["notes"] == ["no daemon runs with this state_dir: these times are not kept"]
    assert [work["name"] for work in document["works"]] == [NAMES[0], NAMES[0], NAMES[1], NAMES[1]]
    assert all(work["seconds"] > 0 and work["factor"] is None for work in document["works"])
    text = shell.run().stdout
    assert text.startswith("not known: there is too little to compare with")
    assert "0 of 8 times known" in text


def test_as_usual_it_is_not_the_machine(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    known(shell, monkeypatch)
    play(monkeypatch)
    result = shell.run()
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "not the machine: the same fixed work surely takes less than a tenth longer than usual\n"
    )
    assert "1.00 (0.98 to 1.02)" in result.stdout


@pytest.mark.parametrize(
    ("seconds", "means"),
    [
        (
            {"cpu_loop_cpu": 0.03, "cpu_loop_wall": 0.03, "memory_scan_cpu": 0.03},
            "a core does less in its time: its frequency, or what shares the core with it",
        ),
        (
            {"memory_scan_cpu": 0.02, "memory_scan_wall": 0.02},
            "memory answers more slowly while the core is as fast as usual: others use the cache or the memory",
        ),
        (
            {"cpu_loop_wall": 0.02},
            "the work waits for a CPU: others use them, or the daemon's own CPU limit holds it back",
        ),
    ],
)
def test_what_is_slower_says_what_of_the_machine(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], means: str
) -> None:
    known(shell, monkeypatch)
    play(monkeypatch, **seconds)
    document = shell.json()
    assert (document["verdict"], document["means"]) == ("machine", [means])
    text = shell.run().stdout
    assert text.startswith(f"the machine: the same fixed work takes longer than usual\n{means}\n")


def test_a_probe_that_fails_is_one_sentence(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise ProbeError("the probe by python was ended: it took more than 10 s")

    monkeypatch.setattr(taking, "probe_cpu", fails)
    result = shell.run()
    assert (result.exit_code, result.stderr) == (
        1,
        "cyclewatch: the probe by python was ended: it took more than 10 s\n",
    )


@pytest.fixture(name="directory")
def _directory() -> Iterator[Path]:
    """Short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="state-", dir="/tmp") as directory:
        yield Path(directory)


def test_a_running_daemon_takes_it_keeps_it_and_shows_it(directory: Path) -> None:
    """In the store and at /metrics."""
    config = directory / "cyclewatch.toml"
    config.write_text(f"state_dir = '{directory}/state'\n")
    settings = Settings(
        state_dir=directory / "state",
        rings=Rings(directory=directory / "rings"),
        engine=Engine(enabled=False),
        host=Host(enabled=False),
        gpu=Gpu(enabled=False),
        profiling=Profiling(enabled=False),
        web=Web(port=0),
    )
    server = Server(settings)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        for _ in range(100):
            if (directory / "state/control.sock").exists():
                break
            threading.Event().wait(0.1)
        result = CliRunner().invoke(app, ["probe", "--json", "-c", str(config)])
        assert result.exit_code == 0, result.stderr
        document = json.loads(result.stdout)
        assert document["notes"] == []
    finally:
        server.stop()
        thread.join(30)
    shown = {
        reading.labels: reading.value
        for reading in server.metrics.state.readings()
        if reading.name == "probe.cpu_loop_seconds"
    }
    told = {tuple(one["labels"].items()): one["seconds"] for one in document["works"] if one["name"] == NAMES[0]}
    assert shown == told
    stored = Shell(directory, "probe", settings=NO_GPUS).json()
    assert {work["history"] for work in stored["works"]} == {1}


def test_a_suspicion_of_any_rank_is_one_of_the_machine(directory: Path) -> None:
    """For as long as it is young."""
    server = Server(Settings(state_dir=directory / "state", rings=Rings(directory=directory / "rings")))
    ring, at_ns = ring_identity(), 10**12
    assert not server.profiling.board.suspected(at_ns)
    server.profiling.board.take(ring, RUN, cycles(1))
    server.profiling.board.judged(ring.key, at_ns, settled=True, suspected=True)
    assert server.profiling.board.suspected(at_ns + 29 * SECOND)
    assert not server.profiling.board.suspected(at_ns + 31 * SECOND)


class TestDoctor:
    def found(self, **settings: object) -> list[tuple[Level, str]]:
        probe = Probe(**settings)  # type: ignore[arg-type]
        return [(check.level, check.finding) for check in probe_checks(Settings(probe=probe))]

    def play(self, monkeypatch: pytest.MonkeyPatch, answer: tuple[str, int] | ProbeError) -> None:
        def torch_of(python: str) -> tuple[str, int]:
            if isinstance(answer, ProbeError):
                raise answer
            return answer

        monkeypatch.setattr(checks, "torch_of", torch_of)

    def test_who_did_not_ask_for_it_hears_nothing(self) -> None:
        assert self.found() == []

    def test_a_switch_without_a_python_is_bad(self) -> None:
        assert self.found(gpu=True) == [(Level.BAD, "probe.gpu is true, but probe.gpu_python is not set")]

    def test_gpus_that_are_not_read_cannot_be_left_alone_when_busy(self) -> None:
        settings = Settings(gpu=Gpu(enabled=False), probe=Probe(gpu_python="/bin/python"))
        assert [(check.level, check.finding) for check in probe_checks(settings)] == [(Level.BAD, "GPUs are not read")]

    @pytest.mark.parametrize(
        ("answer", "level", "finding"),
        [
            (ProbeError("/bin/python cannot be run: no"), Level.BAD, "/bin/python cannot be run: no"),
            (("torch 2.11.0+cpu", 0), Level.BAD, "torch 2.11.0+cpu of /bin/python sees no GPU"),
            (
                ("torch 2.11.0+cu130", 8),
                Level.GOOD,
                "torch 2.11.0+cu130 sees 8; they are probed by `cyclewatch probe --gpu` alone",
            ),
        ],
    )
    def test_what_the_python_can_do_is_tried(
        self, monkeypatch: pytest.MonkeyPatch, answer: tuple[str, int] | ProbeError, level: Level, finding: str
    ) -> None:
        self.play(monkeypatch, answer)
        assert self.found(gpu_python="/bin/python") == [(level, finding)]

    def test_when_they_are_probed_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.play(monkeypatch, ("torch 2", 1))
        ((level, finding),) = self.found(gpu=True, gpu_python="/bin/python")
        assert (level, finding) == (Level.GOOD, "torch 2 sees 1; they are probed now and then, and on suspicion")
