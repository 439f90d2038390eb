"""The settings of incidents: when regressions are one, and when somebody is told."""

from typing import ClassVar

from pydantic import Field

from cyclewatch.config.section import Ratio, Seconds, Section

_ADDRESS = r"^(https?://[^\s()<>\"]+)?$"


class Incidents(Section):
    """Regressions of one cause and time are told as one incident."""

    reloads: ClassVar[bool] = True

    interval_s: Seconds = Field(default=5.0, description="Seconds between two looks at regressions and incidents.")
    join_s: Seconds = Field(
        default=300.0,
        description="Seconds within which regressions of one target, or of one cause, begin that are one incident.",
    )
    gather_s: Seconds = Field(
        default=30.0,
        description="Seconds without another regression before an incident is told of; at most four times as many.",
    )
    resolve_after_s: Seconds = Field(
        default=1800.0,
        description="Seconds for which all must be as fast as before until an incident is over; doubled each time it "
        "comes back, up to eight times as many.",
    )
    critical_effect: Ratio = Field(
        default=0.25, description="Slowdown, as a ratio of the cycle time, from which an incident is critical."
    )
    small_effect: Ratio = Field(
        default=0.05,
        description="Slowdown below which an incident is for information only; and what an accepted one must grow by "
        "to be told anew.",
    )
    dashboard: str = Field(
        default="",
        max_length=300,
        pattern=_ADDRESS,
        description="Address of a Grafana dashboard for messages; var-node, var-target, from and to are added.",
    )
    runbook: str = Field(
        default="",
        max_length=300,
        pattern=_ADDRESS,
        description="Address of your runbooks for messages; the kind of the cause is added as its last part.",
    )
