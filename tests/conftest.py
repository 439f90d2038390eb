"""What holds for every test."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from structlog.testing import capture_logs

# On a busy machine an example may take its time; a failing one prints how to get it again.
settings.register_profile("cyclewatch", deadline=None, print_blob=True)
settings.load_profile("cyclewatch")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nothing is rendered: without a configuration structlog draws every traceback with all local variables."""
    with capture_logs():
        yield


@pytest.fixture(name="logging_as_before")
def _logging_as_before() -> Iterator[None]:
    """For tests in which the daemon sets up its log: afterwards it is as it was."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
