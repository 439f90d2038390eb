"""The units as systemd's own tools see them, installed below a folder."""

import re
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from cyclewatch.config.alerts import Alerts
from cyclewatch.config.load import load_settings
from cyclewatch.config.settings import Settings
from cyclewatch.daemon.installation.node_files import (
    configuration_file,
    directories_file,
    service_file,
    sglang_file,
    users_file,
)
from cyclewatch.daemon.installation.seal import unsealed
from cyclewatch.daemon.store import postgres

EXPOSURE_MAX = 3.0
NEEDED = ("systemd-analyze", "systemd-sysusers", "systemd-tmpfiles")

pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in NEEDED), reason="systemd's tools are not here: apt-get install systemd"
)


@pytest.fixture(name="units")
def _units(tmp_path: Path) -> Path:
    """A folder with both services; the daemon's command is one that exists."""
    command = tmp_path / "cyclewatch"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    (tmp_path / "cyclewatch.service").write_text(service_file(PurePosixPath(command), 252).text)
    (tmp_path / "sglang.service").write_text("[Service]\nExecStart=/bin/true\n")
    drop_in = tmp_path / "sglang.service.d/50-cyclewatch.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(sglang_file("sglang.service").text)
    return tmp_path


def settings_of(unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", unit, re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def test_a_database_that_hangs_is_given_up_before_the_watchdog_bites(units: Path) -> None:
    """The loop that feeds it asks the database: once in vain, and once more to connect."""
    (watchdog_s,) = settings_of((units / "cyclewatch.service").read_text())["WatchdogSec"]
    assert float(watchdog_s) > postgres._ANSWER_S + postgres._CONNECT_S
    assert max(postgres._LOCK_MS, postgres._STATEMENT_MS) < postgres._ANSWER_S * 1000  # it says so itself


@pytest.mark.parametrize("name", ["cyclewatch.service", "sglang.service"])
def test_systemd_finds_nothing_wrong(units: Path, name: str) -> None:
    """It warns of unknown keys and goes on: so there must be no word of ours; others' units are not for us to mend."""
    answer = subprocess.run(
        ["systemd-analyze", "verify", str(units / name)], capture_output=True, text=True, check=False
    )
    said = [line for line in (answer.stdout + answer.stderr).splitlines() if "cyclewatch" in line or "sglang" in line]
    assert said == []


def test_the_service_is_hardly_exposed(units: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(units / "cyclewatch.service")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    exposure = re.search(r"Overall exposure level for cyclewatch\.service: ([0-9.]+)", answer.stdout)
    assert exposure is not None
    print(exposure.group())
    assert float(exposure.group(1)) <= EXPOSURE_MAX


def test_the_service_still_sees_what_it_watches() -> None:
    """What these would hide are the GPUs, the servers' /proc, who asks on Kineto's channel, and the rings."""
    values = settings_of(service_file(PurePosixPath("/opt/cyclewatch/bin/cyclewatch"), 252).text)
    assert values["PrivateDevices"] == ["no"]
    assert values["DeviceAllow"] == ["char-nvidia* rw"]
    assert (values["ProtectProc"], values["ProcSubset"]) == (["default"], ["all"])
    assert "PrivateUsers" not in values
    assert "PrivateNetwork" not in values
    assert values["ReadWritePaths"] == ["-/run/cyclewatch"]


def test_an_older_systemd_gets_no_directory_of_secrets() -> None:
    """It would never start the service."""
    text = service_file(PurePosixPath("/opt/cyclewatch/bin/cyclewatch"), 249).text
    assert "LoadCredential" not in settings_of(text)
    assert "systemd 249 loads no directories" in text


def test_a_secret_s_name_is_one_that_the_configuration_takes() -> None:
    """Systemd calls a file of a directory ID_FILE."""
    (loaded,) = settings_of(service_file(PurePosixPath("/x"), 252).text)["LoadCredential"]
    sink = {"type": "slack", "url": f"credential:{loaded.partition(':')[0]}_slack"}
    assert Alerts.model_validate({"sinks": {"team": sink}}).sinks["team"].url == "credential:secret_slack"


def test_the_places_are_those_of_the_settings() -> None:
    """The daemon, tmpfiles.d and SGLang must mean the same directories, letter by letter."""
    rings, channel = str(Settings().rings.directory), str(Settings().profiling.socket_dir)
    sglang = settings_of(sglang_file("sglang.service").text)["Environment"]
    assert set(sglang) == {
        f"CYCLEWATCH_RING_DIR={rings}",
        "KINETO_USE_DAEMON=1",
        f"KINETO_IPC_SOCKET_DIR={channel}",
        f"KINETO_ONDEMAND_TRACE_DIR={channel}",
    }
    directories = dict(re.findall(r"^d (\S+)\s+(.*)$", directories_file().text, re.MULTILINE))
    assert directories[rings].split() == directories[channel].split() == ["2770", "root", "cyclewatch", "-"]


def test_user_and_directories_come_to_be(tmp_path: Path) -> None:
    """By systemd's own tools, below a folder."""
    for folder, file in (("sysusers.d", users_file()), ("tmpfiles.d", directories_file())):
        path = tmp_path / "etc" / folder / "cyclewatch.conf"
        path.parent.mkdir(parents=True)
        path.write_text(file.text)
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", "cyclewatch.conf"], check=True, capture_output=True)
    assert (tmp_path / "etc/passwd").read_text().startswith("cyclewatch:x:")
    assert re.search("^cyclewatch:", (tmp_path / "etc/group").read_text(), re.MULTILINE)
    command = ["systemd-tmpfiles", f"--root={tmp_path}", "--create", "cyclewatch.conf"]
    answer = subprocess.run(command, check=False, capture_output=True, text=True)
    if answer.returncode:
        pytest.skip(f"only root may give directories away: {answer.stderr}")
    modes = {
        name: (tmp_path / name).stat().st_mode & 0o7777 for name in ("run/cyclewatch/rings", "run/cyclewatch/kineto")
    }
    assert set(modes.values()) == {0o2770}
    assert (tmp_path / "etc/cyclewatch/credentials").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("users", [(), ("root", ""), ("sglang", "root", 'o"dd')])
def test_the_first_configuration_is_a_good_one(tmp_path: Path, users: tuple[str, ...]) -> None:
    (tmp_path / "cyclewatch.toml").write_text(configuration_file(users).text)
    assert set(load_settings(tmp_path / "cyclewatch.toml", {}).profiling.users) == set(users) - {"root", ""}


def test_the_seal_is_a_comment_and_comes_off() -> None:
    text = users_file().text
    assert text.startswith("# Written by ")
    assert unsealed(text) == text.partition("\n")[2]
    assert unsealed(unsealed(text)) == unsealed(text)
