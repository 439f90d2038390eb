import copy
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from cyclewatch.collectors.records import STAGES
from cyclewatch.collectors.registry import known_quantities
from cyclewatch.config import causes as module
from cyclewatch.config.causes import CausesError, causal_graph, parse_causes
from cyclewatch.config.causes_reference import causes_table, effects_table, next_steps_table

SMALL: dict[str, Any] = {
    "shown": ["stage_launch_busy"],
    "cause": [
        {
            "kind": "heat",
            "subject": "heat",
            "layer": "hardware",
            "lengthens": ["host"],
            "size": "unsized",
            "sign": [{"reading": "host.heat", "direction": "up"}],
            "explains": ["frequency"],
        },
        {
            "kind": "frequency",
            "subject": "a lower frequency",
            "layer": "host",
            "lengthens": ["host"],
            "size": "factor",
            "explains": ["stage_*"],
        },
    ],
}


def test_what_follows_is_known_over_several_steps() -> None:
    """Heat lowers the frequency, and that makes the stage longer."""
    graph = parse_causes(SMALL)
    assert graph.explains("heat", "stage_launch_busy")
    assert not graph.explains("frequency", "heat")


def _with(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    document = copy.deepcopy(SMALL)
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d["cause"][0].update(colour="red"), "heat: colour is not known; known are event, event_s"),
        (lambda d: d.update(kinds=[]), "the file: kinds is not known; known are cause, failures, next, shown"),
        (lambda d: d["cause"][0].pop("subject"), "heat: subject is missing"),
        (lambda d: d["cause"][0].update(layer="cloud"), "heat: cloud is none of hardware, host"),
        (lambda d: d["cause"][0].update(size="big"), "heat: big is none of lost, lost_at_most"),
        (lambda d: d["cause"][0]["sign"][0].update(direction="left"), "heat: left is none of up, down"),
        (lambda d: d["cause"][0]["sign"][0].update(unit="K"), "heat: a sign: unit is not known"),
        (lambda d: d["cause"][0]["sign"][0].pop("reading"), "heat: a sign needs a reading and a direction"),
        (lambda d: d["cause"][0].update(event=[{"kind": "xid"}]), "heat: an event needs a kind and a subject"),
        (lambda d: d["cause"][0].update(size="per_event"), "heat: event_s belongs to the size per_event"),
        (lambda d: d["cause"][0].update(explains=["cold"]), "heat: there is no kind cold that it could explain"),
        (lambda d: d["cause"].append(d["cause"][0]), "heat: it stands twice"),
        (lambda d: d["cause"][1].update(explains=["heat"]), "these follow from each other: "),
    ],
)
def test_a_damaged_graph_is_refused(change: Callable[[dict[str, Any]], None], sentence: str) -> None:
    """With the kind that is wrong, and what is wrong with it."""
    with pytest.raises(CausesError) as raised:
        parse_causes(_with(change))
    assert str(raised.value).startswith(sentence)


def test_every_reading_of_the_graph_is_one_that_a_collector_gives() -> None:
    """By its name, and with the labels that a sign asks for."""
    labels = {quantity.name: {"target", *quantity.labels} for quantity in known_quantities().values()}
    assert causal_graph().readings <= labels.keys()
    for kind in causal_graph().kinds.values():
        for sign in kind.sign:
            assert sign.labels.keys() <= labels[sign.reading], (kind.kind, sign.reading)


def test_what_the_split_shows_is_in_the_graph() -> None:
    """Every stage, and both ways of those of the host."""
    ways = {
        f"stage_{stage}{way}" for stage in STAGES for way in ("", "_busy", "_blocked") if stage != "wait" or not way
    }
    assert set(causal_graph().shown) == {*ways, "unexplained"}


def test_parts_are_words_that_are_known() -> None:
    """Stages, or one of the words that stand for several parts."""
    words = {*STAGES, "host", "device", "communication", "copies", "load"}
    assert all(words.issuperset(kind.lengthens) for kind in causal_graph().kinds.values())


def test_the_graph_is_beside_its_module() -> None:
    """So that it is installed with it."""
    text = resources.files(module.__package__).joinpath("causes.toml").read_text(encoding="utf-8")
    assert parse_causes(tomllib.loads(text)).kinds == causal_graph().kinds


def test_the_page_of_causes_holds_the_graph() -> None:
    """docs/causes.md has the tables that `causes_reference` makes: put them there after a change of causes.toml."""
    page = (Path(__file__).parents[3] / "docs/causes.md").read_text(encoding="utf-8")
    assert causes_table(causal_graph()) in page
    assert effects_table(causal_graph()) in page
    assert next_steps_table(causal_graph()) in page


def test_every_kind_has_a_next_step_that_fits_a_message() -> None:
    graph = causal_graph()
    assert set(graph.next_steps) == {*graph.kinds, *graph.shown}
    assert all(0 < len(step) <= 120 for step in graph.next_steps.values())
