"""From samples to what is stored: windows, and what `judge.py` finds in them. One thread owns all of this."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor

import numpy as np
import structlog

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.records import (
    CycleBatch,
    Fact,
    Happening,
    Reading,
    Records,
    RingIdentity,
    Sample,
    ServerIdentity,
)
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.environment import Environment
from cyclewatch.daemon.inquiry import History, Inquiry
from cyclewatch.daemon.judge import Judge
from cyclewatch.daemon.latest_readings import LatestReadings
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.model_bound import SpeedOfLight
from cyclewatch.daemon.profiling.board import Board
from cyclewatch.daemon.runs import RunRegistry
from cyclewatch.daemon.store.unit import (
    ChangeEvent,
    Replaced,
    RingPosition,
    Run,
    StoredSample,
    StoredWindow,
    Unit,
)
from cyclewatch.daemon.tracks import RingTrack, ring_states, targets_status
from cyclewatch.detectors.watching.decision import Parameters
from cyclewatch.detectors.windows import Window, WindowCutter

log = structlog.get_logger(__name__)

_FUTURE_NS = 10 * 10**9
_CYCLE_MAX_NS = 3600 * 10**9
_CLOCK_SET_NS = 2 * 10**9
_FLUSH_INTERVAL_NS = 10 * 10**9
_SUSPECTED_FLUSH_INTERVAL_NS = 5 * 10**9
"""While a series is under suspicion: soon the store is asked what is behind it."""

_CHECKPOINT_INTERVAL_NS = 20 * 10**9
_RING_DELAY_NS = 15 * 10**9


class Pipeline:
    """Takes samples, closes windows at every turn, and hands what came of them to the store."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        runs: RunRegistry,
        environment: Environment,
        board: Board,
        history: History,
        positions: Mapping[str, RingPosition],
        submit: Callable[[Unit], None],
        executor: Executor,
    ) -> None:
        self._warmup_ns = int(settings.detection.warmup_s * 1e9)
        self._length_ns = int(settings.windows.length_s * 1e9)
        self._metrics = metrics
        self._runs = runs
        self._environment = environment
        self._board = board
        self._speed_of_light = SpeedOfLight(settings.engine.hub)
        inquiry = Inquiry(history, settings.engine.hub, executor)
        self._judge = Judge(Parameters.of(settings.detection, settings.windows), metrics, board, history, inquiry)
        self._positions = dict(positions)
        self._submit = submit
        self._rings: dict[str, RingTrack] = {}
        self._unit = Unit(0)
        self._readings = LatestReadings(settings)
        metrics.state.readings = self._readings.all
        self._identities: dict[str, tuple[ServerIdentity, Now]] = {}
        self._served: dict[str, Run] = {}
        self._flushed_ns = 0
        self._checkpoint_ns = 0

    def take_settings(self, settings: Settings) -> None:
        """Judge by other settings of detection from the next window on; all else stays as it is."""
        self._warmup_ns = int(settings.detection.warmup_s * 1e9)
        self._judge.settle(self._unit, wait=True)
        self._judge.take_parameters(Parameters.of(settings.detection, settings.windows), self._rings.values())

    def take(self, sample: Sample, now: Now) -> None:
        """Take one sample; nothing is written before the next turn."""
        if isinstance(sample, CycleBatch):
            self._take_cycles(sample, now)
        elif isinstance(sample, Reading):
            self._take_reading(sample, now.wall_ns, now)
        elif isinstance(sample, Fact):
            self._take_fact(sample, now.wall_ns)
        elif isinstance(sample, Happening):
            self._note_events(
                [ChangeEvent(sample.target, sample.wall_ns, sample.kind, sample.subject, "", sample.detail)]
            )
        elif isinstance(sample, ServerIdentity) and not self._has_ring(sample.target):
            self._identities[sample.target] = (sample, now)

    def turn(self, now: Now) -> None:
        """Close the windows whose records have all been read, judge them, and hand everything to the store."""
        for track in list(self._rings.values()):
            offset_ns = _utc_offset_ns(track.batch.ring, now)
            for window in track.close():
                self._close(track, window, window.index * self._length_ns + offset_ns, now)
            if track.batch.over:
                self._end(track)
        self._judge.settle(self._unit, wait=False)
        self._runs_without_ring(now)
        self._publish(now)
        found = bool(self._unit.regressions)
        if found or now.monotonic_ns - self._flushed_ns >= self._flush_interval_ns(now):
            is_due = found or now.monotonic_ns - self._checkpoint_ns >= _CHECKPOINT_INTERVAL_NS
            self.flush(now, checkpoint=is_due and not self._judge.waiting)

    def flush(self, now: Now, *, checkpoint: bool) -> None:
        """Hand what there is to the store; with a checkpoint, detectors and ring positions together.

        A restart goes on from the last checkpoint and judges again what came after it: windows are written
        over with equal ones, and a regression always takes a checkpoint along, so that it is neither lost nor
        found twice. So a checkpoint waits until it is known what is behind all that was found.
        """
        unit = self._unit
        if checkpoint:
            self._judge.settle(unit, wait=True)
        unit.at_ns = now.wall_ns
        unit.status = {"targets": targets_status(self._metrics.state)}
        self._flushed_ns = now.monotonic_ns
        self._readings.age(now.monotonic_ns)
        if checkpoint:
            self._checkpoint_ns = now.monotonic_ns
            unit.states = self._judge.states()
            for key, track in self._rings.items():
                position = track.cutter.first_open_sequence() or track.next_sequence
                unit.rings.append(RingPosition(key, position, track.cutter.last_closed))
                track.run = self._runs.seen(track.run, now.wall_ns, self._environment.of(track.run.target))
                unit.runs.append(track.run)
        self._submit(unit)
        self._unit = Unit(0)

    def _flush_interval_ns(self, now: Now) -> int:
        return _SUSPECTED_FLUSH_INTERVAL_NS if self._board.suspected(now.monotonic_ns) else _FLUSH_INTERVAL_NS

    def _take_reading(self, reading: Reading, at_ns: int, now: Now) -> None:
        stored = StoredSample(reading.target, reading.name, reading.labels, at_ns, reading.value)
        self._unit.samples.append(stored)
        self._readings.note(stored.series, reading, now.monotonic_ns)

    def _take_fact(self, fact: Fact, at_ns: int) -> None:
        kept, change = self._environment.note(fact, at_ns)
        if kept is not None:
            self._unit.facts.append(kept)
        if change is not None:
            self._note_events([change])

    def _take_cycles(self, batch: CycleBatch, now: Now) -> None:
        if batch.ring.key not in self._rings and not batch.alive and not len(batch.records):
            return  # left over from a server that has ended, and read to its end
        track = self._rings.get(batch.ring.key) or self._begin(batch, now)
        if track is None:
            return
        track.batch = batch
        track.next_sequence = batch.next_sequence
        track.read += len(batch.records)
        track.lost += batch.lost
        track.torn += batch.torn
        plausible = self._plausible(batch.records, now.monotonic_ns)
        track.newest_ns = int(plausible["end_ns"].max(initial=track.newest_ns))
        records = self._board.take(batch.ring, track.run, plausible)
        if not batch.ring.device_only and not batch.counters.disabled and not batch.counters.paused:
            self._board.heard(batch.ring.key, batch.counters.heartbeat_ns, batch.complete_ns)
        late = track.cutter.add(records)
        if late:
            self._metrics.records_refused.labels("late").inc(late)

    def _begin(self, batch: CycleBatch, now: Now) -> RingTrack | None:
        """Begin to watch a ring; None where it is not known yet whose passes these are."""
        run = self._served.get(batch.target) if batch.ring.device_only else self._run_of_ring(batch)
        if run is None:
            return None
        saved = self._positions.pop(batch.ring.key, None)
        present_window = now.monotonic_ns // self._length_ns
        # Windows are counted from the start of the machine: after another start, or with longer windows, a saved number
        # may lie far ahead, and every record would be late. Otherwise what was closed had ended: the saved one holds.
        last_window = min(saved.last_window, present_window - 1) if saved else present_window - 10**6
        track = RingTrack(
            run=run,
            rank=batch.ring.rank,
            synchronous=batch.ring.synchronous,
            cutter=WindowCutter(self._length_ns, last_window),
            next_sequence=batch.next_sequence,
            batch=batch,
        )
        self._rings[batch.ring.key] = track
        log.info(
            "watching",
            target=batch.target,
            rank=track.rank,
            pid=batch.ring.pid,
            sglang=run.version,
            hooks_missing=list(batch.ring.hooks_missing),
            resumed=saved is not None,
        )
        return track

    def _end(self, track: RingTrack) -> None:
        """Watch a ring no more from which nothing will come."""
        ring = track.batch.ring
        log.info("server gone", target=track.run.target, rank=track.rank, pid=ring.pid)
        del self._rings[ring.key]
        self._board.forget(ring.key)
        if ring.device_only and self._serves(track.run):
            del self._served[track.run.target]  # the next start may be another configuration
        self._forget(track.run.target)

    def _run_of_ring(self, batch: CycleBatch) -> Run:
        run, events = self._runs.of_ring(batch.ring, batch.target)
        self._note_events(events)
        self._drop_passes(run)
        if self._runs.is_latest(run):
            for name, version in batch.ring.software.items():
                self._take_fact(Fact(batch.target, name, version), run.started_at_ns)
        run = self._runs.seen(run, run.last_seen_ns, self._environment.of(batch.target))
        self._note_run(run, events)
        return run

    def _plausible(self, records: Records, now_ns: int) -> Records:
        """Records whose times can be true; a damaged writer must not open windows in the far future."""
        good = (records["end_ns"] <= np.uint64(now_ns + _FUTURE_NS)) & (records["cycle_ns"] <= np.uint64(_CYCLE_MAX_NS))
        refused = len(records) - int(good.sum())
        if refused:
            self._metrics.records_refused.labels("implausible").inc(refused)
            return records.compress(good)
        return records

    def _close(self, track: RingTrack, window: Window, start_ns: int, now: Now) -> None:
        """Store a window that is over, and have it judged once its server has warmed up."""
        run = track.run
        for cell in window.cells:
            self._unit.windows.append(StoredWindow(run.key, track.rank, start_ns, self._length_ns, cell))
        labels = (("rank", track.rank),)
        for name, value in (
            ("cycles.stalled_ratio", window.stalled_ns / self._length_ns),
            ("cycles.collected_ratio", window.collected_ns / self._length_ns),
        ):
            self._take_reading(Reading(run.target, name, value, labels), start_ns, now)
        if not track.synchronous:  # without a GPU there is none to hold it against
            for reading in self._speed_of_light.readings(run, track.rank, window.cells):
                self._take_reading(reading, start_ns, now)
        # A start that is yet to come was told by a clock that has been put back since.
        if run.started_at_ns <= now.wall_ns and start_ns < run.started_at_ns + self._warmup_ns:
            return
        self._judge.window(track, self._rings.values(), window, start_ns, now, self._unit)

    def _runs_without_ring(self, now: Now) -> None:
        """Runs of servers that only answer over HTTP; a ring, which knows more, has some seconds to turn up."""
        for target, (identity, asked) in list(self._identities.items()):
            if now.monotonic_ns - asked.monotonic_ns < _RING_DELAY_NS:
                continue
            del self._identities[target]
            if not self._has_ring(target):
                run, events = self._runs.of_server(identity, asked.wall_ns, self._environment.of(target))
                self._note_events(events)
                self._note_run(run, events)
                if not self._serves(run):
                    self._drop_passes(run)
                self._served[target] = run

    def _has_ring(self, target: str) -> bool:
        """A ring knows more of its server than the server's answer, and says it in other words."""
        return any(track.run.target == target and not track.batch.ring.device_only for track in self._rings.values())

    def _serves(self, run: Run) -> bool:
        """Whether a run is the one that its server, which has no ring, was last known to be in."""
        served = self._served.get(run.target)
        return served is not None and served.key == run.key

    def _drop_passes(self, run: Run) -> None:
        """Watch no forward passes of other runs of this target: there is a new one, or a ring, which knows more."""
        passes = [
            key for key, track in self._rings.items() if track.batch.ring.device_only and track.run.target == run.target
        ]
        for key in passes:
            del self._rings[key]
            self._board.forget(key)
        if passes:
            self._forget(run.target)

    def _note_run(self, run: Run, events: Sequence[ChangeEvent]) -> None:
        self._unit.runs.append(run)
        if any(event.kind != "restart" for event in events):
            self._unit.replaced.append(Replaced(run.target, run.fingerprint, run.started_at_ns))

    def _note_events(self, events: Iterable[ChangeEvent]) -> None:
        for event in events:
            self._unit.events.append(event)
            log.info(
                "change",
                target=event.target,
                kind=event.kind,
                subject=event.subject,
                before=event.before,
                after=event.after,
            )

    def _forget(self, target: str) -> None:
        """Drop phases that no ring of the target has any more, and its readings with the last ring."""
        kept = {track.place(phase) for track in self._rings.values() for phase in track.watches}
        self._judge.forget(target, kept)
        if not self._has_ring(target):
            self._readings.forget(target)

    def _publish(self, now: Now) -> None:
        state = self._metrics.state
        state.phases = dict(self._judge.phases)
        state.rings = ring_states(self._rings.values(), now.monotonic_ns)


def _utc_offset_ns(ring: RingIdentity, now: Now) -> int:
    """UTC less monotonic time: as the ring has it, so that after a restart windows have the same places.

    Where the clock was set since, the present one holds.
    """
    present_ns, of_ring_ns = now.wall_ns - now.monotonic_ns, ring.wall_ns - ring.monotonic_ns
    return of_ring_ns if abs(of_ring_ns - present_ns) < _CLOCK_SET_NS else present_ns
