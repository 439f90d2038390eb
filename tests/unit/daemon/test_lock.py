from pathlib import Path

import pytest

from cyclewatch.daemon.lock import LockError, only_daemon


def test_a_second_daemon_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    """The sentence names the file; afterwards the directory is free again."""
    directory = tmp_path / "state"
    with (
        only_daemon(directory),
        pytest.raises(LockError, match=r"daemon\.lock: another cyclewatch"),
        only_daemon(directory),
    ):
        pass
    with only_daemon(directory):
        pass


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "state").write_text("")
    with pytest.raises(LockError, match="cannot be made"), only_daemon(tmp_path / "state"):
        pass
