"""The service on a machine that the real systemd has booted: installed, ready, hung, reloaded, removed."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from systemd_machine import COMMAND, Machine, NoMachineError, booted

SGLANG = """
[Service]
User=sglang
ExecStart=/opt/cyclewatch/bin/python /opt/cyclewatch/bin/scheduler.py
"""
SCHEDULER = """
import os, time
from pathlib import Path
import rings
ring = rings.PlainRing(Path(os.environ["CYCLEWATCH_RING_DIR"]), 16384)
ring.path.chmod(0o640)
while True:
    ring.write(rings.payload(end_ns=time.monotonic_ns()))
    time.sleep(0.02)
"""
METRICS = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9472/metrics').read().decode())"
SINK = '[alerts.sinks.team]\ntype = "slack"\nurl = "credential:secret_slack"\n'
PAGE_OF_INSTALLATION = Path(__file__).parents[2] / "docs/install.md"
SECRET = "/run/credentials/cyclewatch.service/secret_slack"


pytestmark = pytest.mark.slow


@pytest.fixture(name="machine", scope="module")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With SGLang's service, which writes a ring as a user of its own once it is told to."""
    try:
        with booted(tmp_path_factory.mktemp("machine")) as machine:
            machine.write("/etc/systemd/system/sglang.service", SGLANG)
            machine.write("/opt/cyclewatch/bin/scheduler.py", SCHEDULER)
            machine.write("/etc/sysusers.d/sglang.conf", "u sglang -\n")
            machine.run("systemd-sysusers", "sglang.conf")
            machine.run("systemctl", "daemon-reload")
            yield machine
    except NoMachineError as error:
        pytest.skip(f"NO REAL SYSTEMD: {error}")


def commands() -> list[str]:
    """What the page has people do, but for what comes from a package index."""
    section = PAGE_OF_INSTALLATION.read_text().partition("## Five minutes\n")[2].partition("\n## ")[0]
    found = re.findall(r"^ {7}(\S.*)$", section, re.MULTILINE)
    return [command for command in found if "pip" not in command and "venv" not in command]


def test_the_page_of_installation_works_as_it_stands(machine: Machine) -> None:
    """`install --yes` comes back when the daemon is ready; only `doctor` may find something missing."""
    assert machine.fails(COMMAND, "install", "--check") == 3
    assert len(commands()) >= 5
    for command in commands():
        assert machine.fails("sh", "-ec", command) in ({0, 3} if "doctor" in command else {0}), command
        if command.endswith("--yes"):
            assert machine.property("ActiveState") == "active"
            assert "servers watched: 0" in machine.property("StatusText")
    assert machine.fails(COMMAND, "install", "--check") == 0
    assert machine.run("cat", "/etc/cyclewatch/cyclewatch.toml").endswith('users = ["sglang"]\n')


def test_it_reads_what_sglang_writes_as_another_user(machine: Machine) -> None:
    """By the group that both have, and nobody else."""
    machine.wait_for(lambda: "servers watched: 1" in machine.property("StatusText"), "the ring is read")
    (ring,) = machine.run("sh", "-c", "stat --format '%U %G %a' /run/cyclewatch/rings/*.ring").splitlines()
    assert ring == "sglang cyclewatch 640"
    channel = machine.run("stat", "--format=%U %G %a", "/run/cyclewatch/kineto/dynolog").strip()
    assert channel == "cyclewatch cyclewatch 660"
    read = ("setpriv", "--init-groups", "--regid", "sglang", "--reuid", "sglang")
    assert machine.fails(*read, "ls", "/var/lib/cyclewatch") != 0


