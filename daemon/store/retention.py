"""How long what is kept, and how finely: the upkeep of the store, in small steps.

Each step is one transaction of at most some minutes of measurements. Daemons that share a PostgreSQL share the work:
who finds a step taken by another leaves it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection, Engine, delete, exists, func, or_, select, update

from cyclewatch.config.store import Store
from cyclewatch.daemon.store import models
from cyclewatch.daemon.store.hours import HOURS, sum_up_hours
from cyclewatch.daemon.store.rollup import HOUR_NS, MINUTE_NS, roll_up
from cyclewatch.daemon.store.sqlite import give_back, mostly_free, used_bytes
from cyclewatch.daemon.store.upsert import upsert
from cyclewatch.detectors.watching.tracking import State

log = structlog.get_logger(__name__)

_DAY_NS = 24 * HOUR_NS
_BETWEEN_STEPS_S = 1.0
_IDLE_S = 60.0
_FINDINGS_EVERY_NS = HOUR_NS
_LEAST_FINE_NS = 6 * HOUR_NS
_LEAST_MINUTES_NS = _DAY_NS
_LEAST_NS = 2 * _DAY_NS
_RING_NS = 30 * _DAY_NS

_MEASUREMENTS: tuple[tuple[Any, Any], ...] = (
    (models.WindowRow, models.WindowRow.start_ns),
    (models.LevelRow, models.LevelRow.start_ns),
    (models.SampleRow, models.SampleRow.at_ns),
)


@dataclass(frozen=True)
class _Tier:
    """Rows of one length, the age at which they come about, the time that one step takes, and what makes them."""

    name: str
    length_ns: int
    age_ns: int
    least_age_ns: int
    step_ns: int
    add_up: Callable[[Connection, int, int], None]


class Upkeep:
    """Keeps the store of one node as small as its settings say.

    `forget` is called when runs or series were deleted, whose numbers somebody may remember. `now_ns` is UTC.

    Raises (every method):
        SQLAlchemyError: the database does not answer, or is full.
    """

    def __init__(
        self, engine: Engine, node: str, settings: Store, now_ns: Callable[[], int], forget: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._rolling = _of_one_moment(engine)
        self._node = node
        self._max_bytes = settings.max_bytes if engine.dialect.name == "sqlite" else None
        self._now_ns = now_ns
        self._forget = forget
        days = {name: int(getattr(settings, name) * _DAY_NS) for name in ("hour_days", "finding_days")}
        self._hour_age_ns, self._finding_age_ns = days["hour_days"], days["finding_days"]
        minutes, hours = (partial(roll_up, length_ns=length_ns) for length_ns in (MINUTE_NS, HOUR_NS))
        self._tiers = (
            _Tier("minute", MINUTE_NS, int(settings.fine_days * _DAY_NS), _LEAST_FINE_NS, 5 * MINUTE_NS, minutes),
            _Tier("hour", HOUR_NS, int(settings.minute_days * _DAY_NS), _LEAST_MINUTES_NS, HOUR_NS, hours),
        )
        # After six hours nothing comes late any more, save from the disk, which has it summed up anew.
        self._summary = _Tier(HOURS, HOUR_NS, _LEAST_FINE_NS, _LEAST_FINE_NS, HOUR_NS, sum_up_hours)
        self._findings_ns = 0
        self._told = False

    def step(self) -> float:
        """Do a little of what is to be done; gives the seconds after which more is, for somebody with other work."""
        now_ns = self._now_ns()
        done = self.too_large() and self.thin()
        done = done or any(self._roll(tier, now_ns - tier.age_ns) for tier in (*self._tiers, self._summary))
        done = self._delete_measurements(now_ns - self._hour_age_ns) or done
        if now_ns - self._findings_ns >= _FINDINGS_EVERY_NS:
            self._findings_ns = now_ns
            self._delete_findings(now_ns)
        self._give_back()
        return _BETWEEN_STEPS_S if done else _IDLE_S

    def catch_up(self) -> None:
        """Do all that is to be done."""
        while self.step() < _IDLE_S:
            pass

    def too_large(self) -> bool:
        """Whether an SQLite file holds more than it may."""
        if self._max_bytes is None:
            return False
        with self._engine.connect() as connection:
            return used_bytes(connection) > self._max_bytes

    def thin(self) -> bool:
        """Make the oldest measurements coarser before their time, or delete them; False where none are left to give."""
        now_ns = self._now_ns()
        thinned = any(self._roll(tier, now_ns - min(tier.age_ns, tier.least_age_ns)) for tier in self._tiers)
        thinned = thinned or self._delete_measurements(now_ns - min(self._hour_age_ns, _LEAST_NS))
        if not thinned and not self._told:
            log.error("the database is larger than store.max_bytes, and nothing in it is old enough to be given up")
        self._told = not thinned
        return thinned

    def _roll(self, tier: _Tier, before_ns: int) -> bool:
        """Add up the oldest measurements that are finer than a tier, up to `before_ns`; False where there are none."""
        before_ns -= before_ns % tier.length_ns
        with self._rolling.begin() as connection:
            until_ns = _until_ns(connection, tier.name)
            if until_ns is None or until_ns >= before_ns:
                return False
            first_ns = _first_ns(connection, until_ns)
            if first_ns is None or first_ns >= before_ns:
                _move(connection, tier.name, before_ns)
                return False
            from_ns = max(until_ns, first_ns - first_ns % tier.length_ns)
            to_ns = min(from_ns + tier.step_ns, before_ns)
            # Before the rest: it locks a file, so that nobody writes there what is then deleted unread.
            _move(connection, tier.name, to_ns)
            tier.add_up(connection, from_ns, to_ns)
        return True

    def _delete_measurements(self, before_ns: int) -> bool:
        """Delete the oldest day of what is older; False where there is none."""
        deleted = False
        with self._engine.begin() as connection:
            for model, at_ns in (*_MEASUREMENTS, (models.HourRow, models.HourRow.start_ns)):
                oldest_ns = connection.execute(select(func.min(at_ns))).scalar()
                if oldest_ns is not None and oldest_ns < before_ns:
                    connection.execute(delete(model).where(at_ns < min(before_ns, oldest_ns + _DAY_NS)))
                    deleted = True
        return deleted

    def _delete_findings(self, now_ns: int) -> None:
        """Delete what was found long ago and is over, and then runs and series of which nothing is left."""
        old_ns, gone_ns = now_ns - self._finding_age_ns, now_ns - self._hour_age_ns
        regression, event, profile = models.RegressionRow, models.ChangeEventRow, models.ProfileRow
        kernel, run, series, sample = models.ProfileKernelRow, models.RunRow, models.SeriesRow, models.SampleRow
        state, ring = models.DetectorStateRow, models.RingRow
        with self._engine.begin() as connection:
            last_ns = func.coalesce(regression.ended_at_ns, regression.detected_at_ns)
            connection.execute(delete(regression).where(regression.state != State.OPEN.value, last_ns < old_ns))
            connection.execute(delete(event).where(event.at_ns < old_ns))
            old = select(profile.id).where(profile.began_at_ns < old_ns)
            connection.execute(delete(kernel).where(kernel.profile_id.in_(old)))
            connection.execute(delete(profile).where(profile.began_at_ns < old_ns))
            # A baseline of which no measurement is left, and where to go on in a ring that is long gone.
            connection.execute(delete(state).where(state.node == self._node, state.updated_at_ns < gone_ns))
            connection.execute(delete(ring).where(ring.node == self._node, ring.updated_at_ns < now_ns - _RING_NS))
            users = (models.WindowRow, models.LevelRow, models.HourRow, regression, profile)
            used = or_(*(exists().where(user.run_id == run.id) for user in users))
            unused = [
                connection.execute(
                    delete(run).where(run.node == self._node, run.last_seen_ns < gone_ns, ~used)
                ).rowcount,
                connection.execute(
                    delete(series).where(series.node == self._node, ~exists().where(sample.series_id == series.id))
                ).rowcount,
            ]
        if any(unused):
            self._forget()

    def _give_back(self) -> None:
        """Make the file smaller where a large part of it is free."""
        if self._max_bytes is not None:
            with self._engine.connect() as connection:
                if mostly_free(connection):
                    give_back(connection)


def reopen(connection: Connection, at_ns: int) -> None:
    """What is of `at_ns` (UTC) or later has been written just now: it is to be added up once more."""
    row = models.RollupRow
    connection.execute(update(row).where(row.until_ns > at_ns).values(until_ns=at_ns - at_ns % HOUR_NS))


def _of_one_moment(engine: Engine) -> Engine:
    """The same database, in transactions that see it as it was when they began.

    In PostgreSQL each statement would see what others have written meanwhile: rows out of another node's spool that
    came after the sums were made would be deleted with those that were added up. Where others alter the same rows
    meanwhile, the transaction ends with an error, and the step is taken later.
    """
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ")


def _until_ns(connection: Connection, name: str) -> int | None:
    """How far a tier has come; None where another daemon is at it."""
    row = models.RollupRow
    query = select(row.until_ns).where(row.name == name)
    if connection.execute(query).scalar() is None:
        upsert(connection, row, [{"name": name, "until_ns": 0}], ("name",), keep=("until_ns",))
    until_ns: int | None = connection.execute(query.with_for_update(skip_locked=True)).scalar()
    return until_ns


def _move(connection: Connection, name: str, until_ns: int) -> None:
    row = models.RollupRow
    connection.execute(update(row).where(row.name == name).values(until_ns=until_ns))


def _first_ns(connection: Connection, from_ns: int) -> int | None:
    """When the first measurement was taken that is not older."""
    found = [connection.execute(select(func.min(at_ns)).where(at_ns >= from_ns)).scalar() for _, at_ns in _MEASUREMENTS]
    return min((one for one in found if one is not None), default=None)
