"""What a pass over the incidents costs, beside a hundred thousand old regressions in SQLite.

    python benchmarks/incident_passes.py

Says the median time and the CPU of a pass that finds nothing to do: with nothing open, with one incident of 24
regressions, and with 200 more of as many servers; and of the pass that takes those in.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from sqlalchemy import insert

from cyclewatch.config.settings import Log
from cyclewatch.daemon.incidents.service import IncidentService
from cyclewatch.daemon.log import configure_logging
from cyclewatch.daemon.store.models import RegressionRow
from incident_daemons import Daemons
from made_incidents import SECOND, START_NS, finding

OLD = 100_000
PASSES = 100
CAUSE = {
    "rank": 1,
    "kind": "gpu_power_cap",
    "subject": "the GPU's power limit holds its clock down",
    "device": "gpu3",
    "score": 0.5,
    "share": 0.5,
    "status": "measured",
    "evidence": ["a sentence of about a hundred characters, as the evidence of a cause consists of, with figures"] * 4,
}


def main() -> None:
    """Measure, and print a line for each."""
    configure_logging(Log(level="error"))
    with tempfile.TemporaryDirectory() as directory:
        daemons = Daemons(f"sqlite:///{directory}/a.db")
        _add_old(daemons)
        service = daemons.daemon()
        daemons.clock.now_ns += 7200 * SECOND
        service.look()
        _say(f"{OLD:,} old regressions, nothing open", daemons, service)
        began_ns = daemons.clock.now_ns
        ranks = (
            finding(f"n{number}", target=f"t{number % 4}", rank=f"tp{number // 4}", started_at_ns=began_ns)
            for number in range(24)
        )
        daemons.add(*ranks, causes=[CAUSE] * 6)
        daemons.wait(service, 300)
        _say("and 24 open ones, one incident", daemons, service)
        began_ns = daemons.clock.now_ns
        targets = (finding(f"m{number}", target=f"u{number}", started_at_ns=began_ns) for number in range(200))
        daemons.add(*targets, causes=[CAUSE] * 6)
        begun_s = time.perf_counter()
        daemons.wait(service, 5)
        print(f"the pass that takes in 200 more: {(time.perf_counter() - begun_s) * 1e3:.0f} ms")
        daemons.wait(service, 300)
        _say("and 224 open ones", daemons, service)
        daemons.engine.dispose()


def _add_old(daemons: Daemons) -> None:
    """One every five minutes, for a year."""
    daemons.add(finding("first", started_at_ns=START_NS - OLD * 300 * SECOND, ended_at_ns=START_NS - 10**15))
    rows = [
        {
            "key": f"o{number}",
            "run_id": 1,
            "target": f"t{number % 50}",
            "rank": "tp0",
            "phase": "decode",
            "state": "resolved",
            "direction": "slower",
            "kind": "level",
            "started_at_ns": START_NS - (number + 1) * 300 * SECOND,
            "detected_at_ns": START_NS - (number + 1) * 300 * SECOND,
            "ended_at_ns": START_NS - number * 300 * SECOND,
            "effect": 0.1,
            "ci_low": 0.09,
            "ci_high": 0.11,
            "probability": 1.0,
            "split": [],
            "causes": [CAUSE] * 6,
        }
        for number in range(OLD)
    ]
    with daemons.engine.begin() as connection:
        for at in range(0, OLD, 5000):
            connection.execute(insert(RegressionRow), rows[at : at + 5000])


def _say(words: str, daemons: Daemons, service: IncidentService) -> None:
    times_s, cpu_s = [], time.process_time()
    for _ in range(PASSES):
        begun_s = time.perf_counter()
        daemons.wait(service, 5)
        times_s.append(time.perf_counter() - begun_s)
    cpu_s = (time.process_time() - cpu_s) / PASSES
    print(f"{words}: {median(times_s) * 1e3:.1f} ms a pass (median), {cpu_s * 1e3:.1f} ms of CPU")


if __name__ == "__main__":
    main()
