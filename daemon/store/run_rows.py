"""Runs as the store has them."""

from dataclasses import replace
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


def run_after(before: Run | None, run: Run) -> Run:
    """A run as the database keeps it: begun when it was first said to, and in the environment last told."""
    if before is None:
        return run
    return replace(run, started_at_ns=before.started_at_ns, environment=run.environment or before.environment)
