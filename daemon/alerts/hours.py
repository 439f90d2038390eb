"""Times of the day as instants: quiet hours, and when the digest is due. Pure; instants are UTC nanoseconds."""

from datetime import UTC, datetime, time, timedelta, tzinfo


def next_at_ns(now_ns: int, at: time, zone: tzinfo) -> int:
    """The first instant after `now_ns` at which the clocks of `zone` show `at`.

    A time that is left out when the clocks are put forward counts as if they had not been; one may come twice.
    """
    today = _local(now_ns, zone).date()
    return next(
        instant_ns
        for days in range(3)
        for instant_ns in _instants_ns(datetime.combine(today + timedelta(days), at, zone))
        if instant_ns > now_ns
    )


def quiet_until_ns(now_ns: int, begin: time, end: time, zone: tzinfo) -> int | None:
    """When the quiet hours that `now_ns` lies in are over; None outside of them. They may go over midnight."""
    now = _local(now_ns, zone).time()
    quiet = begin <= now < end if begin < end else now >= begin or now < end
    return next_at_ns(now_ns, end, zone) if quiet else None


def _local(now_ns: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(now_ns // 10**9, UTC).astimezone(zone)


def _instants_ns(local: datetime) -> tuple[int, int]:
    """Both instants of a time that comes twice; otherwise twice the same."""
    first, second = (int(local.replace(fold=fold).timestamp()) * 10**9 for fold in (0, 1))
    return first, max(first, second)
