"""A machine booted with the real systemd, in namespaces of its own on this one: needs root, and nothing virtual.

It has this machine's files, with /etc, /var and /run of its own, its own network, and control groups below ours. Of
systemd's units there are only those that a service needs, so that nothing of this machine is set or started.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
SYSTEMD = Path("/lib/systemd/systemd")
COMMAND = "/opt/cyclewatch/bin/cyclewatch"
NAMESPACES = ("--mount", "--pid", "--cgroup", "--uts", "--ipc", "--net")

_TARGETS = ("sysinit", "basic", "sockets", "timers", "paths", "slices", "shutdown", "network-online", "multi-user")
_JOURNAL = ("systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket")
_NO_CONTROLLERS = ("cpuset",)
"""Groups of it take nobody before they have been told which CPUs they have; systemd does without."""

_MODULES = "/opt/cyclewatch/checkout/src\n/opt/cyclewatch/checkout/tests\n/opt/cyclewatch/site\n"
_LAUNCHER = """#!/opt/cyclewatch/bin/python
import sys
from cyclewatch.daemon.__main__ import main
sys.exit(main())
"""

_BOOT = """
set -e
mount --make-rprivate /
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
cp /proc/mounts {mounts}
while read -r _ at type options _; do
    case "$type" in cgroup|cgroup2)
        case "$at" in */cpuset) continue;; esac
        umount "$at"
        mount -t "$type" -o "$options" "$type" "$at";;
    esac
done < {mounts}
mount -t tmpfs tmpfs {scratch}
for folder in etc var; do
    own={scratch}/$folder
    mkdir -p $own/upper $own/work
    mount -t overlay -o lowerdir=/$folder,upperdir=$own/upper,workdir=$own/work overlay /$folder
