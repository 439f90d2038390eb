import json
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclewatch.collectors.records import ForwardMode, Records
from cyclewatch.detectors.load.workload import FEATURES, Row, WorkloadModel, fit_coefficients, rows_of
from cyclewatch.detectors.phases import Phase, judged, phase_by_number, phases_of
from cyclewatch.detectors.simulation import Noise, Simulation, Traffic
from cyclewatch.detectors.simulation.noise import QUIET
from cyclewatch.detectors.windows import cells_of
from simulated import cycles

FIXED_NS, REQUEST_NS, TOKEN_NS = 5e6, 2e5, 50.0


def _decodes(
    random: np.random.Generator, size: npt.ArrayLike, context: float, level: float = 0.0, noise: float = 0.02
) -> Records:
    """60 decodes of about this batch size, with tokens of their own; `level` is what the window does to all."""
    sizes = np.maximum(np.rint(np.asarray(size) + random.normal(0, 1.5, 60)), 1)
    kv_tokens = np.rint(sizes * context * random.uniform(0.8, 1.2, 60))
    true_ns = FIXED_NS + REQUEST_NS * sizes + TOKEN_NS * kv_tokens
    noisy_ns = true_ns * np.exp(level + random.normal(0, noise, 60))
    return cycles(60, np.rint(noisy_ns), batch_size=sizes, kv_tokens=kv_tokens)


def _reference(seed: int = 0, windows: int = 120, confusing: float = 0.0, noise: float = 0.02) -> list[Row]:
    """Windows of swinging load and AR(1) noise of 2 %, plus `confusing` (a log) at the highest load."""
    random = np.random.default_rng(seed)
    level, rows = 0.0, list[Row]()
    for window in range(windows):
        swing = np.sin(2 * np.pi * window / 80)
        level = 0.5 * level + noise * 0.87 * random.normal()
        records = _decodes(random, 16 + 8 * swing, 1000, level + confusing * (1 + swing) / 2, noise)
        rows += rows_of(Phase.DECODE, records, window)
    return rows


def _fitted(rows: list[Row], phase: Phase = Phase.DECODE) -> WorkloadModel:
    model = WorkloadModel(phase)
    model.fit(rows)
    return model


def _slope(model: WorkloadModel, size: int = 24) -> float:
    """Expected time of `size` requests over that of 8, by the costs alone."""
    fixed, request, _, token = model.coefficients
    return (fixed + size * (request + 1000 * token)) / (fixed + 8 * (request + 1000 * token))


TRUE_SLOPE = (FIXED_NS + 24 * (REQUEST_NS + 1000 * TOKEN_NS)) / (FIXED_NS + 8 * (REQUEST_NS + 1000 * TOKEN_NS))


@pytest.mark.parametrize("seed", range(5))
def test_costs_are_found_under_noise_of_windows(seed: int) -> None:
    """Within four of the standard errors that it says, and these are small."""
    model = _fitted(_reference(seed))
    found = {one.feature: one for one in model.explain().coefficients}
    for feature, true_ns in (("fixed", FIXED_NS), ("batch_size", REQUEST_NS), ("kv_tokens", TOKEN_NS)):
        assert abs(found[feature].ns - true_ns) < 4 * found[feature].standard_error_ns
        assert found[feature].standard_error_ns < 0.15 * true_ns
    assert _slope(model) == pytest.approx(TRUE_SLOPE, rel=0.015)


@pytest.mark.parametrize("seed", range(5))
def test_noise_that_goes_with_the_load_is_not_a_cost_of_load(seed: int) -> None:
    """Windows of high load run 4 % slower for another reason: less than a half of that goes into the costs."""
    rows = _reference(seed, confusing=0.04)
    assert abs(np.log(_slope(_fitted(rows)) / TRUE_SLOPE)) < 0.02
    design = np.array([[1, row.batch_size, row.new_tokens, row.kv_tokens] for row in rows])
    plain, _ = fit_coefficients(design, np.array([row.log_ns for row in rows]), np.ones(len(rows)))
    assert np.log(_slope(WorkloadModel(Phase.DECODE, tuple(plain))) / TRUE_SLOPE) > 0.025


