"""In what order windows come."""

_PUT_BACK_NS = 600 * 10**9


def is_repeated(at_ns: int, last_ns: int) -> bool:
    """Whether the window that starts at `at_ns` comes no later than one that was taken already, at `last_ns` (UTC).

    What lies ten minutes and more behind repeats nothing: the clock was put back, and time goes on from there. To wait
    until it has caught up would be to see nothing for as long as it was wrong.
    """
    return 0 <= last_ns - at_ns < _PUT_BACK_NS
