"""The real delivery as a process that can be killed: puts messages into an outbox, and delivers them.

`python delivery_process.py FILE`, a file of JSON: `database`, `alerts` (the settings), `incidents` (how many), `seed`,
`rates` (of each type of sink, in the place of its own, so that a test need not wait as the services want it) and
`first_wait_s` (the first backoff).
"""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from alert_messages import MESSAGE
from cyclewatch.config.alerts import Alerts
from cyclewatch.daemon.alerts.delivery import pace
from cyclewatch.daemon.alerts.delivery.service import Delivery
from cyclewatch.daemon.alerts.message import Message, State
from cyclewatch.daemon.alerts.routing import entries
from cyclewatch.daemon.alerts.senders.registry import SENDERS
from cyclewatch.daemon.alerts.senders.sender import Rate
from cyclewatch.daemon.clock import SystemClock
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_models import OutboxRow
from cyclewatch.daemon.store.outbox import put

START_NS = 1_700_000_000 * 10**9
BATCH = 10
PAUSE_S = 0.1
"""Between two batches: of an incident that is over at once, only the end is told."""


def planned(incidents: int, sinks: list[str], seed: int) -> Iterator[tuple[int, Message]]:
    """Every message, with its number within its incident, in the order in which they come about.

    Incidents overlap: each opens, some grow, all are resolved. The target says which sink is told; the command tells a
    message from every other.
    """
    chance = random.Random(seed)
    unfinished: list[tuple[int, list[State]]] = []
    opened = 0
    while opened < incidents or unfinished:
        if opened < incidents and (not unfinished or chance.random() < 0.5):
            grown = [State.GROWN] if chance.random() < 0.3 else []
            unfinished.append((opened, [State.OPENED, *grown, State.RESOLVED]))
            opened += 1
        index = chance.randrange(len(unfinished))
        incident, states = unfinished[index]
        number = 4 - len(states) if states[0] is State.RESOLVED else (1 if states[0] is State.OPENED else 2)
        yield number, message(incident, number, states.pop(0), sinks[incident % len(sinks)])
        if not states:
            unfinished.pop(index)


def message(incident: int, number: int, state: State, sink: str) -> Message:
    return replace(
        MESSAGE,
        incident=str(incident),
        key=f"incident-{incident}",
        state=state,
        target=sink,
        command=f"m{number}i{incident}e",
        started_at_ns=START_NS,
        at_ns=START_NS + (incident * 10 + number) * 10**9,
    )


def put_all(engine: Engine, alerts: Alerts, messages: list[tuple[int, Message]]) -> None:
    """What is not there yet, some in a transaction."""
    with engine.connect() as connection:
        known = set(connection.execute(select(OutboxRow.key)).scalars())
    missing = [(number, one) for number, one in messages if f"{one.key}:{number}:{one.target}" not in known]
    clock = SystemClock()
    for first in range(0, len(missing), BATCH):
        now_ns = clock.now().wall_ns
        with engine.begin() as connection:
            for number, one in missing[first : first + BATCH]:
                put(connection, entries(one, "unexplained", number, alerts, now_ns), now_ns)
        time.sleep(PAUSE_S)


def main(work: dict[str, Any]) -> None:
    for kind, rates in work["rates"].items():
        SENDERS[kind].rates = tuple(Rate(*rate) for rate in rates)  # type: ignore[attr-defined]
    pace._FIRST_S = work["first_wait_s"]
    alerts = Alerts.model_validate(work["alerts"])
    engine = open_database(work["database"], create=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    delivery = Delivery(alerts, engine, lambda: True, SystemClock().now, boot, Metrics())
    delivery.start()
    put_all(engine, alerts, list(planned(work["incidents"], list(alerts.sinks), work["seed"])))
    delivery.wake()
    threading.Event().wait()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