done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /etc/systemd/system
mount -t tmpfs tmpfs /opt
{python} -m venv --without-pip /opt/cyclewatch
cp {modules} /opt/cyclewatch/lib/python*/site-packages
mkdir -p /opt/cyclewatch/checkout /opt/cyclewatch/site /etc/systemd/journald.conf.d
mount --bind {checkout} /opt/cyclewatch/checkout
mount --bind {site} /opt/cyclewatch/site
cp {units}/* /etc/systemd/system
cp {command} {binary}
printf '[Journal]\\nReadKMsg=no\\nStorage=volatile\\nAudit=no\\n' > /etc/systemd/journald.conf.d/machine.conf
mount --make-rshared / # systemd hands secrets over by a mount, from a namespace of its own
export container=test SYSTEMD_UNIT_PATH=/etc/systemd/system
exec {systemd} --system --unit=multi-user.target
"""


class NoMachineError(Exception):
    """There can be none here; the message says why."""


@dataclass
class Machine:
    """A running one; `pid` is that of its systemd, seen from outside."""

    pid: int

    def run(self, *words: str, check: bool = True) -> str:
        """Standard output of a program that is run on it, as root."""
        command = ["nsenter", "--target", str(self.pid), *NAMESPACES, "--", *words]
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
        assert not check or answer.returncode == 0, (words, answer.stdout, answer.stderr)
        return answer.stdout

    def fails(self, *words: str) -> int:
        """Exit code of a program that may fail."""
        command = ["nsenter", "--target", str(self.pid), *NAMESPACES, "--", *words]
        return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode

    def property(self, name: str, unit: str = "cyclewatch.service") -> str:
        """What systemd says of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def write(self, path: str, text: str) -> None:
        """Write one of its files."""
        where = Path(f"/proc/{self.pid}/root{path}")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = 90) -> None:
        """Wait until something is true of it."""
        deadline_s = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline_s, (what, self.run("journalctl", "--no-pager", "-n", "60", check=False))
            time.sleep(0.2)


@contextmanager
def booted(directory: Path) -> Iterator[Machine]:
    """Boot one with its own folder for what it needs, and end it.

    Raises:
        NoMachineError: not root, no systemd, or namespaces are not to be had.
    """
    python = _python()
    units = _units(directory)
    (scratch := directory / "scratch").mkdir()
    (modules := directory / "machine.pth").write_text(_MODULES)
    (command := directory / "cyclewatch").write_text(_LAUNCHER)
    command.chmod(0o755)
    (boot := directory / "boot.sh").write_text(
        _BOOT.format(
            scratch=scratch,
            mounts=directory / "mounts",
            checkout=ROOT,
            site=Path(psutil.__file__).parents[1],
            units=units,
            python=python,
            modules=modules,
            command=command,
            binary=COMMAND,
            systemd=SYSTEMD,
        )
    )
    groups = _own_groups(f"cyclewatch-test-{os.getpid()}")
    enter = "".join(f"echo $$ > {group}/cgroup.procs\n" for group in groups)
    start = f"{enter}exec unshare --fork --kill-child --mount-proc {' '.join(NAMESPACES)} sh {boot}"
    log = directory / "boot.log"
    with log.open("w") as file:
        process = subprocess.Popen(["sh", "-ec", start], stdout=file, stderr=file, stdin=subprocess.DEVNULL)
    try:
        yield _running(process, log)
    finally:
        process.kill()
        process.wait()
        for group in groups:
            _remove(group)


def _running(process: subprocess.Popen[bytes], log: Path) -> Machine:
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s and process.poll() is None:
        for child in psutil.Process(process.pid).children():
            machine = Machine(child.pid)
            if child.name() == "systemd" and machine.fails("systemctl", "is-active", "multi-user.target") == 0:
                return machine
        time.sleep(0.2)
    raise NoMachineError(f"systemd does not boot in namespaces here: {log.read_text()[-500:]}")


def _python() -> str:
    """A Python that a sandboxed service can start: this one, or the system's if it can load the same modules."""
    if os.geteuid() != 0:
        raise NoMachineError("needs root")
    missing = [name for name in ("unshare", "nsenter", "systemctl", "setpriv") if shutil.which(name) is None]
    if missing or not SYSTEMD.exists():
        raise NoMachineError(f"not here: {', '.join(missing) or SYSTEMD}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path(f"/usr/bin/python{version}")):
        if path.exists() and not path.is_relative_to("/root") and not path.is_relative_to("/home"):
            return str(path)
    raise NoMachineError(
        f"no Python {version} that a service could start: this one is in a home, and /usr/bin has none"
    )


def _units(directory: Path) -> Path:
    (units := directory / "units").mkdir()
    for name in _TARGETS:
        (units / f"{name}.target").write_text(f"[Unit]\nDescription={name}\nDefaultDependencies=no\n")
    (units / "sysinit.target").write_text(
        "[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service\nAfter=systemd-journald.service\n"
    )
    for name in _JOURNAL:
        shutil.copy(SYSTEMD.parent / "system" / name, units)
    return units


def _own_groups(name: str) -> list[Path]:
    """New control groups below ours, one in each hierarchy."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    ours = {controllers: path for _, controllers, path in lines}
    groups = []
    for mount in psutil.disk_partitions(all=True):
        if mount.fstype not in {"cgroup", "cgroup2"} or Path(mount.mountpoint).name in _NO_CONTROLLERS:
            continue
        key = "" if mount.fstype == "cgroup2" else Path(mount.mountpoint).name
        path = ours.get(key, ours.get(f"name={key}"))
        if path is None:
            continue
        group = Path(mount.mountpoint) / path.lstrip("/") / name
        try:
            group.mkdir()
        except OSError as error:
            raise NoMachineError(f"{group}: {error.strerror}: no control groups of our own") from None
        groups.append(group)
    return groups


def _remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        deadline_s = time.monotonic() + 10
        while time.monotonic() < deadline_s:
            try:
                Path(folder).rmdir()
                break
            except OSError:  # its processes are still ending
                time.sleep(0.05)
