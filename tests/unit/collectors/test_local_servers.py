from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.collectors.base import Now
from cyclewatch.collectors.discovery import Discovery, Server
from cyclewatch.collectors.local_servers import LocalServersCollector, server_address
from cyclewatch.collectors.records import NoData
from cyclewatch.config.settings import Discovery as DiscoverySettings
from cyclewatch.config.settings import Target

NOW = Now(0, 0)


@pytest.mark.parametrize(
    ("command", "address"),
    [
        ("python3 -m sglang.launch_server --model-path x --port 8000", ("127.0.0.1", 8000)),
        ("python3 -m sglang.launch_server --host 0.0.0.0 --port=8001", ("0.0.0.0", 8001)),
        ("python3 -m sglang.launch_server", ("127.0.0.1", 30000)),
        ("/opt/venv/bin/python /opt/venv/bin/sglang serve --port 1 --port 2", ("127.0.0.1", 2)),
        ("/usr/bin/sglang serve", ("127.0.0.1", 30000)),
        ("grep sglang.launch", None),
        ("vi sglang", None),
        ("python3 -m sglang.launch_server --port 99999999", None),
        ("python3 -m sglang.launch_server --port x", None),
        ("", None),
    ],
)
def test_a_command_line_names_its_server(command: str, address: tuple[str, int] | None) -> None:
    """Both ways to start SGLang, with and without options, and nothing else."""
    assert server_address(command.split(" ")) == address


@given(st.lists(st.text(max_size=20), max_size=10))
def test_any_command_line_is_read(words: list[str]) -> None:
    """Nothing in it raises."""
    server_address(words)
    server_address(["sglang.launch_server", *words])


def test_processes_become_servers(tmp_path: Path) -> None:
    """A fake /proc with one server, one other process and one that has vanished; configured names win."""
    for pid, command in ((10, "python\0-m\0sglang.launch_server\0--port\x008000\0"), (11, "bash\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text(command)
    (tmp_path / "12").mkdir()
    discovery = Discovery([Target.model_validate({"name": "chat", "url": "http://localhost:8000"})])
    collector = LocalServersCollector(DiscoverySettings(), discovery, tmp_path)
    assert collector.collect(NOW) == []
    assert discovery.servers() == (Server("chat", "http://localhost:8000"),)


def test_a_server_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    """And none at all is said to be no data."""
    discovery = Discovery([])
    discovery.listening([("127.0.0.1", 30000)])
    (sample,) = LocalServersCollector(DiscoverySettings(), discovery, tmp_path).collect(NOW)
    assert isinstance(sample, NoData)
    assert discovery.servers() == ()
