"""Tables. Times are UTC nanoseconds in BIGINT, durations nanoseconds, ratios plain numbers."""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite gives row ids to INTEGER primary keys alone; elsewhere they are BIGINT.
RowId = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """All tables; constraints have names on every database, so that migrations can change them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class RunRow(Base):
    """One start of one server: what every sample hangs on."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(String(500), unique=True)
    node: Mapped[str] = mapped_column(String(253))
    target: Mapped[str] = mapped_column(String(64), index=True)
    started_at_ns: Mapped[int] = mapped_column(BigInteger)
    last_seen_ns: Mapped[int] = mapped_column(BigInteger)
    fingerprint: Mapped[str] = mapped_column(String(64), index=True)
    version: Mapped[str] = mapped_column(String(64))
    model: Mapped[str] = mapped_column(Text)
    arguments: Mapped[dict[str, Any]] = mapped_column(JSON)
    environment: Mapped[dict[str, str]] = mapped_column(JSON, server_default="{}")


class FactRow(Base):
    """What a target runs on, as last told, and since when it is so."""

    __tablename__ = "facts"

    node: Mapped[str] = mapped_column(String(253), primary_key=True)
    target: Mapped[str] = mapped_column(String(64), primary_key=True)
    subject: Mapped[str] = mapped_column(String(128), primary_key=True)
    value: Mapped[str] = mapped_column(Text)
    since_ns: Mapped[int] = mapped_column(BigInteger)


class RingRow(Base):
    """Where the reading of a ring goes on after a restart of the daemon."""

    __tablename__ = "rings"

    node: Mapped[str] = mapped_column(String(253), primary_key=True)
    key: Mapped[str] = mapped_column(String(120), primary_key=True)
    next_sequence: Mapped[int] = mapped_column(BigInteger)
    last_window: Mapped[int] = mapped_column(BigInteger)
    updated_at_ns: Mapped[int] = mapped_column(BigInteger)


class WindowRow(Base):
    """Cycles of one window, rank, phase and load bucket; later of a minute or an hour (`rollup.py`)."""

    __tablename__ = "windows"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    rank: Mapped[str] = mapped_column(String(32), primary_key=True)
    phase: Mapped[str] = mapped_column(String(32), primary_key=True)
    # Before the bucket, so that a stretch of time lies together in the key's index.
    start_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    bucket: Mapped[int] = mapped_column(Integer, primary_key=True)
    length_ns: Mapped[int] = mapped_column(BigInteger)
    count: Mapped[int] = mapped_column(Integer)
    mean_ns: Mapped[float] = mapped_column(Float)
    p50_ns: Mapped[float] = mapped_column(Float)
    p90_ns: Mapped[float] = mapped_column(Float)
    p99_ns: Mapped[float] = mapped_column(Float)
    max_ns: Mapped[float] = mapped_column(Float)
    schedule_ns: Mapped[float] = mapped_column(Float)
    input_ns: Mapped[float] = mapped_column(Float)
    launch_ns: Mapped[float] = mapped_column(Float)
    wait_ns: Mapped[float] = mapped_column(Float)
    result_ns: Mapped[float] = mapped_column(Float)
    rest_ns: Mapped[float] = mapped_column(Float)
    on_cpu_ratio: Mapped[float | None] = mapped_column(Float)
    batch_size: Mapped[float] = mapped_column(Float)
    new_tokens: Mapped[float] = mapped_column(Float)
    kv_tokens: Mapped[float] = mapped_column(Float)
    queue_length: Mapped[float] = mapped_column(Float)
    sketch: Mapped[bytes | None] = mapped_column(LargeBinary)  # see detectors/statistics/sketch.py

    __table_args__ = (Index("ix_windows_start_ns", "start_ns"),)


class LevelRow(Base):
    """Measured against expected cycle time of one window, rank and phase; later of a minute or an hour."""

    __tablename__ = "levels"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    rank: Mapped[str] = mapped_column(String(32), primary_key=True)
    phase: Mapped[str] = mapped_column(String(32), primary_key=True)
    start_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    log_ratio: Mapped[float | None] = mapped_column(Float)
    standard_error: Mapped[float | None] = mapped_column(Float)
    effective: Mapped[float | None] = mapped_column(Float)
    tail: Mapped[float | None] = mapped_column(Float)
    doubt: Mapped[bytes | None] = mapped_column(LargeBinary)  # float32, little endian
    known: Mapped[int] = mapped_column(Integer)
    total: Mapped[int] = mapped_column(Integer)
    suspected: Mapped[bool] = mapped_column(Boolean)
    length_ns: Mapped[int] = mapped_column(BigInteger, server_default="0")  # 0 of one window, as it was judged

    __table_args__ = (Index("ix_levels_start_ns", "start_ns"),)


class HourRow(Base):
    """One hour of one rank and phase, all loads together, beside what it is made of (`hours.py`)."""

    __tablename__ = "hours"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    rank: Mapped[str] = mapped_column(String(32), primary_key=True)
    phase: Mapped[str] = mapped_column(String(32), primary_key=True)
    start_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    mean_ns: Mapped[float] = mapped_column(Float)
    p50_ns: Mapped[float] = mapped_column(Float)
    p99_ns: Mapped[float] = mapped_column(Float)
    max_ns: Mapped[float] = mapped_column(Float)
    log_ratio: Mapped[float | None] = mapped_column(Float)

    __table_args__ = (Index("ix_hours_start_ns", "start_ns"),)


