"""Daemons that share a database, as far as incidents go: passes by hand, a clock that is moved by hand."""

import threading
import time
from typing import Any

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from cyclewatch.collectors.base import Now
from cyclewatch.config.alerts import Alerts, Sink
from cyclewatch.config.incidents import Incidents
from cyclewatch.daemon.alerts.message import Message
from cyclewatch.daemon.incidents.incident import Act, Finding, IncidentState
from cyclewatch.daemon.incidents.service import IncidentService
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_models import OutboxRow
from cyclewatch.daemon.store.incidents import IncidentStore
from cyclewatch.daemon.store.models import RegressionRow, RunRow
from made_incidents import SECOND, START_NS, finding

SINKS = Alerts(
    sinks={
        name: Sink(type="webhook", url=f"https://{name}.example.com/alerts", key="env:KEY") for name in ("team", "boss")
    }
)
CAUSE = {
    "kind": "gpu_power_cap",
    "subject": "the GPU's power limit holds its clock down",
    "device": "gpu3",
    "evidence": ["700 W before, 400 W after"],
}


class HandClock:
    """A clock that is moved by hand; its seconds pass at once."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.put_back_ns = 0

    def now(self) -> Now:
        return Now(self.now_ns - START_NS, self.now_ns - self.put_back_ns)

    def real_seconds(self, seconds: float) -> float:
        return seconds / 1000


class Daemons:
    """A database, and daemons that share it."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = open_database(url, create=True)
        self.clock = HandClock()
        self.store = IncidentStore(self.engine)
        self.put = 0

    def daemon(self, name: str = "node:1", settings: Incidents | None = None) -> IncidentService:
        def put() -> None:
            self.put += 1

        return IncidentService(settings or Incidents(), SINKS, self.engine, name, Metrics(), self.clock, put)

    def add(self, *findings: Finding, causes: Any = (CAUSE,)) -> None:
        """Store regressions as the pipeline does, each of a run of its node."""
        with self.engine.begin() as connection:
            for one in findings:
                run = connection.execute(
                    insert(RunRow)
                    .values(
                        key=f"{one.node}|{one.target}|{one.key}",
                        node=one.node,
                        target=one.target,
                        started_at_ns=1,
                        last_seen_ns=2,
                        fingerprint="f00d",
                        version="0.5.23",
                        model=one.model,
                        arguments={},
                        environment={},
                    )
                    .returning(RunRow.id)
                ).scalar_one()
                connection.execute(
                    insert(RegressionRow).values(
                        key=one.key,
                        run_id=run,
                        target=one.target,
                        rank=one.rank,
                        phase=one.phase,
                        state="open" if one.ended_at_ns is None else "resolved",
                        direction="slower",
                        kind=one.kind,
                        started_at_ns=one.started_at_ns,
                        detected_at_ns=one.started_at_ns + 90 * SECOND,
                        ended_at_ns=one.ended_at_ns,
                        effect=one.effect,
                        ci_low=one.ci[0],
                        ci_high=one.ci[1],
                        probability=1.0,
                        split=[],
                        causes=list(causes),
                    )
                )

    def end(self, key: str) -> None:
        ended = {"state": "resolved", "ended_at_ns": self.clock.now_ns}
        with self.engine.begin() as connection:
            connection.execute(update(RegressionRow).where(RegressionRow.key == key).values(ended))

    def wait(self, service: IncidentService, seconds: float, step_s: float = 5.0) -> list[Message]:
        """Passes of one daemon while time goes by; what they told."""
        told = []
        for _ in range(int(seconds / step_s)):
            self.clock.now_ns += int(step_s * SECOND)
            told += service.look()
        return told

    def outbox(self) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(OutboxRow.__table__).order_by(OutboxRow.id)))


def pass_and_act_together(daemons: Daemons) -> None:
    """Two daemons make passes while somebody acknowledges: nothing of it is lost, told twice, or refused."""
    services = [daemons.daemon(f"node:{number}", Incidents(gather_s=1)) for number in range(2)]
    nodes = 12
    daemons.add(*(finding(f"r{number}", target=f"t{number}", node=f"n{number}") for number in range(nodes)), causes=())
    services[0].look()
    daemons.clock.now_ns += 5 * SECOND
    done, failures = threading.Event(), list[str]()

    def passes(service: IncidentService) -> None:
        while not done.is_set():
            try:
                service.look()
            except SQLAlchemyError as error:
                failures.append(str(error))

    threads = [threading.Thread(target=passes, args=(service,)) for service in services]
    for thread in threads:
        thread.start()
    for one in daemons.store.incidents():
        assert one.number is not None
        daemons.store.act(one.number, Act.ACKNOWLEDGE, "ada", "", daemons.clock.now_ns)
    messages, deadline_s = nodes * 2 * len(SINKS.sinks), time.monotonic() + 60
    while len(daemons.outbox()) < messages and time.monotonic() < deadline_s:
        time.sleep(0.02)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {one.state for one in daemons.store.incidents()} == {IncidentState.ACKNOWLEDGED}
    assert len(daemons.outbox()) == messages
