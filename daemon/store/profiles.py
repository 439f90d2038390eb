"""Kernel profiles in the store: how they are written, thinned and read."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Engine, Select, delete, insert, select, true, update

from cyclewatch.daemon.store import row_number
from cyclewatch.daemon.store.models import ProfileKernelRow, ProfileRow, RunRow
from cyclewatch.daemon.store.profile_records import ProfileState, ProfileView, StoredKernel, StoredProfile
from cyclewatch.daemon.store.stretches import Stretch

_DAY_NS = 86_400 * 10**9
KEEP_ALL_NS = _DAY_NS
"""So long every profile keeps its kernels; then one a rank, reason and day does."""

KEEP_NS = 90 * _DAY_NS
"""After this no profile keeps its kernels. That it was taken, and what it cost, stays."""


def profile_row(stored: StoredProfile, run_id: int | None) -> dict[str, Any]:
    """The columns of a profile."""
    row = {name: getattr(stored, name) for name in StoredProfile.__dataclass_fields__ if name not in _OTHERWISE}
    return {
        **row,
        "run_id": run_id,
        "state": stored.state.value,
        "totals": dict(stored.totals),
        "cost": dict(stored.cost),
        "warnings": list(stored.warnings),
    }


_OTHERWISE = {"run_key", "kernels"}


def write_kernels(connection: Connection, stored: StoredProfile) -> None:
    """Write the kernels of a profile whose row is there, and thin those of the profiles before it."""
    if stored.kernels is None:
        return
    number, node = connection.execute(select(ProfileRow.id, ProfileRow.node).where(ProfileRow.key == stored.key)).one()
    connection.execute(delete(ProfileKernelRow).where(ProfileKernelRow.profile_id == number))
    rows = [{"profile_id": number, "position": place, **asdict(kernel)} for place, kernel in enumerate(stored.kernels)]
    if rows:
        connection.execute(insert(ProfileKernelRow), rows)
    _thin(connection, node, stored)


def _thin(connection: Connection, node: str, newest: StoredProfile) -> None:
    query = (
        select(ProfileRow.id, ProfileRow.began_at_ns, ProfileRow.reason)
        .where(
            ProfileRow.node == node,
            ProfileRow.target == newest.target,
            ProfileRow.rank == newest.rank,
            ProfileRow.began_at_ns < newest.began_at_ns - KEEP_ALL_NS,
            select(ProfileKernelRow.profile_id).where(ProfileKernelRow.profile_id == ProfileRow.id).exists(),
        )
        .order_by(ProfileRow.began_at_ns)
    )
    old = [(row.id, row.began_at_ns, row.reason) for row in connection.execute(query)]
    if surplus := superfluous(old, newest.began_at_ns):
        connection.execute(delete(ProfileKernelRow).where(ProfileKernelRow.profile_id.in_(surplus)))


def superfluous(profiles: Iterable[tuple[int, int, str]], now_ns: int) -> list[int]:
    """Which of the profiles (number, time, reason), oldest first, need no longer keep their kernels."""
    kept: set[tuple[int, str]] = set()
    surplus = []
    for number, at_ns, reason in profiles:
        age_ns, day = now_ns - at_ns, (at_ns // _DAY_NS, reason)
        if age_ns <= KEEP_ALL_NS:
            continue
        if age_ns > KEEP_NS or day in kept:
            surplus.append(number)
        else:
            kept.add(day)
    return surplus


_PROFILES = select(ProfileRow.__table__, RunRow.fingerprint).join_from(
    ProfileRow, RunRow, ProfileRow.run_id == RunRow.id, isouter=True
)


class ProfileHistory:
    """Reads stored profiles of `node`, or of all nodes where that is None, each question on a connection of its own.

    Raises (every method):
        SQLAlchemyError: the database does not answer.
    """

    def __init__(self, engine: Engine, node: str | None = None) -> None:
        self._engine = engine
        self._own = true() if node is None else ProfileRow.node == node

    def since(self, at_ns: int) -> list[ProfileView]:
        """Profiles that began at `at_ns` or later, newest first, without their kernels."""
        return self._views(_PROFILES.where(ProfileRow.began_at_ns >= at_ns))

    def latest(self, limit: int) -> list[ProfileView]:
        """The latest profiles, newest first, without their kernels."""
        return self._views(_PROFILES.limit(limit))

    def _views(self, query: Select[Any]) -> list[ProfileView]:
        with self._engine.connect() as connection:
            rows = connection.execute(
                query.where(self._own).order_by(ProfileRow.began_at_ns.desc(), ProfileRow.id.desc())
            )
            return [_view(row, None) for row in rows]

    def profile(self, number: int) -> ProfileView | None:
        """The profile with this number, with its kernels; those are empty where they were given up."""
        if not row_number.may_be(number):
            return None
        with self._engine.connect() as connection:
            row = connection.execute(_PROFILES.where(ProfileRow.id == number)).one_or_none()
            if row is None:
                return None
            return _view(row, _kernels(connection, number))

    def end_unfinished(self, detail: str) -> None:
        """Refuse the profiles that a daemon before this one did not finish."""
        with self._engine.begin() as connection:
            connection.execute(
                update(ProfileRow)
                .where(self._own, ProfileRow.state == ProfileState.TAKING.value)
                .values(state=ProfileState.REFUSED.value, detail=detail)
            )


def profile_in(connection: Connection, stretch: Stretch, rank: str, *, last: bool) -> StoredProfile | None:
    """The last or the first profile of a rank that was taken in a stretch of time and still has its kernels."""
    query = (
        _PROFILES.where(
            *stretch.runs(),
            ProfileRow.rank == rank,
            ProfileRow.state == ProfileState.KEPT.value,
            ProfileRow.began_at_ns >= stretch.from_ns,
            ProfileRow.ended_at_ns < stretch.to_ns,
            select(ProfileKernelRow.profile_id).where(ProfileKernelRow.profile_id == ProfileRow.id).exists(),
        )
        .order_by(ProfileRow.began_at_ns.desc() if last else ProfileRow.began_at_ns)
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _view(row, _kernels(connection, row.id)).profile


def _kernels(connection: Connection, number: int) -> list[StoredKernel]:
    query = (
        select(ProfileKernelRow.__table__)
        .where(ProfileKernelRow.profile_id == number)
        .order_by(ProfileKernelRow.position)
    )
    names = StoredKernel.__dataclass_fields__
    return [StoredKernel(**{name: getattr(kernel, name) for name in names}) for kernel in connection.execute(query)]


def _view(row: Any, kernels: Sequence[StoredKernel] | None) -> ProfileView:  # noqa: ANN401 (a row of the table)
    profile = StoredProfile(
        key=row.key,
        run_key="",
        target=row.target,
        rank=row.rank,
        pid=row.pid,
        reason=row.reason,
        method=row.method,
        state=ProfileState(row.state),
        began_at_ns=row.began_at_ns,
        ended_at_ns=row.ended_at_ns,
        detail=row.detail,
        totals=row.totals,
        cost=row.cost,
        warnings=tuple(row.warnings),
        kernels=None if kernels is None else tuple(kernels),
    )
    return ProfileView(row.id, row.fingerprint or "", profile)
