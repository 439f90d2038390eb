"""What users felt of a slowdown: means before it began, and now, of what SGLang says of its requests."""

from sqlalchemy import Connection, case, func, select

from cyclewatch.daemon.alerts.message import Felt
from cyclewatch.daemon.store.models import SampleRow, SeriesRow

SPAN_NS = 600 * 10**9
"""So much before, and at most so much after."""

_QUANTITIES = {
    "engine.ttft_mean_s": ("TTFT", 1000.0, "ms"),
    "engine.itl_mean_s": ("ITL", 1000.0, "ms"),
    "engine.generation_tokens_per_s": ("throughput", 1.0, "tokens/s"),
}
"""Readings, what they are called in a message, and the factor from their unit to that of the message."""


def felt(connection: Connection, node: str, target: str, began_ns: int, now_ns: int) -> tuple[Felt, ...]:
    """What users of a server felt before `began_ns` and lately; without what was not read on both sides.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    series = SeriesRow.__table__
    named = select(series.c.id, series.c.name).where(
        series.c.node == node, series.c.target == target, series.c.name.in_(_QUANTITIES)
    )
    names = {row.id: row.name for row in connection.execute(named)}
    at_ns, value = SampleRow.at_ns, SampleRow.value
    before = at_ns.between(began_ns - SPAN_NS, began_ns - 1)
    lately = at_ns.between(max(began_ns, now_ns - SPAN_NS), now_ns)
    means = (
        select(
            SampleRow.series_id,
            func.avg(case((before, value))).label("before"),
            func.avg(case((lately, value))).label("lately"),
        )
        .where(SampleRow.series_id.in_(names), before | lately)
        .group_by(SampleRow.series_id)
    )
    found = {names[row.series_id]: (row.before, row.lately) for row in connection.execute(means)}
    return tuple(
        Felt(word, found[name][0] * factor, found[name][1] * factor, unit)
        for name, (word, factor, unit) in _QUANTITIES.items()
        if None not in found.get(name, (None,))
    )