def test_a_secret_is_for_the_service_alone(machine: Machine) -> None:
    machine.write("/etc/cyclewatch/credentials/slack", "https://hooks.slack.example/x-and-secret\n")
    machine.run("systemctl", "restart", "cyclewatch.service")
    read = ("setpriv", "--clear-groups", "--regid", "nogroup", "--reuid")
    assert machine.run(*read, "cyclewatch", "cat", SECRET) == "https://hooks.slack.example/x-and-secret\n"
    for path in (SECRET, "/etc/cyclewatch/credentials/slack"):
        assert machine.fails(*read, "sglang", "cat", path) != 0
    assert machine.fails(*read, "cyclewatch", "cat", "/etc/cyclewatch/credentials/slack") != 0
    machine.write("/etc/cyclewatch/cyclewatch.toml", SINK)
    directory = f"CREDENTIALS_DIRECTORY={Path(SECRET).parent}"
    assert "x-and-secret" not in machine.run("env", directory, COMMAND, "sink", "test", "team", "--dry-run")
    assert machine.fails(COMMAND, "sink", "test", "team", "--dry-run") == 2


def test_it_is_bounded_and_dies_before_the_server(machine: Machine) -> None:
    pid = machine.property("MainPID")
    assert machine.run("cat", f"/proc/{pid}/oom_score_adj").strip() == "500"
    assert "SCHED_BATCH" in machine.run("chrt", "--pid", pid)
    status = dict(
        line.split(":\t", 1) for line in machine.run("cat", f"/proc/{pid}/status").splitlines() if ":\t" in line
    )
    assert (status["CapEff"].strip(), status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("0" * 16, "1", "2")
    assert machine.property("MemoryMax") == str(2**30)


def test_its_events_are_in_the_journal_with_fields(machine: Machine) -> None:
    text = machine.run("journalctl", "--output=json", "CYCLEWATCH_EVENT=watching", "_SYSTEMD_UNIT=cyclewatch.service")
    assert '"CYCLEWATCH_TARGET":"127.0.0.1:30000"' in text
    assert '"PRIORITY":"6"' in text


def test_a_reload_is_one_and_the_daemon_is_the_same(machine: Machine) -> None:
    pid = machine.property("MainPID")
    machine.write("/etc/cyclewatch/cyclewatch.toml", '[detection]\nmin_effect = 0.1\n[profiling]\nusers = ["sglang"]\n')
    machine.run("systemctl", "reload", "cyclewatch.service")
    counted = 'cyclewatch_configuration_reloads_total{result="applied"} 1.0'
    machine.wait_for(lambda: counted in machine.run("/usr/bin/python3", "-c", METRICS), "the reload")
    machine.wait_for(lambda: machine.property("ActiveState") == "active", "ready again")
    assert machine.property("MainPID") == pid


def test_a_hang_is_ended_by_the_watchdog_and_begun_anew(machine: Machine) -> None:
    """The process is stopped, so that no thread of it can feed anything."""
    machine.write("/etc/systemd/system/cyclewatch.service.d/quick.conf", "[Service]\nWatchdogSec=5\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "cyclewatch.service")
    pid = machine.property("MainPID")
    machine.run("kill", f"-{signal.SIGSTOP.value}", pid)
    machine.wait_for(lambda: machine.property("NRestarts") == "1", "the restart")
    machine.wait_for(lambda: "servers watched: 1" in machine.property("StatusText"), "sampling again")
    assert machine.property("MainPID") != pid
    said = machine.run("journalctl", "--no-pager", "--unit=cyclewatch.service")
    assert "Watchdog timeout" in said
    assert "Fatal Python error: Aborted" in said


def test_a_wrong_configuration_ends_it_and_is_not_tried_again(machine: Machine) -> None:
    machine.write("/etc/cyclewatch/cyclewatch.toml", "nod = 1\n")
    assert machine.fails("systemctl", "restart", "cyclewatch.service") != 0
    assert (machine.property("ActiveState"), machine.property("NRestarts")) == ("failed", "0")
    machine.write("/etc/cyclewatch/cyclewatch.toml", "")
    machine.run("systemctl", "restart", "cyclewatch.service")


def test_it_is_removed_and_its_data_stays(machine: Machine) -> None:
    machine.run(COMMAND, "uninstall", "--yes")
    assert machine.property("ActiveState") == "inactive"
    assert "cyclewatch.db" in machine.run("ls", "/var/lib/cyclewatch")
    assert machine.run("systemctl", "show", "--value", "--property=DropInPaths", "sglang.service").strip() == ""
    assert machine.property("ActiveState", "sglang.service") == "active"
