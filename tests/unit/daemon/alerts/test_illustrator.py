"""From the database to the picture of a message, on both databases; and that nothing of it can hold up a message."""

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from alert_messages import MESSAGE
from cyclewatch.config.alerts import Alerts
from cyclewatch.daemon.alerts.delivery.service import Delivery
from cyclewatch.daemon.alerts.message import State
from cyclewatch.daemon.alerts.picture.illustrator import Illustrator
from cyclewatch.daemon.alerts.routing import entries
from cyclewatch.daemon.clock import SystemClock
from cyclewatch.daemon.incidents.incident import Incident, Member
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.store.database import open_database
from cyclewatch.daemon.store.incident_rows import write_incident
from cyclewatch.daemon.store.incident_timeline import IncidentTimeline, incident_timeline
from cyclewatch.daemon.store.outbox import put
from cyclewatch.daemon.store.transactions import Transactions
from cyclewatch.daemon.store.unit import StoredLevel, StoredWindow, Unit
from cyclewatch.detectors.phases import Phase
from cyclewatch.detectors.watching.series import Level
from cyclewatch.detectors.windows import cells_of
from fake_http import Answer, http_server
from made_incidents import MEMBER, MINUTE, SECOND, START_NS, incident
from simulated import cycles
from units import REGRESSION, RUN, stored

NOW_NS = START_NS + 3 * MINUTE
WINDOW_NS = 5 * SECOND
SLOWER = 1.22
(CELL,) = cells_of(Phase.DECODE, cycles(20))


def measured(rank: str, slower: float, detected_after_ns: int) -> Unit:
    """Half an hour of windows of a rank, which becomes slower at `START_NS`, and the regression that was made of it."""
    unit = Unit(START_NS, runs=[RUN])
    for at_ns in range(START_NS - 31 * MINUTE, NOW_NS, WINDOW_NS):
        factor = slower if at_ns >= START_NS else 1.0
        cell = replace(CELL, mean_ns=2.2e7 * factor, p50_ns=2e7 * factor, p99_ns=5e7 * factor, sketch=b"")
        level = Level(at_ns, math.log(factor), 0.002, 50.0, 0.1, 20, 20, ())
        unit.windows.append(StoredWindow(RUN.key, rank, at_ns, WINDOW_NS, cell))
        unit.levels.append(StoredLevel(RUN.key, rank, "decode", level, suspected=False))
    regression = replace(
        REGRESSION, key=f"r {rank}", started_at_ns=START_NS, detected_at_ns=START_NS + detected_after_ns
    )
    unit.regressions.append(replace(stored(regression), rank=rank))
    return unit


def member(rank: str, effect: float, **changes: object) -> Member:
    return replace(MEMBER, regression=f"r {rank}", rank=rank, effect=effect, **changes)  # type: ignore[arg-type]


@pytest.fixture(name="engine")
def _engine(address: str) -> Iterator[Engine]:
    engine = open_database(address, create=True)
    store = Transactions(engine, "node")
    store.write(measured("tp0", 1.05, 60 * SECOND))
    store.write(measured("tp1", SLOWER, 10 * MINUTE))
    yield engine
    engine.dispose()


def keep(engine: Engine, **changes: object) -> Incident:
    """An incident of both ranks, and of another server that is worse."""
    worse = replace(MEMBER, target="other", effect=0.9, regression="r3")
    kept = incident(**{"members": (member("tp0", 0.05), member("tp1", SLOWER - 1), worse), **changes})
    with engine.begin() as connection:
        write_incident(connection, kept)
    return kept


def read(engine: Engine, now_ns: int = NOW_NS, key: str = "k1") -> IncidentTimeline | None:
    with engine.connect() as connection:
        return incident_timeline(connection, key, now_ns)


def test_the_worst_rank_of_the_server_that_the_incident_is_named_after(engine: Engine) -> None:
    """From three times as long before as it took to be sure, until now."""
    keep(engine)
    found = read(engine)
    assert found is not None
    assert (found.target, found.phase, found.kind) == ("server", "decode", "level")
    assert (found.from_ns, found.to_ns) == (START_NS - 30 * MINUTE, NOW_NS)
    before = [one for one in found.points if one.start_ns < START_NS - MINUTE]
    after = [one for one in found.points if one.start_ns > START_NS]
    assert {round(one.p50_ns / 1e7, 2) for one in before} == {2.0}
    assert {round(one.p50_ns / 1e7, 2) for one in after} == {2 * SLOWER}
    assert {round(one.log_ratio, 3) for one in after} == {round(math.log(SLOWER), 3)}
    assert 100 < len(found.points) <= 160


