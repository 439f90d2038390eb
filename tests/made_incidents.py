"""Incidents and regressions, made up."""

from dataclasses import replace
from typing import Any

from cyclewatch.daemon.alerts.message import FirstCause, Severity
from cyclewatch.daemon.incidents.incident import Finding, Incident, IncidentState, Member

SECOND = 10**9
MINUTE = 60 * SECOND
START_NS = 1_800_000_000 * SECOND
POWER = FirstCause("gpu_power_cap", "the power limit of gpu3 was lowered", ("gpu3.power_limit_w 700, then 400",))
HEAT = FirstCause("cpu_thermal", "the CPU is slowed by heat", ())

MEMBER = Member("r1", "node", "server", "tp0", "decode", "level", START_NS, None, 0.12)
INCIDENT = Incident(
    number=None,
    key="k1",
    state=IncidentState.OPEN,
    severity=Severity.WARNING,
    node="node",
    target="server",
    model="tiny",
    phase="decode",
    cause=POWER,
    change="",
    effect=0.12,
    ci=(0.1, 0.14),
    started_at_ns=START_NS,
    opened_at_ns=START_NS + 90 * SECOND,
    joined_at_ns=START_NS + 90 * SECOND,
    quiet_since_ns=None,
    ended_at_ns=None,
    returns=0,
    expectation=None,
    told=None,
    members=(MEMBER,),
)


def incident(**changes: Any) -> Incident:
    """An open one of one server, never told of."""
    return replace(INCIDENT, **changes)


def finding(key: str = "r1", **changes: Any) -> Finding:
    """An open regression of 12 %, caused by a power limit."""
    values: dict[str, Any] = {
        "number": 1,
        "node": "node",
        "target": "server",
        "model": "tiny",
        "rank": "tp0",
        "phase": "decode",
        "kind": "level",
        "started_at_ns": START_NS,
        "ended_at_ns": None,
        "effect": 0.12,
        "ci": (0.1, 0.14),
        "cause": POWER,
        **changes,
    }
    return Finding(key, **values)
