"""Runs as the store has them."""

from typing import Any

from cyclewatch.daemon.store.unit import Run


def run_of(row: Any) -> Run:  # noqa: ANN401 (a row of the runs table)
    """The run in a row."""
    return Run(
        key=row.key,
        node=row.node,
        target=row.target,
        started_at_ns=row.started_at_ns,
        last_seen_ns=row.last_seen_ns,
        fingerprint=row.fingerprint,
        version=row.version,
        model=row.model,
        arguments=row.arguments,
        environment=row.environment,
    )