def test_doubt_is_how_wrong_expectations_are() -> None:
    """Of 40 references, by how far high loads are misjudged against low ones: about as much as each doubted."""
    low, high = (np.array([[size], [0.0], [1000.0 * size]]) for size in (8.0, 24.0))
    scores = []
    for seed in range(40):
        model = _fitted(_reference(seed, windows=60))
        doubted = np.linalg.norm(np.subtract(model.doubt(high), model.doubt(low)))
        scores.append(np.log(_slope(model) / TRUE_SLOPE) / doubted)
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.5


def test_doubt_has_one_part_for_each_cost_and_none_for_what_was_never_seen() -> None:
    model = _fitted(_reference())
    load = np.array([[16.0, 17.0], [0.0, 0.0], [16_000.0, 18_000.0]])
    share = (
        np.stack([np.ones(2), *load], axis=1) / (np.stack([np.ones(2), *load], axis=1) @ model.coefficients)[:, None]
    )
    mean = share.mean(axis=0)
    doubt = np.array(model.doubt(load))
    assert len(doubt) == len(model.coefficients)
    assert doubt @ doubt == pytest.approx(mean @ np.array(model.covariance) @ mean, rel=1e-6)
    assert model.covariance[2] == (0.0,) * 4  # new tokens of decodes


def test_rows_of_unknown_windows_are_of_one_each() -> None:
    """What knows no windows still gets costs and offsets."""
    rows = [replace(row, window=-1) for row in _reference(1, windows=30)]
    model = _fitted(rows)
    assert sum(model.offset_windows.values()) + sum(map(len, model.learning.values())) == len(rows)
    assert _slope(model) == pytest.approx(TRUE_SLOPE, rel=0.1)


@pytest.mark.parametrize("phase", [Phase.DECODE, Phase.DECODE_BESIDE_EXTEND, Phase.EXTEND])
def test_load_swings_leave_the_level_alone(phase: Phase) -> None:
    """A simulated server, an hour after its reference: mean levels of five minutes, noise taken out, stay together."""
    rows, levels = list[Row](), list[float]()
    model, reference = WorkloadModel(phase), 0
    for number, (_, records, truth) in enumerate(Simulation(seed=9, noise=Noise(0.02, 0.5)).windows(840)):
        usable = judged(records) & (phases_of(records) == [phase_by_number(i) for i in range(5)].index(phase))
        chosen = records[usable]
        if not model.fitted:
            rows += rows_of(phase, chosen, number)
            reference += 1
            if reference == 120:
                model.fit(rows)
            continue
        ratio, known = model.log_ratio(chosen)
        if known.sum() >= 10:
            levels.append(float(np.median(ratio[known])) - truth.noise[phase])
    means = np.convolve(levels, np.ones(60) / 60, "valid")
    assert len(levels) > 500
    assert np.abs(means - np.median(levels)).max() < 0.01


def test_a_step_between_buckets_becomes_an_offset_and_noise_does_not() -> None:
    """8 % more in one bucket, as a CUDA graph may cost: its offset says so, the others stay small."""
    rows = [replace(row, log_ns=row.log_ns + 0.08 * (row.bucket == 12)) for row in _reference(3)]
    offsets = _fitted(rows).offsets
    assert offsets[12] - np.median([value for bucket, value in offsets.items() if bucket != 12]) > 0.06
    plain = _fitted(_reference(3))
    assert max(map(abs, plain.offsets.values())) < 0.01


def test_an_offset_of_few_windows_is_drawn_to_none() -> None:
    """A bucket of three windows that ran 5 % slower, as windows do, has but a small part of that as its offset."""
    rows = _reference(4)
    odd = [
        replace(row, bucket=99, window=row.window + 1000, log_ns=row.log_ns + 0.05) for row in rows if row.window < 3
    ]
    model = _fitted(rows + odd)
    assert model.offset_windows[99] == 3
    assert abs(model.offsets[99]) < 0.01