def test_at_least_a_quarter_of_an_hour_is_shown(engine: Engine) -> None:
    keep(engine, members=(member("tp0", 0.05),))
    found = read(engine)
    assert found is not None
    assert found.from_ns == START_NS - 15 * MINUTE


def test_a_server_that_has_just_been_started_has_no_empty_past(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM windows WHERE start_ns < :first_ns"), {"first_ns": START_NS - 4 * MINUTE})
    keep(engine)
    found = read(engine)
    assert found is not None
    assert START_NS - 5 * MINUTE < found.from_ns <= START_NS - 4 * MINUTE


def test_after_the_end_as_much_is_shown_as_before_the_beginning(engine: Engine) -> None:
    """A message that was held up for a day does not show that day."""
    keep(engine, members=(member("tp0", 0.05, ended_at_ns=START_NS + 2 * MINUTE),))
    for now_ns, to_ns in ((NOW_NS, NOW_NS), (NOW_NS + 1440 * MINUTE, START_NS + 17 * MINUTE)):
        found = read(engine, now_ns)
        assert found is not None
        assert (found.to_ns, found.ended_at_ns) == (to_ns, START_NS + 2 * MINUTE)


@pytest.mark.parametrize("now_ns", [0, START_NS - 60 * MINUTE, START_NS])
def test_a_clock_that_was_put_back_is_borne(engine: Engine, now_ns: int) -> None:
    keep(engine)
    found = read(engine, now_ns)
    assert found is not None
    assert found.to_ns == START_NS


def test_what_is_not_there_has_no_timeline(engine: Engine) -> None:
    keep(engine, members=(replace(MEMBER, target="other"),))
    assert read(engine) is None
    assert read(engine, key="k2") is None


@pytest.fixture(name="failures")
def _failures() -> list[int]:
    return []


def drawn(engine: Engine, failures: list[int], **changes: object) -> object:
    message = replace(MESSAGE, **{"key": "k1", **changes})  # type: ignore[arg-type]
    return Illustrator(engine, lambda: failures.append(1)).picture(message, NOW_NS)


def test_a_message_has_the_picture_of_its_incident(engine: Engine, failures: list[int]) -> None:
    keep(engine)
    picture = drawn(engine, failures)
    assert "20 ms before 08:00 UTC, about 24.4 ms since then." in repr(picture)
    assert failures == []


@pytest.mark.parametrize("changes", [{"key": "k2"}, {"key": "cyclewatch-digest-1", "state": State.DIGEST}])
def test_what_is_told_of_no_incident_has_none(engine: Engine, failures: list[int], changes: dict[str, object]) -> None:
    keep(engine)
    assert drawn(engine, failures, **changes) is None
    assert failures == []


def test_an_incident_without_measurements_has_none(engine: Engine, failures: list[int]) -> None:
    keep(engine, members=(member("tp7", 0.1),))
    assert drawn(engine, failures) is None
    assert failures == []


def test_a_database_that_does_not_answer_costs_the_picture(engine: Engine, failures: list[int]) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE windows RENAME TO gone"))
    keep(engine)
    with capture_logs() as logs:
        assert drawn(engine, failures) is None
    assert [entry["event"] for entry in logs] == ["a message goes without its picture"]
    assert failures == [1]


def test_without_pillow_there_is_no_picture(
    engine: Engine, failures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong while drawing: one entry in the log, and a count."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    keep(engine)
    with capture_logs() as logs:
        assert drawn(engine, failures) is None
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert failures == [1]


@pytest.mark.parametrize("wanted", [True, False])
def test_it_arrives_with_the_message_where_it_is_wanted(engine: Engine, wanted: bool) -> None:
    """From the incident in the database to the service, by the daemon's own delivery."""
    keep(engine)
    sink = {"type": "discord", "url": "env:HOOK", "picture": wanted}
    alerts = Alerts.model_validate({"sinks": {"team": sink}})
    now_ns = time.time_ns()
    with engine.begin() as connection:
        put(connection, entries(replace(MESSAGE, key="k1"), "", 1, alerts, now_ns), now_ns)
    with http_server({"/hook": Answer(status=204)}) as server:
        environ = {"HOOK": f"{server.url}/hook"}
        delivery = Delivery(alerts, engine, lambda: True, SystemClock().now, "boot", Metrics(), environ)
        delivery.start()
        while not server.bodies:
            time.sleep(0.01)
        assert delivery.stop(20)
    assert (b"\x89PNG" in server.bodies[0]) == wanted
