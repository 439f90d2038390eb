"""`cyclewatch metrics`: the reference of every metric."""

import typer

from cyclewatch.collectors.registry import known_quantities
from cyclewatch.daemon.metrics_reference import metrics_reference


def metrics() -> None:
    """Print every metric with its unit, labels, source, pace and cost, as Markdown."""
    typer.echo(metrics_reference(known_quantities().values()), nl=False)
