"""What the doctor says of the API."""

from pathlib import Path

import pytest

from api import TOKEN
from cyclewatch.config.web import Web
from cyclewatch.daemon.check import Level
from cyclewatch.daemon.web.checks import web_checks


@pytest.mark.parametrize(
    ("token", "level", "finding"),
    [
        ("", Level.NOTE, "can only be read, and only from this node"),
        ("env:API_TOKEN", Level.GOOD, "can be used with its token"),
        ("env:EMPTY", Level.BAD, "nobody can use it: web.token: env:EMPTY: empty: write the secret there"),
    ],
)
def test_it_says_who_can_use_it(token: str, level: Level, finding: str) -> None:
    (check,) = web_checks(Web(token=token), {"API_TOKEN": TOKEN, "EMPTY": ""})
    assert (check.level, check.finding) == (level, finding)
    assert bool(check.mend) == (level is not Level.GOOD)


def test_what_only_the_service_can_see_is_not_judged(tmp_path: Path) -> None:
    """A command has neither credentials of systemd nor its environment; a command within the unit has."""
    assert list(web_checks(Web(token="credential:api"), {})) == []
    assert list(web_checks(Web(token="env:API_TOKEN"), {})) == []
    (check,) = web_checks(Web(token="credential:api"), {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert check.level is Level.BAD


def test_an_endpoint_that_is_off_is_not_judged() -> None:
    assert list(web_checks(Web(enabled=False), {})) == []
