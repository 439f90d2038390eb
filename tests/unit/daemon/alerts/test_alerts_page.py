"""docs/alerts.md says what is so."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from alert_messages import MESSAGE, NOW_NS, sender
from cyclewatch.config.alerts import Alerts, Sink
from cyclewatch.daemon.alerts.senders.registry import SENDERS

PAGE = (Path(__file__).parents[4] / "docs/alerts.md").read_text()
EXAMPLES = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]


def test_the_table_of_the_webhook_has_every_field() -> None:
    body = json.loads(sender("webhook").payload(MESSAGE, NOW_NS).body)
    table = PAGE.partition("| field | type | meaning |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(body)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_examples_are_good_settings(example: dict[str, object]) -> None:
    if "alerts" in example:
        Alerts.model_validate(example["alerts"])
    else:
        Sink.model_validate(example)


def test_there_is_an_example_of_every_sink() -> None:
    assert {example.get("type") for example in EXAMPLES} >= set(SENDERS)


@pytest.mark.parametrize("kind", SENDERS)
def test_the_rates_are_in_the_table_of_limits(kind: str) -> None:
    (row,) = re.findall(rf"^\| {kind} \|[^|]*\|([^|]*)\|", PAGE, re.MULTILINE)
    figures = {int(one) for one in re.findall(r"\d+", row)}
    assert {rate.count for rate in sender(kind).rates} <= figures
    assert bool(figures) == bool(sender(kind).rates)
