"""The demo, played through: what it finds, and what a chat would have been told."""

from pathlib import Path

from cyclewatch.daemon.demo.recording import SHIPPED, load
from cyclewatch.daemon.demo.session import show

SPEED = 6.0
"""As `make demo` plays it: a faster clock leaves a busy machine too little time for each window."""


def test_the_demo_ends_with_an_incident_as_a_chat_would_tell_it(tmp_path: Path) -> None:
    shown = show(load(), SHIPPED, tmp_path, SPEED, lambda _passed_s, _text: None)
    assert shown.found
    (told,) = shown.told
    title, *lines, where = told.splitlines()
    assert "slower: decode on " in title
    assert [line.partition(":")[0] for line in lines] == ["What", "Users", "Since", "Cause", "Next"]
    assert where.endswith("incident 1: cyclewatch incidents show 1")
