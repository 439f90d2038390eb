"""One regression as Markdown."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cyclewatch.daemon.store.history import RegressionView

_KINDS = {
    "level": "a step of the median cycle",
    "tail": "the slowest cycles against the others",
    "drift": "slowly, against a day that was pinned",
    "deployment": "another version or other arguments, against those before them at the same load",
}


def regression_markdown(view: RegressionView) -> str:
    """What got slower, by how much, since when, and why; with the split and the evidence."""
    verb = "slower" if view.direction == "slower" else "faster"
    lines = [
        f"# {view.target}: {view.phase} is {abs(view.effect):.1%} {verb}",
        "",
        f"- rank: {view.rank}",
        f"- kind: {_KINDS.get(view.kind, view.kind)}",
        f"- state: {view.state}",
        f"- since: {_time(view.started_at_ns)}, found {_seconds(view.detected_at_ns - view.started_at_ns)} later",
        f"- effect: {view.effect:+.1%}, 95 % interval {view.ci[0]:+.1%} to {view.ci[1]:+.1%}",
        f"- probability that it is no noise: {view.probability:.4%}",
    ]
    if view.ended_at_ns is not None:
        lines.append(f"- ended: {_time(view.ended_at_ns)}")
    lines += ["", "## Where the time goes", ""]
    if view.split:
        lines += ["| part of the cycle | before, ms | after, ms | change, ms |", "|---|---:|---:|---:|"]
        lines += [_split_row(part["part"], part["before_us"], part["after_us"]) for part in view.split]
        total_before = sum(part["before_us"] for part in view.split)
        total_after = sum(part["after_us"] for part in view.split)
        lines.append(_split_row("mean cycle", total_before, total_after))
        lines += _bound_rows(view.physical_bound) if view.physical_bound else []
    else:
        lines.append("No load was seen both before and after, so the time cannot be split.")
    lines += ["", "## Causes", ""]
    if not view.causes:
        lines.append("None shown.")
    for cause in view.causes:
        share = "" if cause["share"] is None else f", {cause['share']:.0%} of the slowdown"
        lines.append(f"{cause['rank']}. {cause['subject']} ({cause['kind']}; {cause['status']}{share})")
        lines += [f"   - {proof}" for proof in cause["evidence"]]
    return "\n".join(lines) + "\n"


def _bound_rows(bound: Mapping[str, Any]) -> list[str]:
    """What the mean cycle takes at least, and what is above that, as rows of the same table."""
    before, after = bound["before"], bound["after"]
    rows = [
        _split_row(f"at least on {after['gpu']}, by {after['bound_by']}", before["at_least_us"], after["at_least_us"])
    ]
    rows.append(_split_row("above that", before["above_us"], after["above_us"]))
    rows += [_split_row(f"above that: {part['part']}", part["before_us"], part["after_us"]) for part in bound["above"]]
    old, new = (side["speed_of_light_ratio"] for side in (before, after))
    return [*rows, f"| speed of light | {old:.1%} | {new:.1%} | |"]


def _split_row(name: str, before_us: float, after_us: float) -> str:
    return f"| {name} | {before_us / 1e3:.3f} | {after_us / 1e3:.3f} | {(after_us - before_us) / 1e3:+.3f} |"


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(length_ns: int) -> str:
    return f"{length_ns / 1e9:.0f} s"
