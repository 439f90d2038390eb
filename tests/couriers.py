"""A courier on a clock that only moves when a test says so, and a service that answers what it is told to."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Engine, select

from alert_messages import MESSAGE, sender
from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import PAGERS
from cyclewatch.daemon.alerts.delivery.courier import Courier, Way
from cyclewatch.daemon.alerts.exchange import Request, Response
from cyclewatch.daemon.alerts.message import Message, Picture, Severity, State
from cyclewatch.daemon.alerts.outbox import Entry, Standing
from cyclewatch.daemon.alerts.post import PostError
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_models import OutboxRow
from cyclewatch.daemon.store.outbox import Outbox, put

SECOND_NS = 10**9
DAY_S = 86_400.0


@dataclass
class Hands:
    """Both clocks, put on by hand."""

    monotonic_ns: int = 10**12
    wall_ns: int = 1_800_000_000 * SECOND_NS

    def now(self) -> Now:
        return Now(self.monotonic_ns, self.wall_ns)

    def pass_s(self, seconds: float) -> None:
        self.monotonic_ns += int(seconds * SECOND_NS)
        self.wall_ns += int(seconds * SECOND_NS)


@dataclass
class Service:
    """`answers` gives an answer or raises; None means 200. `posted` is what came, and when (monotonic nanoseconds)."""

    hands: Hands
    answers: Callable[[Request], Response | None] = lambda _: None
    posted: list[tuple[int, Request]] = field(default_factory=list)

    def post(self, request: Request) -> Response:
        self.posted.append((self.hands.monotonic_ns, request))
        return self.answers(request) or Response(200, {}, b"", self.hands.wall_ns)


def status(number: int, **headers: str) -> Response:
    return Response(number, {name.replace("_", "-"): value for name, value in headers.items()}, b"", 0)


def unreachable(_: Request) -> Response:
    raise PostError("127.0.0.1: no route to host")


class Lab:
    """An outbox, in a file of `place` or at that address, and one courier of it, turned by hand."""

    def __init__(self, place: Path | str, kind: str = "webhook", give_up_s: float = 3 * DAY_S) -> None:
        self.kind = kind
        url = place if isinstance(place, str) else f"sqlite:///{place}/cyclewatch.db"
        self.engine: Engine = open_database(url, create=True)
        self.outbox = Outbox(self.engine)
        self.hands = Hands()
        self.service = Service(self.hands)
        self.give_up_s = give_up_s
        self.leads = True
        self.counts: list[str] = []
        self.illustrate: Callable[[Message, int], Picture | None] | None = None
        self.connect: Callable[[], Way] = lambda: (sender(kind), self.service)
        self.boot = "boot"
        self.restart()

    def restart(self) -> None:
        """The daemon is another; what it knew is in the database alone."""
        self.courier = Courier(
            "sink",
            pager=self.kind in PAGERS,
            connect=lambda: self.connect(),  # noqa: PLW0108 (a test may put another in its place)
            outbox=self.outbox,
            give_up_s=self.give_up_s,
            may_send=lambda: self.leads,
            clock=self.hands.now,
            boot=self.boot,
            count=self.counts.append,
            illustrate=self.illustrate,
            chance=lambda: 1.0,
        )

    def put(
        self,
        incident: str,
        number: int,
        state: State = State.OPENED,
        held_s: float = 0.0,
        severity: Severity = Severity.WARNING,
        ago_s: float = 0.0,
    ) -> None:
        """Put a message of a state that came about `ago_s` before into the outbox, held for `held_s` where not 0."""
        at_ns = self.hands.wall_ns - int(ago_s * SECOND_NS)
        message = replace(MESSAGE, incident=incident, key=incident, state=state, severity=severity, at_ns=at_ns)
        standing = Standing.HELD if held_s else Standing.PENDING
        not_before_ns = self.hands.wall_ns + int(held_s * SECOND_NS)
        entry = Entry(f"{incident}:{number}:sink", incident, "sink", message, standing, not_before_ns)
        with self.engine.begin() as connection:
            put(connection, [entry], self.hands.wall_ns)

    def turn_for(self, seconds: float, at_least_s: float = 0.001) -> None:
        """Turn the courier as its thread would, for so long; no more often than every `at_least_s`."""
        end_ns = self.hands.monotonic_ns + int(seconds * SECOND_NS)
        while self.hands.monotonic_ns <= end_ns:
            self.hands.pass_s(max(at_least_s, self.courier.turn()))

    def rows(self) -> list[tuple[str, str, str]]:
        """Key, standing and reason of all entries."""
        query = select(OutboxRow.key, OutboxRow.state, OutboxRow.reason).order_by(OutboxRow.id)
        with self.engine.connect() as connection:
            return [(row.key, row.state, row.reason) for row in connection.execute(query)]

    def standings(self) -> dict[str, str]:
        return {key: standing for key, standing, _ in self.rows()}
