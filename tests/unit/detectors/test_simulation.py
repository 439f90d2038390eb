from itertools import pairwise

import numpy as np
import pytest

from cyclewatch.collectors.records import RECORD, STAGES, ForwardMode, RecordKind, Records
from cyclewatch.detectors.phases import Floats, Phase, judged, phase_by_number, phases_of
from cyclewatch.detectors.simulation import Noise, Server, Shape, SimulatedWindow, Simulation, Slowdown, Traffic
from cyclewatch.detectors.simulation.noise import QUIET
from cyclewatch.detectors.simulation.server import padded
from cyclewatch.detectors.simulation.traffic import STEADY
from cyclewatch.detectors.windows import WindowCutter, summarise

PHASES = (Phase.DECODE, Phase.DECODE_BESIDE_EXTEND, Phase.EXTEND)
NOISY = Noise(spikes=0.01, collections=0.5, tail_freedom=3.0, disturbed=0.05)


def _all(windows: list[SimulatedWindow]) -> Records:
    return np.concatenate([window.records for window in windows])


def _levels(windows: list[SimulatedWindow], phase: Phase) -> Floats:
    """Mean log of measured over clean time by window, of the cycles of one phase."""
    levels = []
    for window in windows:
        chosen = judged(window.records) & (phases_of(window.records) == _number(phase))
        levels.append(np.log(window.records["cycle_ns"][chosen] / window.truth.clean_ns[chosen]).mean())
    return np.array(levels)


def _number(phase: Phase) -> int:
    return next(number for number in range(5) if phase_by_number(number) is phase)


def test_the_same_seed_gives_the_same_cycles_and_another_one_others() -> None:
    first = _all(list(Simulation(5, noise=NOISY).windows(150)))
    assert first.tobytes() == _all(list(Simulation(5, noise=NOISY).windows(150))).tobytes()
    assert first.tobytes() != _all(list(Simulation(6, noise=NOISY).windows(150))).tobytes()


def test_a_longer_run_begins_with_the_shorter_one() -> None:
    """Across the border of a block too."""
    longer = list(Simulation(5, noise=NOISY).windows(260))
    assert _all(longer[:130]).tobytes() == _all(list(Simulation(5, noise=NOISY).windows(130))).tobytes()


def test_slowdowns_change_nothing_but_times() -> None:
    slowdown = Slowdown(start_window=10, size=0.1)
    plain = _all(list(Simulation(5).windows(30)))
    slowed = _all(list(Simulation(5, slowdowns=(slowdown,)).windows(30)))
    for name in ("sequence", "kind", "mode", "batch_size", "new_tokens", "kv_tokens"):
        assert (plain[name] == slowed[name]).all()
    assert (plain["cycle_ns"] != slowed["cycle_ns"]).any()


