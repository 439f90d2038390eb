"""A real SGLang under the eyes of a real daemon, and one fault after the other."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import recorded_faults
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.history import StoreHistory
from cyclewatch.daemon.store.stretches import Stretch
from cyclewatch.detectors.attribution import Evidence, causes, split
from daemon_process import Daemon
from sglang_cpu.faults import ControlGroup
from sglang_cpu.server import SGLangServer
from sglang_cpu.traffic import Traffic
from sglang_lab import RingTap, UnsteadyError, spread_max

CONCURRENCY = 4
DETECTION = {
    "reference_s": 30,
    "warmup_s": 5,
    "min_effect": 0.3,
    "persistence_s": 10,
    "false_alarms_per_hour": 1,
}
"""The minimum effect stands far above what a shared machine does to a server by itself."""

SETTINGS = "[host]\ninterval_s = 2\nlook_interval_s = 5\nsurvey_interval_s = 10\n"
"""Readings closer together than by default, since a fault lasts a minute here."""

BASELINE_S, OPEN_S, NAMED_S, RESOLVED_S = 150, 90, 60, 120
_BEFORE_NS = 300 * 10**9
_RECORDED_S, _RECOVERY_S = 45, 20
_QUIET_NS = 20 * 10**9
_WARM_UP_S = 5
_STORED_S = 15
"""So long after a window is over it is surely stored."""


class NoEffectError(Exception):
    """A fault did too little to the server to be found."""


@dataclass(frozen=True)
class Found:
    """What the daemon said of a fault, and what the cycles said: `truth` is how much longer a decode became."""

    regression: dict[str, Any]
    truth: float

    @property
    def kinds(self) -> list[str]:
        """Kinds of its causes, in order."""
        return [cause["kind"] for cause in self.regression["causes"]]

    def __str__(self) -> str:
        causes = [(one["kind"], one["share"], one["status"], one["evidence"]) for one in self.regression["causes"]]
        return f"truth {self.truth:+.0%}, found {self.regression['effect']:+.0%}: {causes}"


class FaultLab:
    """A server in a control group of its own, with steady traffic, watched by a daemon whose baseline stands."""

    def __init__(self, server: SGLangServer, group: ControlGroup, rings: Path, directory: Path) -> None:
        self.server = server
        self.group = group
        self.daemon = Daemon(directory, rings, DETECTION, SETTINGS)
        self.traffic = Traffic(server.base_url, concurrency=CONCURRENCY, seconds=3600)
        self.tap = RingTap(rings, CONCURRENCY)
        self._rest_ns = 0
        """Since when nothing has been done to the server (UTC)."""

    @contextmanager
    def running(self) -> Iterator["FaultLab"]:
        """Run all of it; the baseline stands when this begins."""
        with ExitStack() as stack:
            for part in (self.tap, self.traffic, self.daemon):
                stack.enter_context(part)
            time.sleep(_WARM_UP_S)
            self._rest_ns = time.time_ns()
            self.daemon.wait_for(self.daemon.settled, BASELINE_S, "settled")
            time.sleep(10)
            yield self

    def is_open(self) -> bool:
        """Whether a decode takes longer than it should, by what the daemon says; its tail alone does not count."""
        return self.daemon.slowed() and bool(self._open())

    def _open(self) -> list[dict[str, Any]]:
        return [
            one
            for one in self.daemon.regressions()
            if (one["phase"], one["kind"], one["state"]) == ("decode", "level", "open")
        ]

    def stays_quiet(self, seconds: float) -> None:
        """Fail if a regression begins in this time, of whatever phase."""
        began = datetime.now(UTC)
        time.sleep(seconds)
        opened = [one for one in self.daemon.regressions() if datetime.fromisoformat(one["started_at"]) >= began]
        assert not opened, [(one["phase"], one["kind"], one["effect"], one["started_at"]) for one in opened]

    def known(self) -> set[int]:
        """The numbers of all regressions that the daemon ever found."""
        return {one["id"] for one in self.daemon.regressions()}

    def effect_of(self, fault: AbstractContextManager[object], seconds: float) -> float:
        """How much longer a decode becomes by a fault that lasts so long."""
        before_ms = self.tap.mean_decode_ms(time.monotonic_ns() - int(seconds * 1e9), time.monotonic_ns())
        with fault:
            time.sleep(seconds)
            return (
                self.tap.mean_decode_ms(time.monotonic_ns() - int(seconds * 1e9), time.monotonic_ns()) / before_ms - 1
            )

    def suffer(
        self, fault: AbstractContextManager[object], expected: Sequence[str], record_to: Path | None, injected: str
    ) -> Found:
        """Inject a fault, wait until it is found and rightly named, end it, and wait until that is found too.

        Where the machine's unrest hides it from the daemon, its readings must tell it all the same to who knows when it
        began: what a fault does to them stands far above what wandering cycles do.

        Raises:
            UnsteadyError: it was not found, but the machine changed its own pace meanwhile.
            NoEffectError: it was not found, but it did less to the server than the daemon is to find.
        """
        self.daemon.wait_for(lambda: not self.is_open(), RESOLVED_S, "at rest")
        if record_to is not None:
            time.sleep(_RECORDED_S)
        before_ms = self.tap.mean_decode_ms(time.monotonic_ns() - _QUIET_NS, time.monotonic_ns())
        with self.judged_at_pace(), fault, self._named_across(expected):
            began_ns = time.monotonic_ns()
            self._wait_until_open(injected, began_ns, before_ms)
            found = self._named(expected)
            if record_to is not None:
                time.sleep(_RECORDED_S)
            after_ms = self.tap.mean_decode_ms(began_ns + 2 * 10**9, time.monotonic_ns())
            told = Found(found, after_ms / before_ms - 1)
            print(f"{injected}: {told}")
            if record_to is not None:
                self._record(record_to, told, expected, injected)
            assert told.kinds[0] in expected, told
        self.daemon.wait_for(lambda: not self.is_open(), RESOLVED_S, f"resolved ({injected})")
        self._rest_ns = time.time_ns()
        return told

    def _wait_until_open(self, injected: str, began_ns: int, before_ms: float) -> None:
        try:
            self.daemon.wait_for(self.is_open, OPEN_S, f"open ({injected})")
        except AssertionError:
            effect = self.tap.mean_decode_ms(began_ns, time.monotonic_ns()) / before_ms - 1
            if effect < DETECTION["min_effect"]:
                raise NoEffectError(f"{injected}: decodes took only {effect:+.0%}") from None
            raise

    @contextmanager
    def judged_at_pace(self) -> Iterator[None]:
        """What fails in here has failed only if the machine is after it as fast as it was in the quiet time before.

        Raises:
            UnsteadyError: something failed, and the machine changed its pace.
        """
        quiet_ns = time.monotonic_ns() - _QUIET_NS, time.monotonic_ns()
        try:
            yield
        except AssertionError:
            self.tap.require_pace(*quiet_ns, DETECTION["min_effect"])
            time.sleep(_RECOVERY_S)
            now_ns = time.monotonic_ns()
            before_ms = self.tap.mean_decode_ms(*quiet_ns)
            after_ms = self.tap.mean_decode_ms(now_ns - _RECOVERY_S * 10**9 // 2, now_ns)
            if abs(math.log(after_ms / before_ms)) > math.log1p(spread_max(DETECTION["min_effect"])):
                raise UnsteadyError(f"decode {before_ms:.2f} ms before the fault, {after_ms:.2f} ms after it") from None
            raise

    @contextmanager
    def _named_across(self, expected: Sequence[str]) -> Iterator[None]:
        """If the daemon does not find it, what it stored tells it: the fault's time held against the time before."""
        began_ns = time.time_ns()
        try:
            yield
        except (AssertionError, NoEffectError):
            time.sleep(_STORED_S)
            now_ns = time.time_ns()
            evidence = self.evidence_across((max(self._rest_ns, began_ns - _BEFORE_NS), began_ns), (began_ns, now_ns))
            parts = split(evidence.before, evidence.after)
            if not parts:
                raise
            told = [(one.kind, one.share, one.evidence) for one in causes(evidence, parts)]
            slower = sum(part.after_us for part in parts) / sum(part.before_us for part in parts) - 1
            print(f"not found by the daemon; from when it began, decodes {slower:+.0%}: {told}")
            if slower >= DETECTION["min_effect"] and not any(kind in expected for kind, _, _ in told):
                pytest.fail(f"decodes took {slower:+.0%}, and none of {expected} is named: {told}")
            raise

    def _named(self, expected: Sequence[str]) -> dict[str, Any]:
        """The open regression once its first cause is an expected one, or as it is when the time for that is over."""
        deadline = time.monotonic() + NAMED_S
        found: list[dict[str, Any]] = []
        while time.monotonic() < deadline:
            found = self._open() or found
            if found and found[0]["causes"] and found[0]["causes"][0]["kind"] in expected:
                break
            time.sleep(3)
        assert found, "the regression was gone at once"
        return found[0]

    def evidence_across(self, before_ns: tuple[int, int], after_ns: tuple[int, int]) -> Evidence:
        """What the store knows of two stretches of time (UTC), whatever configuration ran."""
        with self._history() as history:
            target = self.server.base_url.removeprefix("http://")
            return history.evidence_between("tp0", "decode", Stretch(target, *before_ns), Stretch(target, *after_ns))

    def _record(self, path: Path, told: Found, expected: Sequence[str], injected: str) -> None:
        """Write what the store knows of the fault, with where it comes from."""
        began = datetime.fromisoformat(told.regression["started_at"])
        start_ns = int(began.timestamp() * 1e3) * 10**6
        evidence = self.evidence_across(
            (max(self._rest_ns, start_ns - _BEFORE_NS), start_ns), (start_ns, time.time_ns())
        )
        provenance = {
            "injected": injected,
            "effect": round(told.truth, 3),
            "sglang": self.server.version,
            "date": datetime.now(UTC).date().isoformat(),
            "machine": "Linux x86-64, 2 shared cores, no GPU",
        }
        recorded_faults.save(path, evidence, expected, provenance)

    @contextmanager
    def second_server(self) -> Iterator[SGLangServer]:
        """Another server on the same cores, which nobody watches, with traffic of its own."""
        with SGLangServer(self.server.venv, self.server.version, self.daemon.directory / "other") as other:
            self.group.adopt(other)
            with Traffic(other.base_url, concurrency=CONCURRENCY, seconds=600, seed=1):
                yield other

    @contextmanager
    def _history(self) -> Iterator[StoreHistory]:
        engine = open_database(f"sqlite:///{self.daemon.directory / 'cyclewatch.db'}", create=False)
        try:
            yield StoreHistory(engine)
        finally:
            engine.dispose()
