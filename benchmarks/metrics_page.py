"""What a page of /metrics costs: series, bytes, and the time to render it, in both formats.

    python benchmarks/metrics_page.py [--repeats 15]

Every reading that collectors declare, three phases a rank, all on one page; the last line is a node so crowded that the
page is cut at its bound. Times are the best of the repeats, in CPU time of this process.
"""

import argparse
import time
from collections.abc import Callable, Iterator

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector

from cyclewatch.collectors.quantities import Quantity
from cyclewatch.collectors.records import STAGES, Reading, RingCounters
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.daemon.metrics import Metrics
from cyclewatch.daemon.metrics_state import PhaseState, RingState

PHASES = ("decode", "extend", "decode_beside_extend")
GPUS = 8
CROWDS = ((1, 1), (1, 8), (6, 8), (300, 8))


def crowded(servers: int, ranks: int) -> Metrics:
    """The metrics of a node with that many servers of that many ranks."""
    metrics = Metrics()
    targets = [f"127.0.0.1:{30_000 + number}" for number in range(servers)]
    places = [(target, f"tp{rank}") for target in targets for rank in range(ranks)]
    state = metrics.state
    state.rings = {
        str(place): RingState(*place, RingCounters(), 9, 0, 0, alive=True, heartbeat_age_s=0.1) for place in places
    }
    state.phases = {
        str((*place, phase)): PhaseState(
            *place, phase, 0.005, 1.0, 1.0, regression_open=False, stages_s=(0.001,) * len(STAGES)
        )
        for place in places
        for phase in PHASES
    }
    state.quantities = known_quantities()
    readings = [
        Reading(target, quantity.name, 1.0, labels)
        for quantity in state.quantities.values()
        for target in (targets if quantity.target == "server" else ["node"])
        for labels in _labels(quantity, ranks)
    ]
    state.readings = lambda: readings
    return metrics


def _labels(quantity: Quantity, ranks: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """One series, or one for each rank or GPU where those tell readings apart."""
    apart = next((label for label in quantity.labels if label in {"rank", "gpu"}), None)
    others = tuple((label, "one") for label in quantity.labels if label != apart)
    if apart is None:
        yield others
    else:
        yield from ((*others, (apart, str(number))) for number in range(ranks if apart == "rank" else GPUS))


def best_ms(render: Callable[[Collector], bytes], page: Collector, repeats: int) -> float:
    """Milliseconds of CPU time of the quickest of several renderings."""
    times_ns = []
    for _ in range(repeats):
        start_ns = time.process_time_ns()
        render(page)
        times_ns.append(time.process_time_ns() - start_ns)
    return min(times_ns) / 1e6


def main() -> None:
    """Print a line for each crowd."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    print("servers x ranks   series       bytes   text, ms   OpenMetrics, ms")
    for servers, ranks in CROWDS:
        page = crowded(servers, ranks).page
        text = generate_latest(page)
        series = sum(not line.startswith(b"#") for line in text.splitlines())
        times = (best_ms(render, page, options.repeats) for render in (generate_latest, openmetrics))
        print(f"{servers:7} x {ranks:<5} {series:8,} {len(text):11,} " + " ".join(f"{one:10.1f}" for one in times))


if __name__ == "__main__":
    main()