def test_a_bucket_of_two_windows_gets_no_verdict_yet() -> None:
    """Its windows wait in `learning`."""
    rows = _reference(5)
    odd = [replace(row, bucket=99, window=row.window + 1000) for row in rows if row.window < 2]
    model = _fitted(rows + odd)
    assert 99 not in model.offsets
    assert len(model.learning[99]) == 2


def test_far_longer_or_shorter_contexts_are_another_load_until_learned() -> None:
    """Known up to one and a half of the longest seen; then learned like a bucket, at the present level."""
    records = cycles(20, 10_000_000, batch_size=8, kv_tokens=np.linspace(8000, 10_000, 20))
    model = _fitted([row for window in range(60) for row in rows_of(Phase.DECODE, records, window)])
    most = model.seen[3][1]
    for factor, expected in ((1.0, True), (1.45, True), (1.6, False), (0.2, False)):
        assert model.log_ratio(cycles(1, 10_000_000, batch_size=8, kv_tokens=int(most * factor)))[1][0] == expected
    far = cycles(20, 10_000_000, batch_size=8, kv_tokens=int(most * 4))
    for _ in range(5):
        model.learn(list(cells_of(Phase.DECODE, far)), 5, 0.1)
    ratio, known = model.log_ratio(far)
    assert known.all()
    assert np.median(ratio) == pytest.approx(0.1, abs=1e-6)
    assert not model.log_ratio(cycles(1, 10_000_000, batch_size=8, kv_tokens=int(most * 2)))[1][0]
    learned = max(model.explain().offsets, key=lambda offset: offset.beyond)
    assert (learned.bucket, learned.beyond, learned.windows) == (8, 3, 5)


def test_a_bucket_learned_later_is_pinned_and_shrunk_by_its_noise() -> None:
    """60 windows with noise of 2 % at a new batch size: the offset carries less than that of their mean."""
    random = np.random.default_rng(2)
    model = _fitted(_reference(6))
    for _ in range(60):
        model.learn(list(cells_of(Phase.DECODE, cycles(50, 11_000_000, batch_size=28, kv_tokens=28_000))), 60, 0.0)
    pinned = model.offsets[28]
    model.learn(list(cells_of(Phase.DECODE, cycles(50, 99_000_000, batch_size=28, kv_tokens=28_000))), 60, 0.0)
    assert model.offsets[28] == pinned
    noisy = _fitted(_reference(6))
    expected = FIXED_NS + 28 * (REQUEST_NS + 1000 * TOKEN_NS)
    values = np.exp(random.normal(0.01, 0.02, 60)) * expected
    for value in values:
        noisy.learn(list(cells_of(Phase.DECODE, cycles(50, int(value), batch_size=28, kv_tokens=28_000))), 60, 0.0)
    assert abs(noisy.offsets[28]) < 0.01


def test_a_prefill_costs_by_what_its_tokens_attend_to() -> None:
    """The simulated server's own costs come back, without noise to the percent."""
    traffic = Traffic(swing=0.5)
    rows = []
    for number, (_, records, _) in enumerate(Simulation(seed=2, traffic=traffic, noise=QUIET).windows(60)):
        rows += rows_of(Phase.EXTEND, records[records["mode"] == ForwardMode.EXTEND], number)
    model = _fitted(rows, Phase.EXTEND)
    found = dict(zip(FEATURES, model.coefficients, strict=True))
    assert found["new_tokens"] == pytest.approx(32_000, rel=0.01)
    assert found["attended_pairs"] == pytest.approx(1.3, rel=0.05)


