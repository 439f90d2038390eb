"""What holds for every test."""

from collections.abc import Iterator

import pytest
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
