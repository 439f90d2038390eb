"""The documents say what is true."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cyclewatch.config.reference import settings_reference
from cyclewatch.daemon.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "deploy/sglang-plugin/README.md"])
RUNNER = CliRunner()


def _ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_configuration_page_is_the_reference() -> None:
    """docs/configuration.md holds what `cyclewatch config reference` prints."""
    assert f"```toml\n{settings_reference()}```" in (ROOT / "docs/configuration.md").read_text()


def test_the_page_of_metrics_is_the_reference() -> None:
    """docs/metrics.md is what `cyclewatch metrics` prints, made from what the collectors declare."""
    assert RUNNER.invoke(app, ["metrics"]).output == (ROOT / "docs/metrics.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=_ids)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link names a file that is there."""
    for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=_ids)
def test_commands_exist(document: Path) -> None:
    """Every `cyclewatch …` command shown is one that the command line knows, with its options."""
    for line in re.findall(r"^ +(?:\S+=\S+ )*cyclewatch ([a-z][^#\n]*)", document.read_text(), flags=re.MULTILINE):
        words = [word for word in line.split() if not word.isdigit()]
        answer = RUNNER.invoke(app, [*words, "--help"])
        assert answer.exit_code == 0, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=_ids)
def test_make_targets_exist(document: Path) -> None:
    """Every `make …` shown is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for target in re.findall(r"(?:^ +|`)make ([a-z-]+)", document.read_text(), flags=re.MULTILINE):
        assert target in targets
