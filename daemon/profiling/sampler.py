"""The sampler: takes profiles when it is decided, notes what each cost, and stops when one costs too much."""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery
from cyclewatch.collectors.processes import ProcessTree
from cyclewatch.collectors.records import Records, joined
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.profiling.channel import Channel
from cyclewatch.daemon.profiling.decide import Candidate, Policy, Reason, broken_budget, choose
from cyclewatch.daemon.profiling.ledger import Entry, Ledger
from cyclewatch.daemon.profiling.session import Session, Taken
from cyclewatch.daemon.profiling.subjects import Subject, Subjects, writes
from cyclewatch.daemon.profiling.switch import Switch
from cyclewatch.daemon.profiling.taking import Tools, lives, remove
from cyclewatch.daemon.store.profile_records import ProfileState, StoredProfile
from cyclewatch.daemon.store.unit import Unit
from cyclewatch.detectors.costs.profile_cost import STRETCH_NS, ProfileCost, cycles_by_phase, profile_cost

log = structlog.get_logger(__name__)

DURATIONS_MS = range(10, 10_001)
_TICK_S = 2.0
_STATUS_NS = 15 * 10**9
_NO_SERVER = "none"
"""In place of a target in metrics: other processes have names without end."""

_LATE_NS = 5 * 10**9
"""How long a cycle takes from its end to the board, at most."""

_LOOK_NS = STRETCH_NS + _LATE_NS
"""How long after a profile its cost can be told; and how often a server that stands still since is looked at."""

_AFTERMATH_NS = 10 * 10**9
"""How long after a profile the end of a server may be its doing; later it is a restart, unless it stood still."""

_SILENT_NS_MAX = 600 * 10**9
"""How long it is waited for a server that stands still."""


class ProfileRefusedError(Exception):
    """A profile that somebody asked for is not even tried; one sentence."""


@dataclass(frozen=True)
class Request:
    """A profile that somebody asks for: of a process, of a server's first rank, or of the only server there is."""

    target: str = ""
    pid: int | None = None
    duration_ms: int | None = None


@dataclass
class _Unpriced:
    """A profile whose cost is to be told. Nanoseconds; `look_ns` is monotonic.

    `start_ticks` tells the process from a later one; None for one that cannot be seen. While its server stands still,
    `silent_ns` is for how long it has at least, and `records` are its cycles before: the board drops them.
    """

    taken: Taken
    start_ticks: int | None
    look_ns: int
    silent_ns: int = 0
    records: Records | None = None


