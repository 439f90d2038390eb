"""Operators of the CPU: what each took by itself, without the operators it called."""

import numpy as np

from cyclewatch.collectors.profiles.activities import Activities, Integers


def self_times(operators: Activities) -> Integers:
    """The self time of each operator, nanoseconds, shape (n,).

    Args:
        operators: of shape (n,), with the thread of each in the place of the correlation. The calls of one thread nest;
            where they overlap instead, the common part belongs to the later one.
    """
    own_ns = operators.duration_ns.tolist()
    starts_ns, ends_ns = operators.start_ns.tolist(), operators.end_ns.tolist()
    order = np.lexsort((-operators.end_ns, operators.start_ns, operators.correlation))
    threads = operators.correlation.tolist()
    callers: list[int] = []
    for at in order.tolist():
        while callers and (threads[callers[-1]] != threads[at] or ends_ns[callers[-1]] <= starts_ns[at]):
            callers.pop()
        if callers:
            own_ns[callers[-1]] -= min(ends_ns[at], ends_ns[callers[-1]]) - starts_ns[at]
        callers.append(at)
    return np.maximum(np.array(own_ns, np.int64), 0)
