import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.patterns import fits


@pytest.mark.parametrize("pattern", ["node7:30000", "node7:*", "*", "node[67]:30000", "node?:30000"])
def test_names_fit_patterns_as_of_a_shell(pattern: str) -> None:
    assert fits("node7:30000", pattern)


@pytest.mark.parametrize("pattern", ["", "node7", "NODE7:30000", "node[!7]:30000", ":30000"])
def test_what_does_not_fit(pattern: str) -> None:
    assert not fits("node7:30000", pattern)


@given(st.text())
def test_every_name_fits_itself(name: str) -> None:
    """Those of IPv6 too: [::1]:30000."""
    assert fits(name, name)