class SeriesRow(Base):
    """A series of plain values: host and engine readings, stalls, garbage collection."""

    __tablename__ = "series"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    node: Mapped[str] = mapped_column(String(253))
    key: Mapped[str] = mapped_column(String(400))
    target: Mapped[str] = mapped_column(String(64), index=True)
    name: Mapped[str] = mapped_column(String(64))
    labels: Mapped[dict[str, str]] = mapped_column(JSON)

    __table_args__ = (UniqueConstraint("node", "key"),)


class SampleRow(Base):
    """One value of a series."""

    __tablename__ = "samples"

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"), primary_key=True)
    at_ns: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    value: Mapped[float] = mapped_column(Float)

    # In SQLite the readings of a series lie together: a timeline reads one series, and not a page for each reading.
    __table_args__ = (Index("ix_samples_at_ns", "at_ns"), {"sqlite_with_rowid": False})


class ChangeEventRow(Base):
    """Something about a target changed or befell it: a restart, a version, an argument, a driver, an XID error."""

    __tablename__ = "change_events"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    node: Mapped[str] = mapped_column(String(253))
    key: Mapped[str] = mapped_column(String(400))
    target: Mapped[str] = mapped_column(String(64), index=True)
    at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    kind: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(String(128))
    before: Mapped[str] = mapped_column(Text)
    after: Mapped[str] = mapped_column(Text)

    __table_args__ = (UniqueConstraint("node", "key"),)


class RegressionRow(Base):
    """A lasting change of one rank and phase, with its causes."""

    __tablename__ = "regressions"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    target: Mapped[str] = mapped_column(String(64), index=True)
    rank: Mapped[str] = mapped_column(String(32))
    phase: Mapped[str] = mapped_column(String(32))
    state: Mapped[str] = mapped_column(String(16), index=True)
    direction: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str] = mapped_column(String(16), server_default="level")
    started_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    detected_at_ns: Mapped[int] = mapped_column(BigInteger)
    ended_at_ns: Mapped[int | None] = mapped_column(BigInteger)
    effect: Mapped[float] = mapped_column(Float)
    ci_low: Mapped[float] = mapped_column(Float)
    ci_high: Mapped[float] = mapped_column(Float)
    probability: Mapped[float] = mapped_column(Float)
    split: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    causes: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    physical_bound: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class ProfileRow(Base):
    """One kernel profile, or the attempt at one: why, how, what came of it, and what it cost."""

    __tablename__ = "profiles"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))
    node: Mapped[str] = mapped_column(String(253), server_default="")
    target: Mapped[str] = mapped_column(String(64), index=True)
    rank: Mapped[str] = mapped_column(String(32))
    pid: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(String(16))
    method: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16))
    detail: Mapped[str] = mapped_column(Text)
    began_at_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    ended_at_ns: Mapped[int | None] = mapped_column(BigInteger)
    totals: Mapped[dict[str, Any]] = mapped_column(JSON)
    cost: Mapped[dict[str, Any]] = mapped_column(JSON)
    warnings: Mapped[list[str]] = mapped_column(JSON)


class ProfileKernelRow(Base):
    """All calls of one kernel in one phase of a profile, in the order of total time."""

    __tablename__ = "profile_kernels"

    profile_id: Mapped[int] = mapped_column(ForeignKey("profiles.id"), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True)
    key: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    family: Mapped[str] = mapped_column(String(32))
    kind: Mapped[str] = mapped_column(String(16))
    device: Mapped[str] = mapped_column(String(16))
    phase: Mapped[str] = mapped_column(String(32))
    calls: Mapped[int] = mapped_column(BigInteger)
    total_ns: Mapped[int] = mapped_column(BigInteger)
    min_ns: Mapped[int | None] = mapped_column(BigInteger)
    max_ns: Mapped[int | None] = mapped_column(BigInteger)
    median_ns: Mapped[int | None] = mapped_column(BigInteger)
    std_ns: Mapped[float | None] = mapped_column(Float)


class DetectorStateRow(Base):
    """Saved state of one detector, so that a restart goes on where it stopped."""

    __tablename__ = "detector_states"

    node: Mapped[str] = mapped_column(String(253), primary_key=True)
    key: Mapped[str] = mapped_column(String(400), primary_key=True)
    updated_at_ns: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[dict[str, Any]] = mapped_column(JSON)


class StatusRow(Base):
    """What the daemon last said of itself, for `cyclewatch status`."""

    __tablename__ = "status"

    node: Mapped[str] = mapped_column(String(253), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    updated_at_ns: Mapped[int] = mapped_column(BigInteger)
    value: Mapped[dict[str, Any]] = mapped_column(JSON)


class RollupRow(Base):
    """Up to when measurements of one form have been added up into the next coarser one."""

    __tablename__ = "rollups"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    until_ns: Mapped[int] = mapped_column(BigInteger)