@pytest.mark.parametrize("windows", [1, 2, 6])
@pytest.mark.parametrize("of_cells", [True, False])
def test_a_few_windows_are_enough_to_say_something(windows: int, of_cells: bool) -> None:
    """30 s of reference, in cells or their parts: finite, and near the truth where the load was seen."""
    random = np.random.default_rng(7)
    rows = list[Row]()
    for window in range(windows):
        records = _decodes(random, 8, 1000)
        if of_cells:
            rows += [Row.of(cell, window=window) for cell in cells_of(Phase.DECODE, records)]
        else:
            rows += rows_of(Phase.DECODE, records, window)
    model = _fitted(rows)
    assert np.isfinite(model.coefficients).all()
    assert np.isfinite(model.covariance).all()
    for row in rows:
        if row.bucket in model.offsets:
            assert model.residual(row) == pytest.approx(0.0, abs=0.1)
    if windows == 6:
        ratio, known = model.log_ratio(_decodes(random, 8, 1000))
        assert known.sum() > 20
        assert abs(np.median(ratio[known])) < 0.03


@pytest.mark.parametrize("count", [1, 50])
def test_constant_load_and_times_are_expected_as_they_are(count: int) -> None:
    """No spread of anything: the level is 0 and small changes of load do not matter much."""
    records = cycles(count, 7_000_000, batch_size=8, kv_tokens=4000)
    model = _fitted([row for window in range(6) for row in rows_of(Phase.DECODE, records, window)])
    ratio, known = model.log_ratio(records)
    assert known.all()
    assert ratio == pytest.approx(np.zeros(count), abs=1e-4)
    assert abs(model.log_ratio(cycles(1, 7_000_000, batch_size=8, kv_tokens=5000))[0][0]) < 0.03


def test_a_window_or_cycles_far_off_do_not_bend_the_costs() -> None:
    """One window twice as slow, and a row of a spike."""
    rows = _reference(8)
    odd = [
        replace(row, log_ns=row.log_ns + 0.7 * (row.window == 20) + 1.6 * (number == 300))
        for number, row in enumerate(rows)
    ]
    assert _slope(_fitted(odd)) == pytest.approx(_slope(_fitted(rows)), rel=0.01)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 1000), st.integers(0, 3))
def test_scaling_all_times_moves_no_ratio(factor: float, seed: int) -> None:
    """Milliseconds or microseconds: the same ratios."""
    rows = _reference(seed, windows=12)
    scaled = [replace(row, log_ns=row.log_ns + float(np.log(factor))) for row in rows]
    one, other = _fitted(rows), _fitted(scaled)
    assert [other.residual(row) for row in scaled] == pytest.approx([one.residual(row) for row in rows], abs=1e-6)
    assert one.offsets.keys() == other.offsets.keys()


def test_state_goes_through_json_and_back() -> None:
    """Fitted, with loads half learned: the same model."""
    model = _fitted(_reference(9))
    model.learn(list(cells_of(Phase.DECODE, cycles(20, 9_000_000, batch_size=100, kv_tokens=10**6))), 10, 0.0)
    assert WorkloadModel.from_state(json.loads(json.dumps(model.state()))) == model
    empty = WorkloadModel(Phase.EXTEND)
    assert WorkloadModel.from_state(json.loads(json.dumps(empty.state()))) == empty
    assert empty.explain().coefficients == ()
    with pytest.raises(ValueError, match="version 1"):
        WorkloadModel.from_state({**model.state(), "version": 1})


def test_no_rows_are_refused() -> None:
    """There is nothing to expect."""
    with pytest.raises(ValueError, match="no cycles"):
        WorkloadModel(Phase.DECODE).fit([])


def test_rows_cover_all_cycles_and_cut_them_by_tokens() -> None:
    """Parts of a cell differ in cached tokens: that is what tells their cost."""
    records = _decodes(np.random.default_rng(3), 8, 1000)
    rows = rows_of(Phase.DECODE, records, 5)
    assert sum(row.count for row in rows) == len(records)
    assert {row.window for row in rows} == {5}
    for bucket in {row.bucket for row in rows}:
        tokens = [row.kv_tokens for row in rows if row.bucket == bucket]
        assert tokens == sorted(tokens)
