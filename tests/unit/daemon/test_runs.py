from typing import Any

import pytest

from cyclewatch.collectors.records import ServerIdentity
from cyclewatch.daemon.runs import RunRegistry, fingerprint
from cyclewatch.daemon.store.unit import ChangeEvent, Run
from watched import SECOND, WALL_NS, ring_identity


def registry(*known: Run) -> RunRegistry:
    return RunRegistry("node", "boot", known)


def start(number: int, **changes: Any) -> Any:
    """The ring of the server's n-th start."""
    return ring_identity(f"1-{number}-7", parent_start_ticks=number, wall_ns=WALL_NS + number * SECOND, **changes)


def kinds(events: list[ChangeEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in events]


def test_the_first_run_of_a_target_is_no_change() -> None:
    run, events = registry().of_ring(start(1), "server")
    assert (run.target, run.version, run.model, run.started_at_ns) == ("server", "0.5.23", "tiny", WALL_NS + SECOND)
    assert events == []


def test_a_second_start_is_a_restart_at_its_time() -> None:
    """The event is placed where the server began, not where the daemon saw it."""
    runs = registry()
    runs.of_ring(start(1), "server")
    run, events = runs.of_ring(start(9), "server")
    assert events == [ChangeEvent("server", run.started_at_ns, "restart", "server", "", "")]


def test_a_restart_of_the_daemon_is_none_of_the_server() -> None:
    """The same process is the same run, remembered by the store."""
    first, _ = registry().of_ring(start(1), "server")
    again, events = registry(first).of_ring(start(1), "server")
    assert (again, events) == (first, [])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sglang_version": "0.5.24"}, [("restart", "server"), ("version", "sglang")]),
        ({"server": {"model_path": "large", "page_size": 1}}, [("restart", "server"), ("model", "model_path")]),
        ({"server": {"model_path": "tiny", "page_size": 16}}, [("restart", "server"), ("argument", "page_size")]),
        ({"server": {"model_path": "tiny"}}, [("restart", "server"), ("argument", "page_size")]),
        ({"server": {"model_path": "tiny", "page_size": 1, "port": 7}}, [("restart", "server")]),
    ],
)
def test_what_changed_with_a_restart_is_told(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Version, model, each argument; where it listens is no change of speed."""
    runs = registry()
    runs.of_ring(start(1), "server")
    run, events = runs.of_ring(start(2, **changes), "server")
    assert kinds(events) == expected
    same = len(expected) == 1
    assert (run.fingerprint == fingerprint("0.5.23", "tiny", {"model_path": "tiny", "page_size": 1})) is same


def test_the_ranks_of_a_server_share_its_run() -> None:
    """One parent process, one restart event."""
    runs = registry()
    runs.of_ring(start(1), "server")
    first, events = runs.of_ring(start(2), "server")
    second, more = runs.of_ring(ring_identity("1-3-9", tp_rank=1, parent_start_ticks=2), "server")
    assert first.key == second.key
    assert (len(events), more) == (1, [])


def test_targets_do_not_meet() -> None:
    runs = registry()
    first, _ = runs.of_ring(start(1), "a")
    second, events = runs.of_ring(start(2), "b")
    assert first.key != second.key
    assert events == []


def test_an_old_ring_does_not_become_the_latest_run() -> None:
    """The ring of an earlier start that was not cleared away, read later."""
    runs = registry()
    latest, _ = runs.of_ring(start(5), "server")
    old, events = runs.of_ring(start(2, sglang_version="0.4"), "server")
    assert (old.version, events) == ("0.4", [])
    again, events = runs.of_ring(start(5), "server")
    assert (again, events) == (latest, [])


def test_the_latest_of_several_known_runs_counts() -> None:
    """Whatever the order the store gives them in."""
    seen = registry()
    runs = [seen.of_ring(start(number), "server")[0] for number in (1, 2, 3)]
    _, events = registry(*reversed(runs)).of_ring(start(3), "server")
    assert events == []


def test_the_same_numbers_after_a_reboot_are_another_run() -> None:
    """Process ids and start ticks begin anew with every boot."""
    before, _ = registry().of_ring(start(1), "server")
    after, events = RunRegistry("node", "next boot", [before]).of_ring(start(1), "server")
    assert after.key != before.key
    assert kinds(events) == [("restart", "server")]


def test_a_run_is_seen_later_and_never_earlier() -> None:
    runs = registry()
    run, _ = runs.of_ring(start(1), "server")
    later = runs.seen(run, WALL_NS + 50 * SECOND, {})
    assert later.last_seen_ns == WALL_NS + 50 * SECOND
    assert runs.seen(later, WALL_NS, {}).last_seen_ns == WALL_NS + 50 * SECOND
    assert runs.of_ring(start(1), "server")[0] == later


def test_what_a_ring_and_an_answer_say_of_arguments_is_not_compared() -> None:
    """A server known by its ring that only answers over HTTP for a while: the same run, no argument has changed."""
    runs = registry()
    run, _ = runs.of_ring(start(1), "chat")
    answer = ServerIdentity("chat", "http://x", run.version, run.model, {**run.arguments, "page_size": 1})
    same, events = runs.of_server(answer, run.started_at_ns + SECOND, {})
    assert (same.key, events) == (run.key, [])
