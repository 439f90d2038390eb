"""Table 4: series that people have annotated.

The metrics are those of van den Burg and Williams, An Evaluation of Change Point Detection Algorithms (2020),
section 4.2: an index is the first point of a new segment, several annotators may disagree, index 0 counts on both
sides.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detect.contestants import OURS, Contestant
from detect.report import Options, Table, verdict
from detect.series import Floats

MARGIN = 5
AIM_F1, AIM_COVERING = 0.66, 0.58
NOTHING = "reports nothing"
NO_DATA = "NOT RUN: no data in {}"
STEPS, STEP_TOLERANCE, OUTLIER = (15, 71), 1, 10  # of the TigerBeetle series


@dataclass(frozen=True)
class Annotated:
    """A series, shape (n,), and the change points of each annotator."""

    name: str
    values: Floats
    annotations: tuple[tuple[int, ...], ...]


def matched(truth: Iterable[int], found: Iterable[int], margin: int = MARGIN) -> int:
    """How many true change points have a found one within the margin, each found one used once, the nearest first."""
    left, hits = set(found), 0
    for index in sorted(set(truth)):
        near = min(left, key=lambda other: (abs(other - index), other), default=None)
        if near is not None and abs(near - index) <= margin:
            left.remove(near)
            hits += 1
    return hits


def f1(annotations: Sequence[Sequence[int]], found: Iterable[int], margin: int = MARGIN) -> float:
    """F1: precision against all annotators together, recall averaged over them (the paper's equations 5 and 6)."""
    reported = {0, *found}
    truths = [{0, *annotation} for annotation in annotations]
    precision = matched(set().union(*truths), reported, margin) / len(reported)
    recall = sum(matched(truth, reported, margin) / len(truth) for truth in truths) / len(truths)
    return 2 * precision * recall / (precision + recall)


def covering(annotations: Sequence[Sequence[int]], found: Iterable[int], points: int) -> float:
    """Covering of the annotated segments by the found ones, averaged over annotators (the paper's equation 8).

    Every true segment counts with its length, times the largest Jaccard index it has with any found segment.
    """
    predicted = _segments(found, points)
    covers = [
        sum((end - start) * max(_jaccard((start, end), other) for other in predicted) for start, end in segments)
        for segments in (_segments(annotation, points) for annotation in annotations)
    ]
    return sum(covers) / len(covers) / points


def _segments(indexes: Iterable[int], points: int) -> list[tuple[int, int]]:
    bounds = sorted({0, points, *(index for index in indexes if 0 < index < points)})
    return list(itertools.pairwise(bounds))


def _jaccard(one: tuple[int, int], other: tuple[int, int]) -> float:
    common = max(0, min(one[1], other[1]) - max(one[0], other[0]))
    return common / (one[1] - one[0] + other[1] - other[0] - common)


def load(folder: Path) -> list[Annotated]:
    """The annotated series of a folder, by name; none where there is no such folder."""
    series = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        annotations = tuple(tuple(indexes) for indexes in content["annotations"].values())
        series.append(Annotated(content["name"], np.array(content["values"], dtype=np.float64), annotations))
    return series


def table(options: Options) -> Table:
    """Run the annotated series, and tell the mean of each metric."""
    folder = options.shared / "data" / "tcpd"
    series = load(folder)
    title = f"4. Turing Change Point Dataset, {len(series)} series, mean F1 (margin {MARGIN}) and covering"
    if not series:
        return Table("tcpd", title, notes=[NO_DATA.format(folder)])
    entries = [Contestant(NOTHING, "", lambda _: []), *options.contestants]
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    notes = []
    for entry in entries:
        if entry.find is None:
            rows.append((entry.name, "-", "-", "-", entry.version))
            continue
        found = {one.name: entry.find(one.values) for one in series}
        scores = np.array(
            [
                (f1(one.annotations, found[one.name]), covering(one.annotations, found[one.name], len(one.values)))
                for one in series
            ]
        )
        mean_f1, mean_covering = (float(mean) for mean in scores.mean(axis=0))
        points = sum(map(len, found.values()))
        rows.append((entry.name, f"{mean_f1:.3f}", f"{mean_covering:.3f}", f"{points}", entry.note))
        figures.append({"name": entry.name, "f1": mean_f1, "covering": mean_covering, "found": found})
        if entry.name == OURS:
            met = mean_f1 >= AIM_F1 and mean_covering >= AIM_COVERING
            notes.append(f"the aim, ours at least {AIM_F1} and {AIM_COVERING}, is {verdict(met=met)}")
    return Table("tcpd", title, ("", "F1", "covering", "points found", "with"), rows, figures, notes)


def performance_table(options: Options) -> Table:
    """Run a real performance series whose changes Otava's authors have described."""
    path = options.shared / "data" / "otava" / "tigerbeetle.json"
    title = f"4b. TigerBeetle, a real performance series: steps at {STEPS[0]} and {STEPS[1]}, an outlier at {OUTLIER}"
    if not path.exists():
        return Table("tigerbeetle", title, notes=[NO_DATA.format(path.parent)])
    values = np.array(json.loads(path.read_text())["values"], dtype=np.float64)
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    notes = []
    for entry in options.contestants:
        if entry.find is None:
            rows.append((entry.name, "-", "-", entry.version))
            continue
        found = entry.find(values)
        steps = [any(abs(index - step) <= STEP_TOLERANCE for index in found) for step in STEPS]
        fooled = any(OUTLIER <= index <= OUTLIER + 1 for index in found)
        rows.append((entry.name, f"{sum(steps)} of {len(STEPS)}", "yes" if fooled else "no", " ".join(map(str, found))))
        figures.append({"name": entry.name, "found": found, "steps_found": sum(steps), "outlier_found": fooled})
        if entry.name == OURS:
            notes.append(f"the aim, both steps and not the outlier, is {verdict(met=all(steps) and not fooled)}")
    return Table("tigerbeetle", title, ("", "steps", "outlier", "all found"), rows, figures, notes)
