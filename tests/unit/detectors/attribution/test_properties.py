"""What holds of causes whatever the evidence is."""

import math
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attribution_scenes import BEGAN_NS
from cyclewatch.config.causes import causal_graph
from cyclewatch.detectors.attribution import Event, Evidence, RankCycles, StageMeans, Trace, causes, split, split_of

_SIGNS = [sign for kind in causal_graph().kinds.values() for sign in kind.sign]
_FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def _traces(draw: st.DrawFn) -> Trace:
    sign = draw(st.sampled_from(_SIGNS))
    labels = dict(sign.labels) | draw(st.sampled_from([{}, {"gpu": "0"}, {"gpu": "1"}, {"rank": "tp1"}]))
    if draw(st.booleans()):
        values = draw(st.lists(_FLOATS, min_size=1, max_size=8))
    else:
        levels = draw(st.tuples(*[st.floats(0, 1e12)] * 2))
        values = [levels[0]] * 6 + [levels[1]] * 6
    times = BEGAN_NS + (np.arange(len(values)) - len(values) // 2) * 5 * 10**9
    return Trace(sign.reading, labels, times, np.array(values, np.float64))


_MEANS = st.builds(
    StageMeans,
    bucket=st.integers(1, 2),
    count=st.integers(0, 1000),
    stages_ns=st.tuples(*[st.floats(0, 1e9) | st.just(math.nan)] * 6),
    on_cpu_ratio=st.floats(0, 1) | st.just(math.nan),
)
_CYCLES = st.lists(_MEANS, max_size=3)
_EVENTS = st.builds(
    Event,
    at_ns=st.integers(BEGAN_NS - 10**11, BEGAN_NS + 10**11),
    kind=st.sampled_from(["version", "restart", "environment", "xid", "what nobody knows"]),
    subject=st.sampled_from(["gpu0", "gpu0.power_limit_w", "driver", ""]),
    before=st.just("a"),
    after=st.just("b"),
)
_EVIDENCE = st.builds(
    Evidence,
    started_at_ns=st.just(BEGAN_NS),
    rank=st.just("tp0"),
    before=_CYCLES,
    after=_CYCLES,
    synchronous=st.booleans(),
    traces=st.lists(_traces(), max_size=12),
    events=st.lists(_EVENTS, max_size=3),
    ranks=st.lists(st.builds(RankCycles, st.sampled_from(["tp1", "tp2"]), _CYCLES, _CYCLES), max_size=2),
    slower=st.none() | st.floats(0.5, 100),
)


@settings(max_examples=120, deadline=None)
@given(evidence=_EVIDENCE)
def test_shares_are_parts_of_the_slowdown(evidence: Evidence) -> None:
    """Between 0 and 1, those of causes, stalls and the unexplained at most 1 together, and the first is told first."""
    found = causes(evidence, split_of(evidence).parts)
    assert all(one.share is None or 0 <= one.share <= 1 for one in found)
    assert all(math.isfinite(one.score) and one.score >= 0 for one in found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert len({one.kind for one in found}) == len(found)
    layers = {kind.kind for kind in causal_graph().kinds.values() if kind.layer != "symptom"}
    whole = [
        one.share or 0.0
        for one in found
        if (one.kind in layers or one.kind == "unexplained" or one.kind.endswith("_blocked"))
        and "a consequence of" not in one.evidence[-1]
    ]
    assert sum(whole) <= 1 + 1e-6


@settings(max_examples=50, deadline=None)
@given(evidence=_EVIDENCE, random=st.randoms(use_true_random=False))
def test_the_order_of_traces_does_not_matter(evidence: Evidence, random: Random) -> None:
    """Nor that of ranks."""
    traces, ranks = list(evidence.traces), list(evidence.ranks)
    random.shuffle(traces)
    random.shuffle(ranks)
    parts = split_of(evidence).parts
    one, other = causes(evidence, parts), causes(replace(evidence, traces=traces, ranks=ranks), parts)
    assert [cause.kind for cause in one] == [cause.kind for cause in other]


@settings(max_examples=50, deadline=None)
@given(before=_CYCLES, after=_CYCLES)
def test_parts_sum_to_the_cycle(before: list[StageMeans], after: list[StageMeans]) -> None:
    """And are what the stages of the good buckets are."""
    parts = split(before, after)
    assert len(parts) in {0, 6}
    assert all(math.isfinite(part.before_us) and math.isfinite(part.after_us) for part in parts)


def test_nothing_is_no_cause() -> None:
    """No cycles, no readings, nothing."""
    assert causes(Evidence(0, "", (), (), synchronous=False), ()) == ()
