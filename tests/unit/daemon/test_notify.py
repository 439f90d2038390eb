import os
import socket
import time
import uuid
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cyclewatch.daemon.notify import ServiceManager
from notify_socket import listening


class Clock:
    """Monotonic seconds that a test sets."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def test_without_a_service_manager_nothing_is_told() -> None:
    """Started by hand, in a container, in a test."""
    manager = ServiceManager({})
    manager.ready("watching")
    manager.turned(lambda: pytest.fail("nobody wants to know"))
    manager.reloading()
    manager.stopping()


@pytest.mark.parametrize("abstract", [False, True])
def test_it_is_told_on_paths_and_on_abstract_names(tmp_path: Path, abstract: bool) -> None:
    """Older systemd, and containers, use abstract names."""
    address = f"@cyclewatch-{uuid.uuid4()}" if abstract else str(tmp_path / "notify")
    with listening(address) as heard:
        manager = ServiceManager({"NOTIFY_SOCKET": address})
        before_us = time.monotonic_ns() // 1000
        manager.ready("2 servers")
        manager.reloading()
        manager.stopping()
        heard.wait_for("STOPPING")
    assert [set(one.values) for one in heard.messages] == [
        {"READY", "STATUS"},
        {"RELOADING", "MONOTONIC_USEC"},
        {"STOPPING", "STATUS"},
    ]
    assert heard.said("STATUS")[0] == "2 servers"
    assert before_us <= int(heard.said("MONOTONIC_USEC")[0]) <= time.monotonic_ns() // 1000


def test_the_watchdog_is_fed_four_times_while_it_waits(tmp_path: Path) -> None:
    """However often the loop turns, and only when it does."""
    clock = Clock()
    with listening(tmp_path / "notify") as heard:
        manager = ServiceManager({"NOTIFY_SOCKET": heard.address, "WATCHDOG_USEC": "30000000"}, clock)
        for _ in range(61):
            clock.at_s += 1.0
            manager.turned(lambda: "turning")
        manager.stopping()
        heard.wait_for("STOPPING")
    assert heard.said("READY") == ["1"]
    assert heard.said("WATCHDOG") == ["1"] * (1 + 60 // 8)


def test_without_a_watchdog_only_the_status_is_told(tmp_path: Path) -> None:
    clock = Clock()
    with listening(tmp_path / "notify") as heard:
        manager = ServiceManager({"NOTIFY_SOCKET": heard.address, "WATCHDOG_USEC": "0"}, clock)
        for _ in range(30):
            clock.at_s += 1.0
            manager.turned(lambda: f"turn\n{clock.at_s:.0f}")
        manager.stopping()
        heard.wait_for("STOPPING")
    assert heard.said("STATUS")[:-1] == ["turn 101", "turn 111", "turn 121"]
    assert heard.said("READY") == ["1"]
    assert heard.said("WATCHDOG") == []


@pytest.mark.parametrize(
    "environ",
    [
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-1"},
        {"WATCHDOG_USEC": "²"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid() + 1)},
    ],
)
def test_a_watchdog_that_is_none_or_another_process_s_is_not_fed(tmp_path: Path, environ: dict[str, str]) -> None:
    with listening(tmp_path / "notify") as heard:
        manager = ServiceManager({"NOTIFY_SOCKET": heard.address, **environ})
        manager.ready("started")
        heard.wait_for("READY")
    assert heard.said("WATCHDOG") == []


def test_a_socket_that_is_gone_is_said_once_and_hurts_nobody(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    with capture_logs() as events:
        manager.ready("started")
        manager.stopping()
    assert [event["reason"] for event in events] == ["No such file or directory"]


def test_a_full_socket_does_not_make_the_daemon_wait(tmp_path: Path) -> None:
    """Nobody reads: the queue fills, and the loop goes on."""
    clock = Clock()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf, capture_logs() as events:
        deaf.bind(str(tmp_path / "notify"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")}, clock)
        for _ in range(2000):
            clock.at_s += 20.0
            manager.turned(lambda: "turning")
    assert [event["reason"] for event in events] == ["Resource temporarily unavailable"]


def test_a_name_that_is_no_socket_is_said() -> None:
    with capture_logs() as events:
        ServiceManager({"NOTIFY_SOCKET": "vsock:2:1234"}).ready("started")
    assert [event["socket"] for event in events] == ["vsock:2:1234"]
