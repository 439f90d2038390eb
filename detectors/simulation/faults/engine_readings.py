"""What the engine collector and the rings tell in a given state, of the server as a whole."""

from cyclewatch.collectors.records import STAGES
from cyclewatch.detectors.simulation.faults.host_readings import Use
from cyclewatch.detectors.simulation.faults.node import Node
from cyclewatch.detectors.simulation.faults.state import State
from cyclewatch.detectors.simulation.faults.traces import Level, Levels

_PACE_S, _SELF_S = 10.0, 10.0
_ANSWER_TOKENS = 200
_PROMPT_TOKENS = 1200
_CATEGORIES = {
    "recv_requests": ("rest",),
    "process_input_requests": ("input",),
    "get_next_batch_to_run": ("schedule",),
    "run_batch": ("launch",),
    "process_batch_result": ("wait", "result"),
}
"""SGLang's names of the parts of its loop, and the stages of a cycle that they are."""


def engine_levels(node: Node, state: State, use: Use, usual_ns: float, *, backlog: bool) -> Levels:
    """Levels of SGLang's own metrics.

    `usual_ns` is the cycle while nothing is wrong; with a `backlog` requests come as fast as they always did and
    have to queue once the server is slower.
    """
    service = state.service
    slower = use.cycle_ns / usual_ns
    running = node.traffic.batch_size
    queued = service.queued + (150 * (1 - 1 / slower) if backlog else 0.0)
    tokens = running * 1e9 / use.cycle_ns
    requests = tokens / _ANSWER_TOKENS
    latency_s = use.cycle_ns / 1e9
    waits_s = 0.01 + queued / max(requests, 1e-6) if queued else 0.01
    share = dict(zip(STAGES, use.stages, strict=True))
    found: Levels = {
        ("engine.running_requests", ()): Level(running, _PACE_S, 0.15, counted=False, whole=True),
        ("engine.queued_requests", ()): Level(
            queued, _PACE_S, 0.15, 0.7, counted=False, whole=True, lag_s=60 if backlog else 5
        ),
        ("engine.kv_used_ratio", ()): Level(service.kv_used, _PACE_S, 0.02, counted=False, lag_s=20, most=1.0),
        ("engine.kv_used_tokens", ()): Level(4e5 * service.kv_used, _PACE_S, 0.02, counted=False, lag_s=20),
        ("engine.cuda_graph_ratio", ()): Level(
            0.0 if node.synchronous else service.graphs, _PACE_S, 0.005, varied=0, most=1.0
        ),
        ("engine.generation_tokens_per_s", ()): Level(tokens, _PACE_S, 0.1),
        ("engine.prompt_tokens_per_s", ()): Level(requests * _PROMPT_TOKENS, _PACE_S, 0.2),
        ("engine.requests_per_s", ()): Level(requests, _PACE_S, 0.2),
        ("engine.aborted_requests_per_s", ()): Level(0, _PACE_S, 0),
        ("engine.retracted_requests_per_s", ()): Level(service.retracted_per_s, _PACE_S, 0.3),
        ("engine.retracted_tokens_per_s", ()): Level(80 * service.retracted_per_s, _PACE_S, 0.4),
        ("engine.scheduler_idle_ratio", ()): Level(0.02, _PACE_S, 0.5, most=1.0),
        ("engine.scheduler_cpu_ratio", ()): Level(use.computed + 0.1, _PACE_S, 0.03),
        ("engine.cache_hit_ratio", ()): Level(node.traffic.cache_hit, _PACE_S, 0.1, most=1.0),
        ("engine.itl_mean_s", ()): Level(1.3 * latency_s, _PACE_S, 0.06),
        ("engine.ttft_mean_s", ()): Level(6 * latency_s + waits_s, _PACE_S, 0.2),
        ("engine.e2e_mean_s", ()): Level(_ANSWER_TOKENS * 1.3 * latency_s + waits_s, _PACE_S, 0.1, lag_s=20),
        ("engine.queue_time_mean_s", ()): Level(waits_s, _PACE_S, 0.3),
    }
    for category, stages in _CATEGORIES.items():
        level = Level(0.97 * sum(share[stage] for stage in stages), _PACE_S, 0.04, varied=0.02, most=1.0)
        found["engine.scheduler_stage_ratio", (("stage", category),)] = level
    return found


def self_levels() -> Levels:
    """What the daemon tells of itself, which has nothing to do with the server."""
    return {
        ("self.cpu_ratio", ()): Level(0.018, _SELF_S, 0.15),
        ("self.rss_bytes", ()): Level(140e6, _SELF_S, 0.005),
        ("self.store_rows_per_s", ()): Level(150, _SELF_S, 0.1),
        ("self.store_busy_ratio", ()): Level(0.01, _SELF_S, 0.3),
    }
