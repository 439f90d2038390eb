"""Settings of the store: where samples are kept, how finely, and for how long."""

from typing import Annotated

from pydantic import Field, model_validator

from cyclewatch.config.section import Section

Days = Annotated[float, Field(gt=0, le=36_500)]


class Store(Section):
    """Where samples are kept, and for how long."""

    url: str = Field(
        default="",
        description="SQLAlchemy address of the database; empty for cyclewatch.db in the state directory.",
    )
    max_pending: int = Field(
        default=2000,
        ge=10,
        le=1_000_000,
        description="Batches held in memory while neither the database nor the disk takes them.",
    )
    spool_bytes: int = Field(
        default=2**30,
        ge=2**24,
        le=2**40,
        description="Largest size, in bytes, of what waits on disk while the database is away; beyond it the oldest "
        "measurements are given up.",
    )
    fine_days: Annotated[float, Field(ge=0.25, le=36_500)] = Field(
        default=2.0, description="Days for which windows and readings are kept as they were measured."
    )
    minute_days: Days = Field(default=30.0, description="Days for which they are then kept by the minute.")
    hour_days: Days = Field(default=730.0, description="Days after which they are deleted; until then by the hour.")
    finding_days: Days = Field(
        default=1825.0, description="Days for which ended regressions, change events and profiles are kept."
    )
    max_bytes: int = Field(
        default=20 * 2**30,
        ge=2**26,
        le=2**50,
        description="Size of an SQLite database, in bytes, above which the oldest measurements are thinned before "
        "their time.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "Store":
        if not self.fine_days <= self.minute_days <= self.hour_days <= self.finding_days:
            raise ValueError("fine_days, minute_days, hour_days and finding_days must not become fewer")
        return self
