"""The real daemon as a process, for integration tests and demonstrations."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from sglang_cpu.server import free_port

COMMAND = (sys.executable, "-m", "cyclewatch.daemon")
_COMMAND_S = 180
"""How long a command may take where other work has all CPUs."""


@dataclass(frozen=True)
class Phase:
    """What /metrics says of one phase."""

    median_s: float
    ratio: float | None
    baseline_progress: float
    regression_open: bool


class DaemonEndedError(Exception):
    """The daemon is gone while something was waited for: a failure on whatever machine."""


class Daemon:
    """A context manager that runs `cyclewatch run` with settings of its own in a directory of its own."""

    def __init__(self, directory: Path, rings: Path, detection: dict[str, float], extra: str = "") -> None:
        self.directory = directory
        self.config = directory / "cyclewatch.toml"
        self.log_path = directory / "daemon.log"
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        directory.mkdir(parents=True, exist_ok=True)
        keys = "\n".join(f"{key} = {value}" for key, value in detection.items())
        self.config.write_text(
            f'state_dir = "{directory}"\n[rings]\ndirectory = "{rings}"\n[detection]\n{keys}\n'
            f'[web]\nport = {port}\n[log]\nformat = "json"\n{extra}'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the running daemon."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until /readyz says yes."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen([*COMMAND, "run", "--config", str(self.config)], stderr=log)
        try:
            self.wait_for(lambda: self.get("/readyz") is not None, 60, "ready")
        except BaseException:  # also when the test run is interrupted: never leave a daemon behind
            self.kill()
            raise

    def stop(self) -> int:
        """Ask it to drain; gives its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def get(self, path: str) -> str | None:
        """Body of a page; None where it is not there or not well."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                text: str = answer.read().decode()
                return text
        except (urllib.error.URLError, OSError):
            return None

    def command(self, *arguments: str) -> Any:
        """What a command of the command line prints with --json."""
        command = [*COMMAND, *arguments, "--json", "--config", str(self.config)]
        answer = subprocess.run(command, check=False, capture_output=True, timeout=_COMMAND_S)
        assert answer.returncode == 0, answer.stderr.decode() or answer.stdout.decode()
        return json.loads(answer.stdout)

    def regressions(self) -> list[dict[str, Any]]:
        """All regressions (slower), newest first."""
        found: list[dict[str, Any]] = self.command("regressions", "list")
        return found

    def phase(self, name: str) -> Phase | None:
        """State of a phase of the first rank, from /metrics: a command would take a core from the server."""
        page = self.get("/metrics") or ""
        values = {
            sample.name.removeprefix("cyclewatch_"): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.labels.get("phase") == name
        }
        if "cycle_median_seconds" not in values:
            return None
        return Phase(
            median_s=values["cycle_median_seconds"],
            ratio=values.get("cycle_expected_ratio"),
            baseline_progress=values["baseline_progress_ratio"],
            regression_open=values["regression_open"] == 1,
        )

    def settled(self) -> bool:
        """Whether the baseline of decodes stands."""
        phase = self.phase("decode")
        return phase is not None and phase.baseline_progress == 1.0

    def slowed(self) -> bool:
        """Whether a regression of decodes is open."""
        phase = self.phase("decode")
        return phase is not None and phase.regression_open

    def wait_for(self, condition: Callable[[], object], seconds: float, what: str) -> float:
        """Wait until `condition` is true; gives the seconds it took."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            if self._process is not None and self._process.poll() is not None:
                raise DaemonEndedError(f"the daemon ended with {self._process.returncode}:\n{self.log_tail()}")
            if condition():
                return time.monotonic() - started
            time.sleep(1)
        raise AssertionError(f"not {what} within {seconds:.0f} s:\n{self.log_tail()}")

    def log_tail(self, lines: int = 30) -> str:
        """The end of the daemon's log."""
        return "\n".join(self.log_path.read_text().splitlines()[-lines:])
