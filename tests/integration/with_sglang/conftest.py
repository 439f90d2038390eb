"""A real SGLang 0.5.23 for all tests here that need nothing of their own of it: to start one takes half a minute."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_cpu.server import SGLangServer
from sglang_lab import kineto_environment, ring_directory, sglang_environment

VERSION = "0.5.23"
rings = pytest.fixture(scope="package")(ring_directory)
channel = pytest.fixture(scope="package")(ring_directory)


@pytest.fixture(name="server", scope="package")
def _server(rings: Path, channel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SGLangServer]:
    # A small ring, 18 s at this pace: the daemon of one test must not learn from the slowdown of the one before.
    environment = {
        "CYCLEWATCH_RING_DIR": str(rings),
        "CYCLEWATCH_RING_RECORDS": "4096",
        **kineto_environment(channel),
    }
    workdir = tmp_path_factory.mktemp("sglang")
    with SGLangServer(sglang_environment(VERSION), VERSION, workdir, extra_env=environment) as server:
        yield server
