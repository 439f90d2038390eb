"""Incidents as a part of the daemon: a thread that makes one pass after the other."""

import hashlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import Alerts
from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import Message, State
from cyclewatch.daemon.alerts.routing import entries
from cyclewatch.daemon.clock import Clock
from cyclewatch.daemon.incidents.incident import Expectation, Incident
from cyclewatch.daemon.incidents.lifecycle import Policy
from cyclewatch.daemon.incidents.reconcile import Decision, View, reconcile
from cyclewatch.daemon.incidents.wording import ACT_TOLD, worded
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store import lease, outbox
from cyclewatch.daemon.store.database import reason_of
from cyclewatch.daemon.store.felt import felt
from cyclewatch.daemon.store.incident_rows import last_by, write_incident, write_notes
from cyclewatch.daemon.store.incident_view import read_view

log = structlog.get_logger(__name__)

LEASE_NS = 60 * 10**9
"""So long after its end another daemon takes over, where several share the database."""

_RENEW_NS = LEASE_NS // 2


class IncidentService:
    """Forms incidents and puts what is to be told into the outbox, as long as this daemon holds the lease.

    Everything that is known is in the database, and a pass is one transaction: one that is broken off, or made again,
    loses nothing and tells nothing twice.

    Args:
        settings: of incidents.
        alerts: where messages go.
        engine: the database.
        holder: name of this daemon among those that share the database; the same after a restart.
        metrics: where the counts go.
        clock: when passes are made.
        put: called after something was put into the outbox.
    """

    def __init__(
        self,
        settings: Incidents,
        alerts: Alerts,
        engine: Engine,
        holder: str,
        metrics: Metrics,
        clock: Clock,
        put: Callable[[], None] = lambda: None,
    ) -> None:
        self.take_settings(settings, alerts)
        self._engine = engine
        self._holder = holder
        self._metrics = metrics
        self._clock = clock
        self._put = put
        self._held_until_ns = 0
        """By the monotonic clock: UTC may be put back."""

        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="incidents", daemon=True)

    def take_settings(self, settings: Incidents, alerts: Alerts) -> None:
        """Go on by other settings, from the next pass on; may be called from any thread."""
        self._settings = settings
        self._alerts = alerts
        self._policy = Policy.of(settings)

    def start(self) -> None:
        """Make passes from now on."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Make no more, and let another daemon go on; False where a pass lasts longer than `timeout_s`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def holds_lease(self) -> bool:
        """Whether this daemon is the one to tell; may be called from any thread."""
        return self._clock.now().monotonic_ns < self._held_until_ns

    def look(self) -> list[Message]:
        """One pass; the messages that it put into the outbox, whatever sinks there are.

        Raises:
            SQLAlchemyError: the database does not answer; nothing is changed.
        """
        now = self._clock.now()
        if not self._lead(now):
            return []
        with self._engine.connect() as connection:
            view = read_view(connection, now.wall_ns)
        self._show(view.incidents)
        if not reconcile(view, self._policy, now.wall_ns):
            return []
        with self._engine.begin() as connection:
            if not lease.hold(connection, self._holder, now.wall_ns, LEASE_NS):
                self._leads(now, held=False)
                return []
            # Read again, now that nobody else can write: a person may have acted meanwhile.
            view = read_view(connection, now.wall_ns)
            plan = reconcile(view, self._policy, now.wall_ns)
            messages = [self._write(connection, view, decision, now.wall_ns) for decision in plan]
        for decision in plan:
            _log(decision)
        told = [message for message in messages if message is not None]
        for message in told:
            self._metrics.incident_messages.labels(message.state.value).inc()
        if told:
            self._put()
        return told

    def _run(self) -> None:
        while not self._stopping.wait(self._clock.real_seconds(self._settings.interval_s)):
            try:
                self.look()
            except SQLAlchemyError as error:
                if not self._failing:
                    log.error("incidents wait for the database", reason=reason_of(error))  # noqa: TRY400 (one sentence)
                self._failing = True
            except Exception:
                if not self._failing:
                    log.exception("a pass over the incidents failed; it is made again and again")
                self._failing = True
            else:
                if self._failing:
                    log.info("incidents go on")
                self._failing = False
        self._give_back()

    def _lead(self, now: Now) -> bool:
        """Hold the lease; it is renewed when half of it has passed."""
        if now.monotonic_ns + _RENEW_NS < self._held_until_ns:
            return True
        with self._engine.begin() as connection:
            held = lease.hold(connection, self._holder, now.wall_ns, LEASE_NS)
        self._leads(now, held=held)
        return held

    def _leads(self, now: Now, *, held: bool) -> None:
        """Whether this daemon holds the lease from now on; said where it is news."""
        if held != (now.monotonic_ns < self._held_until_ns):
            log.info("this daemon tells of incidents" if held else "another daemon tells of incidents")
        self._held_until_ns = now.monotonic_ns + LEASE_NS if held else 0
        if not held:
            self._metrics.state.incidents = {}

    def _give_back(self) -> None:
        if self._held_until_ns:
            self._held_until_ns = 0
            try:
                with self._engine.begin() as connection:
                    lease.release(connection, self._holder)
            except SQLAlchemyError as error:
                log.warning("another daemon must wait until the lease has lapsed", reason=reason_of(error))

    def _write(self, connection: Connection, view: View, decision: Decision, now_ns: int) -> Message | None:
        """Store what was decided, and what is to be told; gives the message."""
        incident, told = decision.incident, decision.incident.told
        number = write_incident(connection, incident)
        write_notes(connection, number, decision.notes)
        if decision.tell is None or told is None:
            return None
        message = worded(
            decision,
            number,
            self._settings,
            now_ns,
            by=_by(connection, view, number, decision),
            felt=felt(connection, incident.node, incident.target, incident.started_at_ns, now_ns),
        )
        before = outbox.told(connection, message.key)
        outbox.put(connection, entries(message, told.cause, told.number, self._alerts, now_ns, before), now_ns)
        return message

    def _show(self, incidents: Iterable[Incident]) -> None:
        """The incidents that stand, for Prometheus."""
        counts: dict[tuple[str, str], int] = {}
        for incident in incidents:
            if incident.ended_at_ns is None:
                place = incident.state.value, incident.severity.value
                counts[place] = counts.get(place, 0) + 1
        self._metrics.state.incidents = counts


def holder_name(node: str, state_dir: Path) -> str:
    """Name of the daemon of this node and state directory: of those, there is one at a time."""
    return f"{node}:{hashlib.sha256(str(state_dir.absolute()).encode()).hexdigest()[:16]}"


def _by(connection: Connection, view: View, number: int, decision: Decision) -> str:
    """Who did or announced what is told, and why; what it was merged into; empty where the daemon did it by itself."""
    if decision.tell is State.MERGED:
        return f"incident {decision.incident.merged_into}"
    if decision.tell is State.EXPECTED:
        announced: list[Expectation] = [one for one in view.expectations if one.number == decision.incident.expectation]
        return next((_who(one.who, one.why) for one in announced), "")
    act = ACT_TOLD.get(decision.tell) if decision.tell is not None else None
    # Resolved by a person is what this pass finds resolved; what it resolves itself was nobody's doing.
    if act is None or any(note.what == "resolved" for note in decision.notes):
        return ""
    note = last_by(connection, number, act)
    return "" if note is None else _who(note.who, note.why)


def _who(who: str, why: str) -> str:
    return f"{who} ({why})" if why else who


def _log(decision: Decision) -> None:
    incident = decision.incident
    for note in decision.notes:
        log.info(
            "incident",
            what=note.what,
            key=incident.key,
            target=incident.target,
            phase=incident.phase,
            severity=incident.severity.value,
            effect=f"{incident.effect:+.1%}",
            why=note.why,
        )
