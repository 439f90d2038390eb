"""What a cycle costs a simulated server: the sum of what host and device must do."""

from dataclasses import dataclass

import numpy as np

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.phases import Floats
from cyclewatch.detectors.simulation.traffic import BESIDE, EXTEND, Load

_GRAPH_STEP = 8
_GRAPHS_SMALL = (1, 2, 4, 8)


@dataclass(frozen=True)
class Server:
    """Costs in nanoseconds: by default about those of a model of 8 billion parameters on one large GPU.

    Host work comes first (`schedule`, `input`, `launch`, `result`, `rest`), with parts for each request of the batch;
    launching a prefill costs `launch_extend_ns`, more for its requests and tokens, and stretches the decode that
    runs beside it. Then the device: the weights to read, each request of the captured graph the batch is padded to, and
    each cached token; for a prefill each new token and each pair of a new token and one that it attends to.
    """

    schedule_ns: float = 150_000
    schedule_request_ns: float = 2_000
    input_ns: float = 50_000
    launch_ns: float = 900_000
    launch_extend_ns: float = 2_500_000
    launch_extend_request_ns: float = 50_000
    launch_extend_token_ns: float = 50
    result_ns: float = 300_000
    result_request_ns: float = 8_000
    rest_ns: float = 50_000
    weights_ns: float = 4_500_000
    padded_request_ns: float = 10_000
    kv_token_ns: float = 43
    extend_ns: float = 3_000_000
    new_token_ns: float = 32_000
    attended_pair_ns: float = 1.3

    def stages_ns(self, load: Load) -> Floats:
        """Nanoseconds of each stage of each cycle without noise, shape (6, n), in the order of `STAGES`."""
        size, new, kv_tokens = load.batch_size, load.new_tokens, load.kv_tokens
        beside, extend = load.phase == BESIDE, load.phase == EXTEND
        launched = (
            self.launch_extend_ns
            + self.launch_extend_request_ns * load.launched_requests
            + self.launch_extend_token_ns * load.launched_tokens
        )
        decode_ns = self.weights_ns + self.padded_request_ns * padded(size) + self.kv_token_ns * kv_tokens
        # Requests of one prefill are taken to be alike: each attends to its own tokens only.
        pairs = new * (kv_tokens - new / 2) / np.maximum(size, 1)
        extend_ns = (
            self.extend_ns + self.weights_ns + self.new_token_ns * new + self.attended_pair_ns * np.maximum(pairs, 0)
        )
        parts = {
            "schedule": self.schedule_ns + self.schedule_request_ns * load.running,
            "input": np.full(len(size), self.input_ns),
            "launch": np.where(beside, launched, self.launch_ns),
            "wait": np.where(extend, extend_ns, decode_ns),
            "result": self.result_ns + self.result_request_ns * size,
            "rest": np.full(len(size), self.rest_ns),
        }
        return np.stack([parts[stage] for stage in STAGES])


def padded(batch_size: Floats) -> Floats:
    """The size of the captured graph that a batch runs in: 1, 2, 4, 8, then every 8; shape kept."""
    small = np.array(_GRAPHS_SMALL, np.float64)
    fitting = small[np.minimum(np.searchsorted(small, batch_size), len(small) - 1)]
    sizes: Floats = np.where(batch_size <= small[-1], fitting, np.ceil(batch_size / _GRAPH_STEP) * _GRAPH_STEP)
    return sizes
