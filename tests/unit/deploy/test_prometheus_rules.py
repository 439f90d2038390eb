"""deploy/prometheus/: what promtool says of it, and that it speaks of what there is."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cyclewatch.daemon.metrics_page import LABEL_MAX, SERIES_MAX

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy/prometheus"
ALERTS = PROMETHEUS / "rules/cyclewatch-alerts.yml"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
NAMES = re.findall(r"- alert: (\w+)", ALERTS.read_text())
HISTOGRAM_ENDS = ("_bucket", "_sum", "_count")
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on the PATH: install prometheus")


def known_metrics() -> set[str]:
    """All names on the page of metrics, and those that a histogram has in Prometheus."""
    page = (ROOT / "docs/metrics.md").read_text()
    names = set(re.findall(r"^\| `(cyclewatch_\w+)`", page, flags=re.MULTILINE))
    return names | {name + end for name in names for end in HISTOGRAM_ENDS}


def promtool(*arguments: str) -> str:
    assert PROMTOOL is not None
    answer = subprocess.run([PROMTOOL, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@needs_promtool
def test_the_configuration_is_valid() -> None:
    """And finds its rules."""
    assert "2 rule files found" in promtool("check", "config", "prometheus.yml")


@needs_promtool
def test_the_rules_are_valid() -> None:
    """By promtool, which finds none twice."""
    assert "duplicate" not in promtool("check", "rules", *(str(path) for path in RULES))


@needs_promtool
def test_the_rules_do_what_their_tests_say() -> None:
    """Promtool's unit tests: what fires when, and what must not."""
    promtool("test", "rules", "rules_test.yml")


def test_the_alerts_are_few() -> None:
    assert 5 < len(NAMES) == len(set(NAMES)) < 12


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_test_a_runbook_and_words(name: str) -> None:
    """The section of the runbook has the name of the alert."""
    (rule,) = re.findall(rf"- alert: {name}\n(.*?)(?=\n\n|\Z)", ALERTS.read_text(), flags=re.DOTALL)
    link = f"https://github.com/cyclewatch/cyclewatch/blob/main/docs/operations.md#{name.lower()}"
    assert f"runbook_url: {link}\n" in f"{rule}\n"
    assert "summary:" in rule
    assert "description:" in rule
    assert f"\n### {name}\n" in (ROOT / "docs/operations.md").read_text()
    assert f"alertname: {name}\n" in (PROMETHEUS / "rules_test.yml").read_text()


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_name_metrics_that_there_are(path: Path) -> None:
    """A renamed metric would silence an alert without a word."""
    text = re.sub(r"record: .*|instance\w*:cyclewatch_\w+:\w+|cyclewatch_lost", "", path.read_text())
    assert set(re.findall(r"\bcyclewatch_\w+", text)) - known_metrics() == set()


def test_a_scrape_takes_every_page_that_the_daemon_gives() -> None:
    """The limits of the job are above the page's own; one UTF-8 character has four bytes at most."""
    text = (PROMETHEUS / "prometheus.yml").read_text()
    limits = {name: int(value) for name, value in re.findall(r"(\w+_limit): (\d+)", text)}
    assert limits["sample_limit"] > SERIES_MAX
    assert limits["label_value_length_limit"] >= 4 * LABEL_MAX


@needs_promtool
def test_the_commands_of_the_page_work() -> None:
    """Those of promtool, from the root of the checkout as the page has them."""
    commands = re.findall(r"^    promtool (.+)$", (ROOT / "docs/prometheus.md").read_text(), flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        answer = subprocess.run([str(PROMTOOL), *command.split()], cwd=ROOT, capture_output=True, check=False)
        assert answer.returncode == 0, (command, answer.stdout, answer.stderr)


def test_the_page_names_files_that_there_are() -> None:
    """What it says to install and to run."""
    named = re.findall(r"\bdeploy/[\w./-]+", (ROOT / "docs/prometheus.md").read_text())
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_page_lists_the_alerts() -> None:
    text = (ROOT / "docs/prometheus.md").read_text()
    assert re.findall(r"^\| `(Cyclewatch\w+)`", text, flags=re.MULTILINE) == NAMES
