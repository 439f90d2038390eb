import json
import logging
from typing import Any

import pytest
import structlog

from cyclewatch.config.settings import Log
from cyclewatch.daemon.log import configure_logging

pytestmark = pytest.mark.usefixtures("logging_as_before")


def fail_with_a_secret() -> None:
    password = "s3cret"  # noqa: F841
    raise RuntimeError("the database is gone")


def log_failure(settings: Any, capsys: pytest.CaptureFixture[str]) -> str:
    configure_logging(settings)
    try:
        fail_with_a_secret()
    except RuntimeError as error:
        structlog.get_logger().error("collector failed", collector="cycles", exc_info=error)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_json_is_one_object_a_line_with_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """For programs; nothing goes to standard output."""
    (line,) = log_failure(Log(format="json"), capsys).splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["collector"]) == ("collector failed", "error", "cycles")
    assert event["timestamp"].endswith("Z")
    assert event["exception"][0]["exc_value"] == "the database is gone"


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_local_variables(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They may hold a password or a key."""
    text = log_failure(Log.model_validate({"format": form}), capsys)
    assert "the database is gone" in text
    assert "s3cret" not in text


def test_lower_levels_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Log(level="warning"))
    structlog.get_logger().info("started")
    structlog.get_logger().warning("regression")
    assert "started" not in (text := capsys.readouterr().err)
    assert "regression" in text


def test_warnings_of_libraries_come_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """And their small talk does not."""
    configure_logging(Log(format="json", level="info"))
    logging.getLogger("apscheduler").info("Scheduler started")
    logging.getLogger("apscheduler").warning("a job was missed")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "a job was missed"
