"""Incidents and regressions, made up."""

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert

from cyclewatch.daemon.alerts.message import FirstCause, Severity
from cyclewatch.daemon.incidents.incident import Finding, Incident, IncidentState, Member
from cyclewatch.daemon.store.models import RegressionRow, RunRow

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


def keep_regressions(connection: Connection, *keys: str, **changes: Any) -> None:
    """Store open regressions of 12 % of one run, one for each key."""
    run = {
        "key": f"run of {keys}",
        "node": "node",
        "target": "server",
        "started_at_ns": START_NS - 10 * MINUTE,
        "last_seen_ns": START_NS,
        "fingerprint": "f00d",
        "version": "0.5.23",
        "model": "tiny",
        "arguments": {},
    }
    number = connection.execute(insert(RunRow).values(run).returning(RunRow.id)).scalar_one()
    values = {
        "run_id": number,
        "target": "server",
        "rank": "tp0",
        "phase": "decode",
        "state": "open",
        "direction": "slower",
        "kind": "level",
        "started_at_ns": START_NS,
        "detected_at_ns": START_NS + 40 * SECOND,
        "effect": 0.12,
        "ci_low": 0.1,
        "ci_high": 0.14,
        "probability": 0.9999,
        "split": [{"part": "launch", "before_us": 4000.0, "after_us": 5000.0, "delta_us": 1000.0}],
        "causes": [
            {"rank": 1, "kind": POWER.kind, "subject": POWER.subject, "share": 0.9, "evidence": list(POWER.evidence)}
        ],
        **changes,
    }
    connection.execute(insert(RegressionRow), [{**values, "key": key} for key in keys])
