"""docs/metrics.md, made from the tables that the metrics themselves are made from."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics import MetricWrapperBase

from cyclewatch.collectors.quantities import Quantity
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_state import metric_name

_HEAD = """# Metrics

Everything at `/metrics`, as `cyclewatch metrics` prints it. Times are in seconds, sizes in bytes; a ratio is 1 where
all of it is meant. [prometheus.md](prometheus.md) has a scrape job, alerting rules and dashboards for it.

## Readings of the collectors

Each is a gauge, and a series of the same name without `cyclewatch_` is in the store. A server's readings have its
name as `target`; the node's own have `node`. The pace is the setting that gives the seconds between two readings.
The cost is the time one reading takes on a machine of two cores without a GPU, unless it says otherwise.

| metric | what it tells | unit | labels | source | pace | cost |
|---|---|---|---|---|---|---|
"""
_DAEMON = """
## What the daemon says of itself and of the hooks

| metric | type | labels | what it tells |
|---|---|---|---|
"""


def metrics_reference(quantities: Iterable[Quantity]) -> str:
    """The page, in Markdown; `quantities` in the order of their collectors."""
    readings = "\n".join(_reading(quantity) for quantity in quantities)
    return f"{_HEAD}{readings}\n{_DAEMON}" + "\n".join(_own()) + "\n"


def _reading(quantity: Quantity) -> str:
    labels = ", ".join(("target", *quantity.labels))
    cells = (quantity.help, quantity.unit, labels, quantity.source, f"`{quantity.pace}`", quantity.cost or "-")
    return f"| `{metric_name(quantity.name)}` | " + " | ".join(cells) + " |"


def _own() -> Iterator[str]:
    metrics = Metrics()
    # The client tells the labels of what has no series yet in this attribute alone.
    labels = {name: one._labelnames for one in vars(metrics).values() for name in _names(one)}  # noqa: SLF001
    for family in metrics.page.collect():
        shown = f"{family.name}_total" if family.type == "counter" else family.name
        names = labels.get(family.name) or getattr(family, "_labelnames", None) or ()
        yield f"| `{shown}` | {family.type} | {', '.join(names)} | {family.documentation} |"


def _names(one: object) -> list[str]:
    return [family.name for family in one.describe()] if isinstance(one, MetricWrapperBase) else []