def test_records_are_such_as_a_ring_gives() -> None:
    """Ascending sequences without a gap, ascending ends inside their window, stages that sum to the cycle."""
    windows = list(Simulation(1, noise=NOISY).windows(300))
    records = _all(windows)
    assert records.dtype == RECORD
    assert (records["sequence"] == np.arange(1, len(records) + 1)).all()
    assert (records["sequence"] == records["sequence_end"]).all()
    assert (np.diff(records["end_ns"].astype(np.int64)) > 0).all()
    for window in windows:
        assert (window.records["end_ns"] // 5_000_000_000 == window.truth.window).all()
        assert len(window.truth.clean_ns) == len(window.records)
    cycles = records[records["kind"] == RecordKind.CYCLE]
    assert (sum(cycles[f"{stage}_ns"] for stage in STAGES) == cycles["cycle_ns"]).all()
    assert (cycles["cycle_ns"] > 0).all()
    assert (cycles["on_cpu_ns"] <= cycles["cycle_ns"].astype(np.int64)).all()


def test_the_windows_are_those_that_the_daemon_cuts() -> None:
    windows = list(Simulation(2, noise=NOISY).windows(20))
    cutter = WindowCutter(5 * 10**9)
    assert not cutter.add(_all(windows))
    for cut, window in zip(cutter.close_until(100 * 10**9), windows, strict=True):
        expected = summarise(window.truth.window, window.records)
        assert cut.index == expected.index
        assert cut.records == len(window.records)
        assert {phase: len(cycles) for phase, cycles in cut.cycles.items()} == {
            phase: len(cycles) for phase, cycles in expected.cycles.items()
        }
        assert cut.set_aside == 0


def test_phases_modes_and_flags_are_valid() -> None:
    records = _all(list(Simulation(3).windows(200)))
    cycles = records[records["kind"] == RecordKind.CYCLE]
    assert judged(cycles).all()
    numbers = phases_of(cycles)
    assert {phase_by_number(int(number)) for number in np.unique(numbers)} == set(PHASES)
    extend = numbers == _number(Phase.EXTEND)
    assert (cycles["new_tokens"][extend] > 0).all()
    assert (cycles["kv_tokens"][extend] >= cycles["new_tokens"][extend]).all()
    assert (cycles["new_tokens"][~extend] == 0).all()
    assert (cycles["batch_size"] > 0).all()
    beside = numbers == _number(Phase.DECODE_BESIDE_EXTEND)
    assert (np.flatnonzero(extend) - 1 == np.flatnonzero(beside)).all()  # each prefill follows its launch
    assert 15 * 200 < extend.sum() < 25 * 200


@pytest.mark.parametrize(("sigma", "rho"), [(0.02, 0.5), (0.05, 0.8), (0.03, 0.0)])
@pytest.mark.parametrize("common", [0.0, 1.0])
def test_noise_between_windows_is_as_asked(sigma: float, rho: float, common: float) -> None:
    noise = Noise(window_sigma=sigma, correlation=rho, common=common, cycle_sigma=0.0, spikes=0.0, collections=0.0)
    windows = list(Simulation(7, noise=noise).windows(3000))
    decode, extend = (_levels(windows, phase) for phase in (Phase.DECODE, Phase.EXTEND))
    assert decode.std() == pytest.approx(sigma, rel=0.1)
    assert np.corrcoef(decode[1:], decode[:-1])[0, 1] == pytest.approx(rho, abs=0.05)
    assert np.corrcoef(decode, extend)[0, 1] == pytest.approx(common, abs=0.12)
    assert decode == pytest.approx([window.truth.noise[Phase.DECODE] for window in windows], abs=1e-5)


@pytest.mark.parametrize("freedom", [None, 5.0])
def test_noise_of_cycles_is_as_asked(freedom: float | None) -> None:
    noise = Noise(window_sigma=0.0, cycle_sigma=0.04, tail_freedom=freedom, spikes=0.02, collections=0.0)
    windows = list(Simulation(8, noise=noise).windows(1000))
    clean_ns = np.concatenate([window.truth.clean_ns for window in windows])
    ratio = np.log(_all(windows)["cycle_ns"] / clean_ns)
    spikes = ratio > np.log(3)
    assert spikes.mean() == pytest.approx(0.02, rel=0.1)
    assert ratio[~spikes].std() == pytest.approx(0.04, rel=0.05)


def test_garbage_collections_are_recorded_and_stretch_the_next_cycle() -> None:
    noise = Noise(window_sigma=0.0, cycle_sigma=0.0, spikes=0.0, collections=0.5, collection_ns=30_000_000)
    windows = list(Simulation(9, noise=noise).windows(1000))
    records, clean_ns = _all(windows), np.concatenate([window.truth.clean_ns for window in windows])
    places = np.flatnonzero(records["kind"] == RecordKind.GARBAGE_COLLECTION)
    assert len(places) == pytest.approx(500, rel=0.2)
    assert records["cycle_ns"][places].mean() == pytest.approx(30e6, rel=0.1)
    grown = records["cycle_ns"][places + 1] - clean_ns[places + 1]
    assert grown == pytest.approx(records["cycle_ns"][places], abs=10)
    assert (clean_ns[places] == 0).all()


@pytest.mark.parametrize("stage", ["launch", "wait", "result"])
def test_a_step_adds_its_size_to_its_stage(stage: str) -> None:
    slowdown = Slowdown(start_window=50, end_window=80, size=0.2, stage=stage)
    plain = list(Simulation(4, noise=QUIET).windows(100))
    slowed = list(Simulation(4, noise=QUIET, slowdowns=(slowdown,)).windows(100))
    for before, after in zip(plain, slowed, strict=True):
        effect = 0.2 if 50 <= after.truth.window < 80 else 0.0
        assert after.truth.effects == dict.fromkeys(PHASES, effect)
        assert after.records["cycle_ns"] / after.truth.clean_ns == pytest.approx(1 + effect, abs=1e-5)
        grown = after.records[f"{stage}_ns"].astype(np.int64) - before.records[f"{stage}_ns"]
        assert grown == pytest.approx(effect * after.truth.clean_ns, abs=10)


def test_blocked_time_is_not_on_the_cpu() -> None:
    def on_cpu(*slowdowns: Slowdown) -> float:
        records = _all(list(Simulation(4, noise=QUIET, slowdowns=slowdowns).windows(50)))
        return float(records["on_cpu_ns"][records["on_cpu_ns"] >= 0].mean())

    busy = Slowdown(size=0.5, stage="launch")
    assert on_cpu(busy) > 1.5 * on_cpu()
    assert on_cpu(Slowdown(size=0.5, stage="launch", on_cpu=False)) == pytest.approx(on_cpu(), abs=5)
    assert on_cpu(Slowdown(size=0.5, stage="wait")) == pytest.approx(on_cpu(), abs=5)


def test_a_slowdown_of_one_phase_leaves_the_others() -> None:
    slowdown = Slowdown(size=0.2, phase=Phase.EXTEND)
    windows = list(Simulation(4, noise=QUIET, slowdowns=(slowdown,)).windows(10))
    assert np.expm1(_levels(windows, Phase.EXTEND)) == pytest.approx(0.2, abs=1e-5)
    assert _levels(windows, Phase.DECODE) == pytest.approx(0.0, abs=1e-5)
    assert windows[0].truth.effects == {
        Phase.DECODE: 0.0,
        Phase.DECODE_BESIDE_EXTEND: 0.0,
        Phase.EXTEND: pytest.approx(0.2),
    }


def test_a_ramp_grows_evenly_and_stays() -> None:
    slowdown = Slowdown(Shape.RAMP, start_window=10, size=0.2, period_windows=20)
    windows = list(Simulation(4, noise=QUIET, slowdowns=(slowdown,)).windows(60))
    expected = np.clip((np.arange(60) - 9) / 20, 0, 1) * 0.2
    assert np.expm1(_levels(windows, Phase.DECODE)) == pytest.approx(expected, abs=1e-5)
    assert [window.truth.effects[Phase.DECODE] for window in windows] == pytest.approx(expected)


def test_a_burst_comes_and_goes() -> None:
    slowdown = Slowdown(Shape.BURST, start_window=5, size=0.2, period_windows=10, on=0.3)
    windows = list(Simulation(4, noise=QUIET, slowdowns=(slowdown,)).windows(35))
    expected = np.array([0.2 if n >= 5 and (n - 5) % 10 < 3 else 0.0 for n in range(35)])
    assert np.expm1(_levels(windows, Phase.DECODE)) == pytest.approx(expected, abs=1e-5)


def test_a_tail_leaves_the_median() -> None:
    slowdown = Slowdown(Shape.TAIL, size=0.8, on=0.1)
    windows = list(Simulation(4, noise=QUIET, slowdowns=(slowdown,)).windows(200))
    clean_ns = np.concatenate([window.truth.clean_ns for window in windows])
    ratio = _all(windows)["cycle_ns"] / clean_ns
    assert float(np.median(ratio)) == pytest.approx(1.0, abs=1e-5)
    assert (ratio > 1.7).mean() == pytest.approx(0.1, rel=0.1)
    assert windows[0].truth.effects[Phase.DECODE] == 0.0
    assert windows[0].truth.tails[Phase.DECODE] == pytest.approx(0.8)


def test_load_swings_as_far_as_asked_and_follows_the_day() -> None:
    load = np.array([w.truth.load for w in Simulation(1, traffic=Traffic(swing=0.5)).windows(4000)])
    assert 0.5 <= load.min() < 0.55
    assert 1.45 < load.max() <= 1.5
    traffic = Traffic(swing=0.0, diurnal=0.3, day_windows=1200)
    load = np.array([w.truth.load for w in Simulation(1, traffic=traffic).windows(1200)])
    assert load[300] == pytest.approx(1.3)
    assert load[900] == pytest.approx(0.7)


def test_cache_hits_change_the_new_tokens_of_prompts() -> None:
    windows = list(Simulation(1, traffic=Traffic(cache_hit_windows=100)).windows(2000))
    hits = [window.truth.cache_hit for window in windows]
    assert 10 < sum(before != after for before, after in pairwise(hits)) < 40
    ratios = []
    for window in windows:
        extend = window.records[window.records["mode"] == ForwardMode.EXTEND]
        extend = extend[extend["kind"] == RecordKind.CYCLE]
        ratios.append(1 - extend["new_tokens"].sum() / extend["kv_tokens"].sum())
    assert np.corrcoef(hits, ratios)[0, 1] > 0.7
    assert np.mean(ratios) == pytest.approx(np.mean(hits), abs=0.03)


def test_kv_grows_between_the_cycles_of_a_batch() -> None:
    records = _all(list(Simulation(1, traffic=STEADY, noise=QUIET).windows(50)))
    a_request = records["kv_tokens"] / records["batch_size"]
    assert (np.diff(a_request) > 0).mean() > 0.9
    assert a_request.mean() == pytest.approx(1500, rel=0.02)


def test_costs_are_the_sum_of_their_parts() -> None:
    (window,) = Simulation(1, Server(), STEADY, QUIET).windows(1)
    records = window.records
    assert padded(np.array([1.0, 3.0, 8.0, 9.0, 24.0, 25.0])).tolist() == [1, 4, 8, 16, 24, 32]
    size = records["batch_size"].astype(np.float64)
    host = 150_000 + 50_000 + 900_000 + 300_000 + 50_000 + 10_000 * size
    device = 4_500_000 + 10_000 * padded(size) + 43.0 * records["kv_tokens"]
    assert window.truth.clean_ns == pytest.approx(host + device)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Traffic(decodes=0, extends=0),
        lambda: Traffic(swing=0.8, diurnal=0.3),
        lambda: Noise(correlation=1.0),
        lambda: Noise(tail_freedom=2.0),
        lambda: Slowdown(stage="nowhere"),
        lambda: Slowdown(size=-0.1),
    ],
)
def test_what_cannot_be_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=r"\w"):
        wrong()