class Sampler:
    """Runs in a thread of its own; `ask` and `turn` are called from others."""

    def __init__(
        self,
        settings: Settings,
        board: Board,
        discovery: Discovery,
        past: Ledger,
        switch: Switch,
        submit: Callable[[Unit], None],
        metrics: Metrics,
        clock: Callable[[], Now],
    ) -> None:
        profiling = settings.profiling
        self._settings = profiling
        self._policy = Policy.of(profiling, settings.detection.warmup_s)
        self._board = board
        self._past = past
        self._submit = submit
        self._metrics = metrics
        self._clock = clock
        self._stopping = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._unpriced: list[_Unpriced] = []  # `ask` adds to it from other threads
        self._failures: dict[str, int] = {}
        self._status_ns = -_STATUS_NS
        self.switch = switch
        self.channel = Channel(profiling, settings.host.proc)
        self.subjects = Subjects(board, self.channel, discovery, settings.host.proc, over_http=profiling.start_profile)
        self._proc = settings.host.proc
        self._tools = Tools(profiling, settings.host.proc, lambda: clock().monotonic_ns, self._stopping)
        self._thread = threading.Thread(target=self._run, name="profile-sampler", daemon=True)

    def start(self) -> None:
        """Serve the channel, and take profiles from now on."""
        self._thread.start()

    def leave_alone(self, warmup_s: float) -> None:
        """Take no profile of a server in its first `warmup_s` seconds, from now on."""
        self._policy = replace(self._policy, warmup_s=warmup_s)

    def stop(self, timeout_s: float) -> None:
        """Take no more; a profile under way is given up."""
        self._stopping.set()
        self._thread.join(timeout_s)
        self.channel.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.tick()
            except Exception:
                log.exception("the sampler failed; it goes on")
            self._stopping.wait(_TICK_S)

    def tick(self) -> None:
        """One look: what is to be priced, what is to be taken."""
        now = self._clock()
        self.channel.serve(now.monotonic_ns)
        self._price(now)
        if self.switch.on and self._settings.enabled:
            self._take_one(now)
        self._tell(now)

    def ask(self, request: Request) -> Taken:
        """Take the profile somebody asks for, whatever the load; returns when it is stored, or refused as invalid.

        The file of its capture is the caller's, to look at and to remove.

        Raises:
            ProfileRefusedError: profiling is off, nothing is known by that name, or another one is under way.
        """
        if not self._settings.enabled:
            raise ProfileRefusedError("profiling.enabled is false in the configuration")
        if not self.switch.on:
            raise ProfileRefusedError(
                f"profiling is off: {self.switch.reason}: `cyclewatch profiles on` switches it on again"
            )
        duration_ms = self._settings.duration_ms if request.duration_ms is None else request.duration_ms
        if duration_ms not in DURATIONS_MS:
            raise ProfileRefusedError(f"{duration_ms} ms: ask for {DURATIONS_MS[0]} to {DURATIONS_MS[-1]}")
        subject = self._asked_for(request)
        if subject.target in self._silent():
            raise ProfileRefusedError(
                f"{subject.target} stands still since its last profile: wait until it goes on, "
                f"{_SILENT_NS_MAX // 10**9} s at most"
            )
        if not self._one_at_a_time.acquire(blocking=False):
            raise ProfileRefusedError("another profile, a probe or a pause is under way: try again in some seconds")
        try:
            return self._take(subject, Reason.ASKED, duration_ms)
        finally:
            self._one_at_a_time.release()

    def hold(self) -> bool:
        """Take no profile until `release`; False where one is under way, or what else must not be beside one."""
        return self._one_at_a_time.acquire(blocking=False)

    def release(self) -> None:
        """Take profiles again."""
        self._one_at_a_time.release()

    def _asked_for(self, request: Request) -> Subject:
        if request.pid is not None:
            subject = self.subjects.process(request.pid)
            if subject is None:
                raise ProfileRefusedError(
                    f"process {request.pid} does not ask for profiles: start it with KINETO_USE_DAEMON=1 and "
                    f"KINETO_IPC_SOCKET_DIR={self._settings.socket_dir}" + self._channel_obstacle()
                )
            return subject
        ranks = self.subjects.ranks()
        names = sorted({one.target for one in ranks})
        chosen = [one for one in ranks if one.target == request.target or not request.target]
        if not chosen:
            known = f"known are {', '.join(names)}" if names else "none is being watched"
            raise ProfileRefusedError(f"no server {request.target or 'to profile'}: {known}")
        if not request.target and len(names) > 1:
            raise ProfileRefusedError(f"several servers are being watched: name one of {', '.join(names)}")
        return min(chosen, key=lambda one: (not one.method, one.rank))

    def _channel_obstacle(self) -> str:
        return f" (the channel is not served: {self.channel.obstacle})" if self.channel.obstacle else ""

    def _take_one(self, now: Now) -> None:
        silent = self._silent()
        subjects = {(one.target, one.rank): one for one in self.subjects.ranks() if one.target not in silent}
        choice = choose((self._candidate(one, now) for one in subjects.values()), self._policy)
        if choice is None or not self._one_at_a_time.acquire(blocking=False):
            return
        candidate, reason = choice
        try:
            taken = self._take(subjects[candidate.target, candidate.rank], reason, self._settings.duration_ms)
            if taken.capture is not None:
                remove(taken.capture)
        finally:
            self._one_at_a_time.release()

    def _candidate(self, subject: Subject, now: Now) -> Candidate:
        view = subject.view
        assert view is not None  # of ranks alone
        account = self._past.account(subject.target, subject.rank, view.run.fingerprint, now.wall_ns)
        return Candidate(
            target=subject.target,
            rank=subject.rank,
            reachable=bool(subject.method),
            free=subject.process.free if subject.process else True,
            up_s=(now.wall_ns - view.run.started_at_ns) / 1e9,
            idle_s=(now.monotonic_ns - view.last_cycle_ns) / 1e9,
            queue=view.queue,
            settled=view.settled,
            suspected=view.suspected(now.monotonic_ns),
            age_s=account.age_s,
            target_age_s=account.target_age_s,
            spent_s=account.spent_s,
            failures=self._failures.get(view.ring.key, 0),
        )

    def _take(self, subject: Subject, reason: Reason, duration_ms: int) -> Taken:
        start_ticks = self._start_ticks(subject)
        session = Session(subject, reason, self._board, self._clock, self._submit)
        taken = session.take(self._tools, self.channel, duration_ms)
        profile, view = taken.profile, subject.view
        fingerprint = view.run.fingerprint if view else ""
        self._past.note(
            Entry(
                key=profile.key,
                target=profile.target,
                rank=profile.rank,
                fingerprint=fingerprint,
                state=profile.state,
                began_ns=profile.began_at_ns,
                ended_ns=profile.ended_at_ns,
            )
        )
        if view is not None:
            if taken.failed:
                self._failures[view.ring.key] = self._failures.get(view.ring.key, 0) + 1
            elif profile.state is ProfileState.KEPT:
                self._failures.pop(view.ring.key, None)
            if taken.stretch is not None:
                self._unpriced.append(
                    _Unpriced(taken, None if taken.died else start_ticks, _ended_ns(taken) + _LOOK_NS)
                )
            if taken.died:  # or it was a restart, which hardly ever falls into these seconds
                self._switch_off(profile.target, f"process {profile.pid} ended while it was profiled", self._clock())
        label = profile.target if view else _NO_SERVER
        self._metrics.profiles.labels(label, reason.value, profile.state.value).inc()
        if taken.stretch is not None:
            exposed_ns = (taken.stretch.ended_ns or taken.stretch.began_ns) - taken.stretch.began_ns
            self._metrics.profile_exposure.labels(label).inc(exposed_ns / 1e9)
        return taken

    def _start_ticks(self, subject: Subject) -> int | None:
        """Start of the process that writes a rank's ring; None where it cannot be seen, as in another pid namespace."""
        stat = ProcessTree(self._proc).stat(subject.pid)
        if subject.view is None or stat is None:
            return None
        return stat.start_ticks if writes(subject.view.ring, stat) else None

    def _price(self, now: Now) -> None:
        """Tell what profiles cost, once the cycles after them are known; a server that has ended since gets no more."""
        tree = ProcessTree(self._proc)
        for one in self._unpriced.copy():
            profile = one.taken.profile
            if one.start_ticks is not None and not lives(tree, profile.pid, one.start_ticks):
                after_ns = now.monotonic_ns - _ended_ns(one.taken)
                if after_ns <= _AFTERMATH_NS or one.silent_ns:
                    reason = f"process {profile.pid} ended within {after_ns / 1e9:.0f} s after it was profiled"
                    self._switch_off(profile.target, reason, now)
            elif now.monotonic_ns <= one.look_ns or self._stands_still(one, now):
                continue
            self._unpriced.remove(one)
            self._tell_price(one, now)

    def _stands_still(self, one: _Unpriced, now: Now) -> bool:
        """Whether the server has not gone on since the profile, and may yet."""
        taken = one.taken
        assert taken.subject.view is not None
        assert taken.stretch is not None
        key = taken.subject.view.ring.key
        silent_ns = self._board.silent_ns(key, taken.stretch.began_ns, _ended_ns(taken))
        one.silent_ns = max(one.silent_ns, silent_ns)
        if not silent_ns or now.monotonic_ns > _ended_ns(taken) + _SILENT_NS_MAX:
            return False
        if one.records is None:
            one.records = self._board.records(key)
        one.look_ns = now.monotonic_ns + _LOOK_NS
        return True

    def _silent(self) -> frozenset[str]:
        """The targets that stand still since their last profile."""
        return frozenset(one.taken.profile.target for one in self._unpriced.copy() if one.silent_ns)

    def _tell_price(self, one: _Unpriced, now: Now) -> None:
        taken = one.taken
        view, stretch = taken.subject.view, taken.stretch
        assert view is not None
        assert stretch is not None
        records = _continued(one.records, self._board.records(view.ring.key))
        cost = profile_cost(records, stretch.began_ns, _ended_ns(taken), one.silent_ns)
        totals = {**taken.profile.totals, "cycles": _cycles(taken.profile, records, now)}
        priced = replace(taken.profile, cost=asdict(cost), totals=totals, kernels=None)
        self._submit(Unit(now.wall_ns, profiles=[priced]))
        self._tell_cost(taken, cost, now)

    def _tell_cost(self, taken: Taken, cost: ProfileCost, now: Now) -> None:
        target = taken.profile.target
        log.info("profile cost", target=target, rank=taken.profile.rank, stall_ns=cost.stall_ns, after=cost.after_ratio)
        if cost.stall_ns is not None:
            self._metrics.profile_stall.labels(target).set(cost.stall_ns / 1e9)
        if cost.after_ratio is not None:
            self._metrics.profile_after.labels(target).set(cost.after_ratio)
        if broken := broken_budget(cost, self._policy):
            self._switch_off(target, broken, now)

    def _switch_off(self, target: str, reason: str, now: Now) -> None:
        self.switch.turn(on=False, reason=f"{target}: {reason}", at_ns=now.wall_ns)
        log.error("profiling is off until somebody switches it on again", target=target, reason=reason)
        self._tell(now, at_once=True)

    def _tell(self, now: Now, *, at_once: bool = False) -> None:
        self._metrics.profiling_enabled.set(float(self._settings.enabled))
        self._metrics.profiling_on.set(float(self.switch.on and self._settings.enabled))
        self._metrics.state.profile_datagrams_refused = self.channel.refused
        if at_once or now.monotonic_ns - self._status_ns >= _STATUS_NS:
            self._status_ns = now.monotonic_ns
            self._submit(Unit(now.wall_ns, status={"profiling": self.status()}))

    def status(self) -> dict[str, Any]:
        """How profiling stands, as `cyclewatch status` shows it and a restarted daemon finds it."""
        return {
            **self.switch.state(),
            "enabled": self._settings.enabled,
            "channel": self.channel.obstacle or f"served in {self._settings.socket_dir}",
            "processes": len(self.channel.processes()),
        }

    def turn(self, *, on: bool) -> None:
        """Somebody switches profiling on or off."""
        now = self._clock()
        self.switch.turn(on=on, reason="" if on else "switched off by hand", at_ns=now.wall_ns)
        log.warning("profiling was switched by hand", on=on)
        self._failures.clear()
        self._tell(now, at_once=True)


def _cycles(profile: StoredProfile, records: Records, now: Now) -> dict[str, int]:
    """Cycles by phase while it recorded; empty where the trace does not tell when that was."""
    recorded_at_ns, duration_ms = (profile.totals.get(name) for name in ("recorded_at_ns", "duration_ms"))
    if not recorded_at_ns or not duration_ms:
        return {}
    began_ns = recorded_at_ns - (now.wall_ns - now.monotonic_ns)
    return cycles_by_phase(records, began_ns, began_ns + duration_ms * 10**6)


def _continued(before: Records | None, records: Records) -> Records:
    """Records that were kept, and those that have come since."""
    if before is None or not len(before):
        return records
    return joined((before, records.compress(records["end_ns"] > before["end_ns"].max())))


def _ended_ns(taken: Taken) -> int:
    assert taken.stretch is not None
    return taken.stretch.ended_ns or taken.stretch.began_ns
