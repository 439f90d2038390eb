import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyclewatch.daemon.journal import Journal, datagram, entry, leads_to_journal

ONE_LINE = {"MESSAGE": "hello", "PRIORITY": "6"}


def parsed(data: bytes) -> dict[str, str]:
    """A datagram read back, by the letter of the protocol."""
    fields: dict[str, str] = {}
    while data:
        head, _, rest = data.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        fields[name.decode()] = value.decode()
        data = rest
    return fields


@pytest.fixture(name="journal")
def _journal(tmp_path: Path) -> Iterator[socket.socket]:
    """Stands for the journal's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "journal"))
        server.settimeout(5)
        yield server


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_what_is_written_can_be_read(fields: dict[str, str]) -> None:
    """Lines, equals signs, nothing at all: every value comes back."""
    assert parsed(datagram(fields)) == fields


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text()))))
def test_any_event_is_an_entry(event: dict[str, object]) -> None:
    """Names that the journal would refuse are made fit."""
    fields = entry("warning", event)
    assert all(name.replace("_", "A").isalnum() and name.isascii() and len(name) <= 64 for name in fields)
    assert fields["PRIORITY"] == "4"
    assert parsed(datagram(fields)).keys() == fields.keys()


def test_an_event_has_a_message_for_people_and_a_field_for_each_value() -> None:
    fields = entry("error", {"event": "regression", "target": "127.0.0.1:30000", "effect": "+3 %", "is-new": True})
    assert fields == {
        "MESSAGE": 'regression target=127.0.0.1:30000 effect="+3 %" is_new=true',
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "cyclewatch",
        "CYCLEWATCH_EVENT": "regression",
        "CYCLEWATCH_TARGET": "127.0.0.1:30000",
        "CYCLEWATCH_EFFECT": "+3 %",
        "CYCLEWATCH_IS_NEW": "True",
    }


def test_what_the_journal_does_not_take_is_a_line_with_its_priority(tmp_path: Path) -> None:
    """It reads standard error as well."""
    stream = StringIO()
    Journal(stream, tmp_path / "gone").write({"MESSAGE": "one\ntwo", "PRIORITY": "3"})
    assert stream.getvalue() == "<3>one\n<3>two\n"


def test_an_entry_too_long_for_a_datagram_is_not_lost(tmp_path: Path, journal: socket.socket) -> None:
    stream = StringIO()
    Journal(stream, tmp_path / "journal").write({"MESSAGE": "x" * 2**20, "PRIORITY": "6"})
    assert len(stream.getvalue()) > 2**20


@pytest.mark.parametrize("stream", [None, "1:2", "-"])
def test_another_stream_is_not_taken_for_the_journal(tmp_path: Path, stream: str | None) -> None:
    """The variable is inherited by children whose standard error leads elsewhere."""
    with (tmp_path / "log").open("w") as file:
        assert not leads_to_journal(file, {} if stream is None else {"JOURNAL_STREAM": stream})
        status = os.fstat(file.fileno())
        assert leads_to_journal(file, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not leads_to_journal(file, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
    assert not leads_to_journal(StringIO(), {"JOURNAL_STREAM": "1:2"})


SCRIPT = """
import logging, os, sys
from pathlib import Path
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
import structlog
from cyclewatch.config.settings import Log
from cyclewatch.daemon import journal, log
journal.Journal.__init__.__defaults__ = (Path(sys.argv[1]),)
log.configure_logging(Log(level="info"))
structlog.get_logger().debug("left out")
structlog.get_logger().info("started", database="sqlite")
password = "s3cret"
try:
    raise RuntimeError("gone")
except RuntimeError:
    structlog.get_logger().exception("failed", collector="cycles")
logging.getLogger("apscheduler").warning("a job was missed")
log.configure_logging(Log(format="json"))
structlog.get_logger().warning("in json")
"""


def test_the_daemon_s_log_goes_there_by_itself(tmp_path: Path, journal: socket.socket) -> None:
    """With fields, tracebacks without local variables, and the warnings of libraries; JSON stays JSON."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "journal")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    entries = [parsed(journal.recv(2**20)) for _ in range(3)]
    assert [one["PRIORITY"] for one in entries] == ["6", "3", "4"]
    assert (entries[0]["MESSAGE"], entries[0]["CYCLEWATCH_DATABASE"]) == ("started database=sqlite", "sqlite")
    assert entries[1]["MESSAGE"].startswith("failed collector=cycles\nTraceback")
    assert "RuntimeError: gone" in entries[1]["MESSAGE"]
    assert "s3cret" not in str(entries)
    assert entries[2]["CYCLEWATCH_LOGGER"] == "apscheduler"
    (line,) = answer.stderr.splitlines()
    assert json.loads(line)["event"] == "in json"
