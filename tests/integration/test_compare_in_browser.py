"""The page of `cyclewatch compare` in a real browser: it opens, shows everything, and asks nobody for anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cyclewatch.daemon.cli.app import app
from recordings import recorded

CHROMIUM = Path("/usr/bin/chromium")
REPORTS = Path(__file__).parents[1] / "fixtures/reports"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(name="browser", scope="module")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with a profile of its own, which is gone afterwards."""
    if not CHROMIUM.exists():
        pytest.skip("NOT RUN: no Chromium; apt-get install chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (starts a driver; only where there is a browser)

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("chromium"), executable_path=CHROMIUM, args=ARGUMENTS, headless=True
        )
        yield context
        context.close()


class Page:
    """An open page, and what it asked for and complained of on the way."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light", width: int = 1280) -> None:
        self.page = browser.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.emulate_media(color_scheme=scheme)
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.goto(path.as_uri())

    def color(self, selector: str, what: str) -> str:
        return str(self.page.locator(selector).first.evaluate(f"element => getComputedStyle(element).{what}"))


@pytest.fixture(name="report", scope="module")
def _report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two recordings."""
    folder = tmp_path_factory.mktemp("page")
    files = recorded(folder / "a.xz"), recorded(folder / "b.xz", factor=1.3, seed=2)
    return made(folder / "page.html", *files)


def made(page: Path, *words: Path) -> Path:
    result = CliRunner().invoke(app, ["compare", *map(str, words), "--html", str(page)])
    assert result.exit_code == 0, result.stderr
    return page


def test_the_page_shows_findings_plot_split_and_causes(browser: Any, report: Path) -> None:
    page = Page(browser, report).page
    assert "against" in page.title()
    assert "decode cycles at the same load" in page.locator("#findings li").first.inner_text()
    headings = page.locator("h2").all_inner_texts()
    assert {"Key findings", "Causes", "Cycles: decode", "Where the time goes", "Suspicion table"} <= set(headings)
    curves = page.locator("svg.plot polyline")
    assert curves.count() == 2
    box = page.locator("svg.plot").bounding_box()
    assert box["width"] > 300
    assert box["height"] > 100


def test_it_asks_nobody_and_complains_of_nothing(browser: Any, report: Path) -> None:
    opened = Page(browser, report)
    assert opened.asked == [report.as_uri()]
    assert opened.complaints == []


def test_light_and_dark_are_both_readable(browser: Any, report: Path) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        opened = Page(browser, report, scheme)
        shades[scheme] = opened.color("body", "backgroundColor"), opened.color("h2", "color")
    assert shades["light"] != shades["dark"]
    for back, front in shades.values():
        assert back != front


def test_a_narrow_window_scrolls_tables_and_not_the_page(browser: Any, report: Path) -> None:
    page = Page(browser, report, width=420).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_hostile_names_do_nothing(browser: Any, tmp_path: Path) -> None:
    text = (REPORTS / "memory_clock.md").read_text()
    script = "</td><script>alert(1)</script><img src=http://127.0.0.1:9/x onerror=alert(2)>"
    (tmp_path / "report.md").write_text(text.replace("oncpu", script).replace("steady", script))
    opened = Page(browser, made(tmp_path / "page.html", tmp_path / "report.md"))
    assert len(opened.asked) == 1
    assert opened.complaints == []
    assert "<script>alert(1)</script>" in opened.page.locator("h1").inner_text()
