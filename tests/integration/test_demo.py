"""The demo, played through: what it finds, and what a chat would have been told."""

from pathlib import Path

from cyclewatch.daemon.demo.recording import SHIPPED, load
from cyclewatch.daemon.demo.session import show


def test_the_demo_ends_with_an_incident_as_a_chat_would_tell_it(tmp_path: Path) -> None:
    shown = show(load(), SHIPPED, tmp_path, 12.0, lambda _passed_s, _text: None)
    assert shown.found
    (told,) = shown.told
    title, *lines, where = told.splitlines()
    assert "slower: decode on " in title
    assert [line.partition(":")[0] for line in lines] == ["What", "Users", "Since", "Cause", "Next"]
    assert where.endswith("incident 1: cyclewatch incidents show 1")
