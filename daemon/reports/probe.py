"""A probe as people and programs read it."""

from collections.abc import Mapping
from typing import Any

from cyclewatch.collectors.probe.quantities import CPU_LOOP, GPU_COPY, GPU_MATMUL, MEMORY_SCAN
from cyclewatch.daemon.probing.taking import Probed
from cyclewatch.detectors.probe import HISTORY_MIN, Comparison, Verdict

_WORKS = {
    CPU_LOOP: "loop on a CPU",
    MEMORY_SCAN: "scan of memory",
    GPU_MATMUL: "matrix product",
    GPU_COPY: "copy within the GPU",
}
_SENTENCES = {
    Verdict.MACHINE: "the machine: the same fixed work takes longer than usual",
    Verdict.NOT_MACHINE: "not the machine: the same fixed work surely takes less than a tenth longer than usual",
    Verdict.NOT_KNOWN: "not known: there is too little to compare with, or it varies too much",
}


def probe_document(probed: Probed) -> dict[str, Any]:
    """The machine-readable form, kept stable. The instant is UTC nanoseconds; times are seconds."""
    return {
        "at_ns": probed.at_ns,
        "reason": probed.reason.value,
        "verdict": probed.verdict.value,
        "works": [
            {
                "name": one.name,
                "labels": dict(one.labels),
                "seconds": one.now_s,
                "usual_seconds": one.usual_s,
                "factor": one.factor,
                "factor_range": None if one.low is None else [one.low, one.high],
                "slower": one.slower,
                "history": one.count,
            }
            for one in probed.comparisons
        ],
        "means": _means(probed.comparisons),
        "notes": list(probed.notes),
    }


def verdict_sentence(document: Mapping[str, Any]) -> str:
    """What a probe says of the machine."""
    return _SENTENCES[Verdict(document["verdict"])]


def work_row(work: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """One work for people: what it is, how it was timed, now, usually, and how many times longer."""
    labels = work["labels"]
    timed = {"cpu": "CPU time", "wall": "by the clock"}.get(labels.get("kind", ""), f"GPU {labels.get('gpu', '')}")
    usual, factor, within = work["usual_seconds"], work["factor"], work["factor_range"]
    what = (_WORKS[work["name"]], timed, _ms(work["seconds"]))
    if usual is None:
        return (*what, "-", f"{work['history']} of {HISTORY_MIN} times known")
    return (*what, _ms(usual), f"{factor:.2f} ({within[0]:.2f} to {within[1]:.2f})")


def _means(comparisons: tuple[Comparison, ...]) -> list[str]:
    """Where the machine is slower, as sentences."""
    slower = {(one.name, one.labels.get("kind", "")) for one in comparisons if one.slower}
    said = []
    if (CPU_LOOP, "cpu") in slower:
        said.append("a core does less in its time: its frequency, or what shares the core with it")
    elif (MEMORY_SCAN, "cpu") in slower:
        said.append("memory answers more slowly while the core is as fast as usual: others use the cache or the memory")
    if {(CPU_LOOP, "wall"), (MEMORY_SCAN, "wall")} & slower and not {(CPU_LOOP, "cpu"), (MEMORY_SCAN, "cpu")} & slower:
        said.append("the work waits for a CPU: others use them, or the daemon's own CPU limit holds it back")
    said += [
        f"GPU {one.labels.get('gpu', '')} {what}"
        for name, what in ((GPU_MATMUL, "computes more slowly: its clock"), (GPU_COPY, "has slower memory"))
        for one in comparisons
        if one.name == name and one.slower
    ]
    return said


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"
